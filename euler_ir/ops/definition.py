"""What an operator says about itself, and the table of all operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from euler_ir.errors import DTypeError, ShapeError
from euler_ir.index import Condition, Indices
from euler_ir.shapes import TensorType

FAMILIES = ("leaf", "elementwise", "reduction", "movement", "indexing", "contraction", "scan", "random", "composite")
"""How the compiler treats an operator. A composite has a decomposition into the others."""

ATTRIBUTE_KINDS = ("bool", "int", "float", "str", "ints", "dtype", "array", "initializer")
"""The types that the text form knows for attributes."""


@dataclass(frozen=True)
class OpDefinition:
    """All that the system knows of one operator.

    ``infer(types, attributes)`` gives the result types, or raises ShapeError or DTypeError.
    ``evaluate(attributes, *arrays)`` is the meaning in numpy: one array, or a tuple of them. It depends on what the
    arrays hold and not on how they lie in memory.
    ``vjp(op, *cotangents)`` emits the gradient: a value or None for each operand. A cotangent is None when nothing
    downstream needs that result. A missing ``vjp`` says that no operand has a gradient.
    ``decompose(op)`` emits the operator as simpler ones and gives the values that stand for its results.
    ``index_map(op, indices)`` says of a movement which operand elements a result element is: the first ``Source`` whose
    conditions hold, and one always does.
    ``doc`` says in one line what it means, of operands x and y where they have no better names.
    The last ``optional`` of ``operand_names`` may be left out.
    ``attributes`` maps each attribute to one of ATTRIBUTE_KINDS. An ``is_expensive`` element costs several times what
    loading it does, so that it is kept rather than computed again.
    """

    name: str
    family: str
    infer: Callable[[tuple[TensorType, ...], Mapping], tuple[TensorType, ...]]
    evaluate: Callable | None = None
    vjp: Callable | None = None
    decompose: Callable | None = None
    index_map: Callable | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    operand_names: tuple[str, ...] = ()
    optional: int = 0
    commutative: bool = False
    is_expensive: bool = False
    doc: str = ""

    @property
    def has_identity(self) -> bool:
        """Whether two equal ops of this kind are still two things (inputs, parameters, state)."""
        return self.family == "leaf" and self.name != "constant" and self.name != "iota"


@dataclass(frozen=True)
class Source:
    """Where an element comes from: ``operand`` (its position) at ``indices``, if all ``conditions`` hold."""

    operand: int
    indices: Indices
    conditions: tuple[Condition, ...] = ()


OPS: dict[str, OpDefinition] = {}
"""Every operator by name. ``define`` adds to it; users may add their own."""


def define(name: str, family: str, infer, evaluate: Callable | None = None, **rest) -> OpDefinition:
    """Add an operator to ``OPS``. Raises ValueError when the name is taken or the family or an attribute is unknown."""
    if name in OPS:
        raise ValueError(f"operator {name!r} is already defined")
    if family not in FAMILIES:
        raise ValueError(f"operator {name!r}: {family!r} is not a family, use one of {', '.join(FAMILIES)}")
    definition = OpDefinition(name, family, infer, evaluate=evaluate and _in_rows(family, evaluate), **rest)
    for attribute, kind in definition.attributes.items():
        if kind not in ATTRIBUTE_KINDS:
            raise ValueError(f"operator {name!r}: attribute {attribute!r} has unknown kind {kind!r}")
    if family == "movement" and definition.index_map is None:
        raise ValueError(f"movement operator {name!r} needs an index map")
    if family == "composite" and definition.decompose is None:
        raise ValueError(f"composite operator {name!r} needs a decomposition")
    OPS[name] = definition
    return definition


def _in_rows(family: str, evaluate: Callable) -> Callable:
    """``evaluate``, given arrays in row-major order: numpy adds up in an order that follows the strides, and computes
    exp in another way backwards. A movement only rearranges, and takes arrays as they lie.
    """
    if family == "movement":
        return evaluate

    @functools.wraps(evaluate)
    def evaluate_rows(attributes: Mapping, *arrays: np.ndarray):
        return evaluate(attributes, *(np.asarray(array, order="C") for array in arrays))

    return evaluate_rows


def expect(condition: bool, message: str, hint: str | None = None) -> None:
    """Raise ShapeError unless ``condition``."""
    if not condition:
        raise ShapeError(message, hint=hint)


def expect_dtype(condition: bool, message: str, hint: str | None = None) -> None:
    """Raise DTypeError unless ``condition``."""
    if not condition:
        raise DTypeError(message, hint=hint)
