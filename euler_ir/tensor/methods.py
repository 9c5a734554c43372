"""The functions of the DSL as operators and methods of a value."""

from __future__ import annotations

from euler_ir.dtypes import bool_
from euler_ir.errors import DTypeError, ShapeError, user_location
from euler_ir.tensor.elementwise import (
    absolute,
    add,
    cos,
    divide,
    equal,
    erf,
    erfc,
    exp,
    floor,
    floor_divide,
    gelu,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    multiply,
    negative,
    not_equal,
    power,
    relu,
    remainder,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    subtract,
    tanh,
)
from euler_ir.tensor.indexing import getitem, split, take
from euler_ir.tensor.lifting import Tensor, broadcast_to, cast
from euler_ir.tensor.network import matmul
from euler_ir.tensor.reduction import (
    argmax,
    argmin,
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    prod,
    softmax,
    sum,
)
from euler_ir.tensor.shape import expand_dims, flip, pad, reshape, squeeze, swap_axes, transpose


def _of_bools(function):
    """``function`` as an operator that refuses numbers, on which numpy's ``&``, ``|``, ``^`` and ``~`` mean bits."""

    def operator(*operands):
        for operand in operands:
            if isinstance(operand, TensorMethods) and operand.dtype != bool_:
                error = DTypeError(
                    f"{operand.dtype} tensors have no bitwise operators",
                    hint=f"use {function.__name__} for truth values",
                )
                raise operand.graph.explain(error, (operand,))
        return function(*operands)

    return operator


class TensorMethods(Tensor):
    """The functions above as operators and methods of a value. Needs ``graph``, ``dtype`` and ``shape``."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy arrays hand mixed expressions over to us

    __add__ = __radd__ = add
    __mul__ = __rmul__ = multiply
    __sub__ = subtract
    __truediv__ = divide
    __floordiv__ = floor_divide
    __mod__ = remainder
    __pow__ = power
    __matmul__ = matmul
    __neg__ = negative
    __abs__ = absolute
    __lt__, __le__, __gt__, __ge__ = less, less_equal, greater, greater_equal
    __and__ = __rand__ = _of_bools(logical_and)
    __or__ = __ror__ = _of_bools(logical_or)
    __xor__ = __rxor__ = _of_bools(logical_xor)
    __invert__ = _of_bools(logical_not)
    __getitem__ = getitem

    def __rsub__(self, other):
        return subtract(other, self)

    def __rtruediv__(self, other):
        return divide(other, self)

    def __rfloordiv__(self, other):
        return floor_divide(other, self)

    def __rmod__(self, other):
        return remainder(other, self)

    def __rpow__(self, other):
        return power(other, self)

    def __rmatmul__(self, other):
        return matmul(other, self)

    def __array__(self, *arguments, **options):
        raise DTypeError(
            "numpy cannot read a symbolic tensor: it has no elements before the graph runs",
            location=user_location(),
            hint="use the functions of euler_ir, or make the tensor an output and run the graph",
        )

    def __bool__(self):
        error = DTypeError(
            "a symbolic tensor has no truth value while the graph is built",
            hint="use where, logical_and and logical_or; equality is equal(a, b)",
        )
        raise self.graph.explain(error, (self,))

    def __iter__(self):
        if not self.shape:
            raise self.graph.explain(ShapeError("a 0-d tensor cannot be iterated"), (self,))
        return (self[i] for i in range(self.shape[0]))

    def __len__(self):
        if not self.shape:
            raise self.graph.explain(ShapeError("a 0-d tensor has no length"), (self,))
        return self.shape[0]

    @property
    def T(self):  # noqa: N802, numpy's name
        return transpose(self)

    equal, not_equal = equal, not_equal
    exp, log, sqrt, rsqrt, sin, cos, tanh = exp, log, sqrt, rsqrt, sin, cos, tanh
    erf, erfc, sigmoid, gelu, relu = erf, erfc, sigmoid, gelu, relu
    abs, sign, floor, isnan, cast = absolute, sign, floor, isnan, cast
    sum, prod, max, min, mean, logsumexp = sum, prod, max, min, mean, logsumexp
    argmax, argmin, cumsum, softmax, log_softmax = argmax, argmin, cumsum, softmax, log_softmax
    reshape, transpose, swap_axes, broadcast_to = reshape, transpose, swap_axes, broadcast_to
    expand_dims, squeeze, flip, pad, split, take = expand_dims, squeeze, flip, pad, split, take
