"""The operations of ``Compute`` as expressions in CUDA C++, of operands that are names or literals.

A scalar of a half type is a float, rounded to the half type after each operation that can leave it.
"""

from __future__ import annotations

from dataclasses import dataclass

from euler_ir.backends.cuda.codegen.types import memory_type, register_type
from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.loops.kernel import Compute

MATH = (
    "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "erfc", "normal_cdf", "normal_pdf", "normal_cdf_tanh",
    "sigmoid", "power", "floor",
)  # fmt: skip

# Results that a half type holds whenever it holds the operands.
_EXACT = ("negative", "absolute", "sign", "floor", "maximum", "minimum", "where", "stop_gradient")

_COMPARISONS = {"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<="}
_LOGIC = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
_BOOL_ARITHMETIC = {"add": "||", "maximum": "||", "multiply": "&&", "minimum": "&&"}
_FLOAT_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_INTEGER = ("add", "subtract", "multiply", "negative", "absolute", "floor_divide", "remainder")
_ANY_NUMBER = ("maximum", "minimum", "sign")
_OF_FLOATS = {"absolute": "absolute", "floor_divide": "floor_divide_floats", "remainder": "remainder_of_floats"}


@dataclass(frozen=True)
class Expression:
    """``text`` uses functions of the source file ``needs``; "" is what every unit has."""

    text: str
    needs: str = ""


def compute(statement: Compute, operands: list[str], dtypes: list[DType]) -> Expression:
    """The value of ``statement``, of operands that have the given dtypes. Raises LoweringError for one unknown."""
    operation, dtype = statement.operation, statement.dtype
    if operation == "philox":
        return Expression(f"eir::uniform_{dtype}({', '.join((f'{statement.stream}u', *operands))})", "philox.cuh")
    if operation == "cast":
        return Expression(cast(operands[0], dtypes[0], dtype))
    result = apply(operation, dtypes[-1], operands)
    if dtype.is_half and operation not in _EXACT:
        return Expression(f"eir::rounded<{memory_type(dtype)}>({result.text})", result.needs)
    return result


def apply(operation: str, dtype: DType, operands: list[str]) -> Expression:
    """``operation`` of operands of ``dtype``, not rounded to a half type."""
    listed = ", ".join(operands)
    if operation == "where":
        return Expression("{} ? {} : {}".format(*operands))
    if operation == "stop_gradient":
        return Expression(operands[0])
    if operation == "logical_not":
        return Expression(f"!{operands[0]}")
    infix = _COMPARISONS | _LOGIC | _infix_arithmetic(dtype)
    if operation in infix:
        return Expression(f"{operands[0]} {infix[operation]} {operands[1]}")
    if dtype.is_float and operation == "negative":
        return Expression(f"-{operands[0]}")
    if dtype.is_float and operation in MATH:
        return Expression(f"eir::{operation}({listed})", "math.cuh")
    if dtype.is_float and operation in _OF_FLOATS:
        return Expression(f"eir::{_OF_FLOATS[operation]}({listed})", "math.cuh")
    if operation in _ANY_NUMBER or (dtype.is_integer and operation in _INTEGER):
        return Expression(f"eir::{operation}({listed})")
    raise LoweringError(f"the CUDA backend has no operation '{operation}' of {dtype}")


def _infix_arithmetic(dtype: DType) -> dict[str, str]:
    if dtype.kind == "bool":
        return _BOOL_ARITHMETIC
    return _FLOAT_ARITHMETIC if dtype.is_float else {}


def cast(value: str, source: DType, target: DType) -> str:
    """``value`` as a ``target``: integers wrap, floats saturate towards integers (NaN gives 0) and round to nearest."""
    kind = register_type(target)
    if source == target:
        return value
    if target.kind == "bool":
        return f"{value} != 0"
    if target.is_half:
        if source.bits == 64 and source.is_float and target.name == "f16":
            value = f"eir::round_to_odd({value})"
        elif register_type(source) != "float":
            value = f"float({value})"
        return f"eir::rounded<{memory_type(target)}>({value})"
    if source.is_float and target.is_integer:
        return f"eir::to_integer<{kind}>({value})"
    if register_type(source) == kind:
        return value
    return f"({kind})({value})"
