"""What a symbolic tensor can do: the functions of the DSL that take values, and the methods built from them.

Every function here follows numpy's rules for broadcasting, axes and slicing, spells out broadcasts and casts as
operators, and ends in ``graph.emit``. Rules of operators (gradients, decompositions) are written with the same
functions that users write models with.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from euler_ir.dtypes import (
    DType,
    accumulation_dtype,
    as_dtype,
    bool_,
    f32,
    i32,
    i64,
    promote,
    promote_scalar,
)
from euler_ir.errors import DTypeError, EulerError, ShapeError, user_location
from euler_ir.shapes import (
    as_shape,
    broadcast_shapes,
    drop_axes,
    keep_axes,
    normalize_axes,
    normalize_axis,
)


def _is_number(value) -> bool:
    return isinstance(value, (bool, np.bool_, Real)) and not isinstance(value, np.ndarray)


def _number(value):
    """A numpy or Python number as the plain Python one of its kind."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    return int(value) if isinstance(value, Integral) else float(value)


def _explained(values, rule, *arguments):
    """``rule(*arguments)``; what it refuses is reported with the names and types of ``values`` and the user's line."""
    try:
        return rule(*arguments)
    except EulerError as error:
        error.details = ()  # the rule may have spoken of what was made of the values
        raise values[0].graph.explain(error, values) from None


def _axis(x, axis, new_axes: int = 0) -> int:
    """``axis`` of ``x`` counted from the front, where the result has ``new_axes`` more."""
    return _explained((x,), normalize_axis, axis, len(x.shape) + new_axes)


def _axes(x, axes) -> tuple[int, ...]:
    return _explained((x,), normalize_axes, axes, len(x.shape))


def constant_like(value, number, dtype: DType | None = None):
    """A 0-d constant in the graph of ``value``; its dtype is that of ``value`` unless given.

    Raises DTypeError for a number that the dtype cannot hold: a float beside integers, an int out of their range.
    """
    dtype = dtype or value.dtype
    if dtype.is_integer and (isinstance(number, Real) and not isinstance(number, Integral)):
        raise value.graph.explain(DTypeError(f"{number!r} is no {dtype}", hint="cast the tensor to a float"), (value,))
    try:
        array = np.asarray(number, dtype.numpy)
    except OverflowError:
        error = DTypeError(f"{number} is out of the range of {dtype}", hint="cast the tensor to a wider type")
        raise value.graph.explain(error, (value,)) from None
    return value.graph.emit("constant", (), value=array)


def full_like(value, number):
    """A tensor of the type of ``value`` filled with ``number``."""
    return broadcast_to(constant_like(value, number), value.shape)


def lift(operands: Sequence, near=None) -> list:
    """Operands as values of one dtype and one shape: numbers become constants, casts and broadcasts are spelled out.

    Tensors and arrays decide the dtype, numbers only its kind. ``near`` is a value of the graph, needed when no operand
    is one. Raises DTypeError when there is none, or an operand is neither a value, a number, nor an array.
    """
    near = next((operand for operand in operands if isinstance(operand, TensorMethods)), near)
    if near is None:
        raise DTypeError(
            "none of the operands is a tensor of a graph",
            location=user_location(),
            hint="make one with input, parameter or constant",
        )
    operands = [operand if _is_number(operand) else as_value(operand, near) for operand in operands]
    dtypes = [operand.dtype for operand in operands if isinstance(operand, TensorMethods)]
    dtype = functools.reduce(promote, dtypes) if dtypes else bool_
    for operand in operands:
        if _is_number(operand):
            dtype = promote_scalar(dtype, _number(operand))
    values = [
        constant_like(near, _number(operand), dtype) if _is_number(operand) else cast(operand, dtype)
        for operand in operands
    ]
    shape = broadcast_shapes_of(values)
    return [broadcast_to(value, shape) for value in values]


def as_value(operand, near):
    """A tensor as it is; a number or an array as a constant in the graph of ``near``."""
    if isinstance(operand, TensorMethods):
        return operand
    if _is_number(operand) or isinstance(operand, (np.ndarray, list, tuple)):
        return near.graph.constant(operand)
    error = DTypeError(
        f"a {type(operand).__name__} cannot be an operand", hint="use a tensor, a number or a numpy array"
    )
    raise near.graph.explain(error, (near,))


def broadcast_shapes_of(values):
    """The broadcast shape of ``values``; a mismatch is reported with their names, types and the user's line."""
    return _explained(values, broadcast_shapes, *(value.shape for value in values))


# -- elementwise -------------------------------------------------------------------------------------------------------


def _unary(name: str, x, float_only: bool = False):
    if float_only and not x.dtype.is_float:
        x = cast(x, f32)
    return x.graph.emit(name, (x,))


def _binary(name: str, left, right):
    left, right = lift((left, right))
    return left.graph.emit(name, (left, right))


def add(left, right):
    """Sum, elementwise; bool operands are counted as in numpy's logical or."""
    return _binary("add", left, right)


def subtract(left, right):
    return _binary("subtract", left, right)


def multiply(left, right):
    return _binary("multiply", left, right)


def divide(left, right):
    """True division; integers are divided in f32."""
    left, right = lift((left, right))
    if not left.dtype.is_float:
        left, right = cast(left, f32), cast(right, f32)
    return left.graph.emit("divide", (left, right))


def floor_divide(left, right):
    """Quotient rounded down, as in Python. For integers a zero divisor gives 0, as in numpy."""
    return _binary("floor_divide", left, right)


def remainder(left, right):
    """Remainder with the sign of the divisor, as in Python. For integers a zero divisor gives 0, as in numpy."""
    return _binary("remainder", left, right)


def power(base, exponent):
    """``base ** exponent``. A Python int exponent of an integer tensor multiplies out; otherwise both are floats.

    Raises DTypeError for an integer tensor to a negative int.
    """
    if isinstance(exponent, Integral) and not isinstance(exponent, bool) and isinstance(base, TensorMethods):
        if exponent == 2:
            return multiply(base, base)
        if not base.dtype.is_float:
            return _integer_power(base, int(exponent))
    base, exponent = lift((base, exponent))
    if not base.dtype.is_float:
        base, exponent = cast(base, f32), cast(exponent, f32)
    return base.graph.emit("power", (base, exponent))


def _integer_power(base, exponent: int):
    if exponent < 0:
        error = DTypeError("an integer tensor cannot be raised to a negative power", hint="cast it to a float first")
        raise base.graph.explain(error, (base,))
    result, square = full_like(base, 1), base
    while exponent:
        if exponent & 1:
            result = multiply(result, square)
        exponent >>= 1
        if exponent:
            square = multiply(square, square)
    return result


def maximum(left, right):
    """The larger, elementwise; NaN if either is NaN."""
    return _binary("maximum", left, right)


def minimum(left, right):
    """The smaller, elementwise; NaN if either is NaN."""
    return _binary("minimum", left, right)


def equal(left, right):
    return _binary("equal", left, right)


def not_equal(left, right):
    return _binary("not_equal", left, right)


def less(left, right):
    return _binary("less", left, right)


def less_equal(left, right):
    return _binary("less_equal", left, right)


def greater(left, right):
    return _binary("less", right, left)


def greater_equal(left, right):
    return _binary("less_equal", right, left)


def logical_and(left, right):
    """Logic on truth values; numbers are true where they are not 0."""
    return _logical("logical_and", left, right)


def logical_or(left, right):
    return _logical("logical_or", left, right)


def logical_xor(left, right):
    return _logical("logical_xor", left, right)


def _logical(name: str, left, right):
    near = left if isinstance(left, TensorMethods) else right
    return _binary(name, *(cast(as_value(operand, near), bool_) for operand in (left, right)))


def logical_not(x):
    return _unary("logical_not", cast(x, bool_))


def where(condition, chosen, other):
    """``chosen`` where ``condition`` holds, else ``other``; the gradient reaches only the chosen side."""
    near = next((value for value in (condition, chosen, other) if isinstance(value, TensorMethods)), None)
    chosen, other = lift((chosen, other), near)
    condition = cast(as_value(condition, near), bool_)
    shape = broadcast_shapes_of((condition, chosen, other))
    return near.graph.emit("where", tuple(broadcast_to(value, shape) for value in (condition, chosen, other)))


def cast(x, dtype):
    """``x`` as another element type; float to integer truncates and stays within the range, and NaN gives 0."""
    dtype = _explained((x,), as_dtype, dtype)
    return x if x.dtype == dtype else x.graph.emit("cast", (x,), dtype=dtype)


def negative(x):
    return _unary("negative", x)


def absolute(x):
    """Magnitude; the gradient at 0 is 0."""
    return _unary("absolute", x)


def sign(x):
    """-1, 0 or 1; NaN stays NaN."""
    return _unary("sign", x)


def floor(x):
    """The largest whole number that is not above; integers are one already."""
    return _unary("floor", x) if x.dtype.is_float else x


def exp(x):
    return _unary("exp", x, float_only=True)


def log(x):
    """Natural logarithm. Where its cotangent is 0 the gradient is 0, also at 0."""
    return _unary("log", x, float_only=True)


def sqrt(x):
    """Square root. Where its cotangent is 0 the gradient is 0, also at 0."""
    return _unary("sqrt", x, float_only=True)


def rsqrt(x):
    """``1 / sqrt(x)``."""
    return _unary("rsqrt", x, float_only=True)


def sin(x):
    return _unary("sin", x, float_only=True)


def cos(x):
    return _unary("cos", x, float_only=True)


def tanh(x):
    return _unary("tanh", x, float_only=True)


def erf(x):
    """The error function."""
    return _unary("erf", x, float_only=True)


def erfc(x):
    """``1 - erf(x)``, exact in the tail."""
    return _unary("erfc", x, float_only=True)


def sigmoid(x):
    """``1 / (1 + exp(-x))``; exact in both tails."""
    return _unary("sigmoid", x, float_only=True)


def gelu(x, approximate: str = "tanh"):
    """GELU (Hendrycks and Gimpel, arXiv:1606.08415): ``approximate`` is 'tanh' (GPT-2) or 'none' (by erfc)."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("gelu", (x,), approximate=approximate)


def relu(x):
    """``maximum(x, 0)``; the gradient at 0 is one half, as for any tie."""
    return maximum(x, 0)


def isnan(x):
    return not_equal(x, x)


# -- reductions --------------------------------------------------------------------------------------------------------


def _reduce(name: str, x, axes, keepdims: bool):
    axes = _axes(x, axes)
    result = x.graph.emit(name, (x,), axes=axes)
    return reshape(result, keep_axes(x.shape, axes)) if keepdims else result


def _countable(x):
    """Integers and bools are summed and multiplied in i64, as in numpy."""
    return x if x.dtype.is_float else cast(x, i64)


def sum(x, axes=None, keepdims: bool = False):
    """Sum over ``axes`` (all by default). Integers and bools give i64; half types are accumulated in f32."""
    return _reduce("sum", _countable(x), axes, keepdims)


def prod(x, axes=None, keepdims: bool = False):
    """Product over ``axes``; of nothing it is 1."""
    return _reduce("prod", _countable(x), axes, keepdims)


def max(x, axes=None, keepdims: bool = False):
    """Largest over ``axes``; NaN propagates; ties share the gradient evenly. Raises ShapeError over no elements."""
    return _reduce("max", x, axes, keepdims)


def min(x, axes=None, keepdims: bool = False):
    """Smallest over ``axes``; NaN propagates; ties share the gradient evenly. Raises ShapeError over no elements."""
    return _reduce("min", x, axes, keepdims)


def mean(x, axes=None, keepdims: bool = False):
    """Mean over ``axes``, accumulated in f32 for half types; of nothing it is NaN. Integers give f32."""
    x = x if x.dtype.is_float else cast(x, f32)
    axes = _axes(x, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    wide = accumulation_dtype(x.dtype)
    total = sum(cast(x, wide), axes, keepdims)
    return cast(divide(total, float(count)), x.dtype)


def logsumexp(x, axes=None, keepdims: bool = False):
    """``log(sum(exp(x)))`` without overflow; of all -inf it is -inf, with gradient 0."""
    return _reduce("logsumexp", x if x.dtype.is_float else cast(x, f32), axes, keepdims)


def argmax(x, axis=None, keepdims: bool = False):
    """Index (i64) of the first largest along ``axis``, or in the flattened tensor; the first NaN wins."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x, axis=None, keepdims: bool = False):
    """Index (i64) of the first smallest along ``axis``, or in the flattened tensor; the first NaN wins."""
    return _arg("argmin", x, axis, keepdims)


def _arg(name: str, x, axis, keepdims: bool):
    if axis is None:
        result = x.graph.emit(name, (reshape(x, (-1,)),), axis=0)
        return reshape(result, (1,) * len(x.shape)) if keepdims else result
    axis = _axis(x, axis)
    result = x.graph.emit(name, (x,), axis=axis)
    return reshape(result, keep_axes(x.shape, (axis,))) if keepdims else result


def cumsum(x, axis: int, reverse: bool = False):
    """Running sum along ``axis``, from the end with ``reverse``. Integers and bools give i64."""
    x = _countable(x)
    return x.graph.emit("cumsum", (x,), axis=_axis(x, axis), reverse=reverse)


def softmax(x, axis: int = -1):
    """``exp(x) / sum(exp(x))`` along ``axis``, without overflow. A row of all -inf gives NaN, as IEEE says."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("softmax", (x,), axis=_axis(x, axis))


def log_softmax(x, axis: int = -1):
    """``x - logsumexp(x)`` along ``axis``."""
    x = x if x.dtype.is_float else cast(x, f32)
    return x.graph.emit("log_softmax", (x,), axis=_axis(x, axis))


# -- shape -------------------------------------------------------------------------------------------------------------


def broadcast_to(x, shape):
    """``x`` repeated to ``shape``, as numpy's broadcast_to."""
    shape = _explained((x,), as_shape, shape)
    return x if x.shape == shape else x.graph.emit("broadcast", (x,), shape=shape)


def reshape(x, *shape):
    """The same elements, row-major, in another shape; one size may be -1. Raises ShapeError when the counts differ."""
    sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], Integral) else shape
    if -1 in sizes:
        rest = math.prod(size for size in sizes if size != -1)
        if sizes.count(-1) > 1 or rest == 0 or x.size % rest:
            raise x.graph.explain(ShapeError(f"cannot reshape {x.size} elements into {sizes}"), (x,))
        sizes = tuple(x.size // rest if size == -1 else size for size in sizes)
    sizes = _explained((x,), as_shape, sizes)
    return x if x.shape == sizes else x.graph.emit("reshape", (x,), shape=sizes)


def transpose(x, *permutation):
    """Axes in another order; reversed when none is given."""
    axes = tuple(permutation[0]) if len(permutation) == 1 and not isinstance(permutation[0], Integral) else permutation
    axes = tuple(_axis(x, axis) for axis in axes) or tuple(reversed(range(len(x.shape))))
    return x if axes == tuple(range(len(x.shape))) else x.graph.emit("transpose", (x,), permutation=axes)


def swap_axes(x, first: int, second: int):
    """``x`` with two axes exchanged."""
    axes = list(range(len(x.shape)))
    first, second = _axis(x, first), _axis(x, second)
    axes[first], axes[second] = axes[second], axes[first]
    return transpose(x, axes)


def expand_dims(x, axis: int):
    """``x`` with a new axis of size 1 at ``axis``."""
    axis = _axis(x, axis, new_axes=1)
    return reshape(x, x.shape[:axis] + (1,) + x.shape[axis:])


def squeeze(x, axes=None):
    """``x`` without axes of size 1: all of them, or ``axes``. Raises ShapeError when one of those has another size."""
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    axes = _axes(x, axes)
    for axis in axes:
        if x.shape[axis] != 1:
            raise x.graph.explain(ShapeError(f"cannot squeeze axis {axis} of size {x.shape[axis]}"), (x,))
    return reshape(x, drop_axes(x.shape, axes))


def flip(x, axes=None):
    """``x`` read backwards along ``axes``."""
    axes = _axes(x, axes)
    return x.graph.emit("flip", (x,), axes=axes) if axes else x


def pad(x, widths, value=0):
    """``x`` with ``value`` around it; ``widths`` holds (before, after) for each axis."""
    widths = tuple((int(low), int(high)) for low, high in widths)
    low, high = tuple(pair[0] for pair in widths), tuple(pair[1] for pair in widths)
    return pad_with_interior(x, low, high, (0,) * len(widths), value)


def pad_with_interior(x, low, high, interior, value=0):
    """``pad`` that also puts ``interior`` copies of ``value`` between neighbours along each axis."""
    return x.graph.emit("pad", (x, constant_like(x, value)), low=low, high=high, interior=interior)


def concatenate(values, axis: int = 0):
    """Tensors joined along ``axis``; their dtypes are promoted. Raises ShapeError for an empty list."""
    values = list(values)
    if not values:
        raise ShapeError("concatenate needs at least one tensor", location=user_location())
    dtype = functools.reduce(promote, (value.dtype for value in values))
    axis = _axis(values[0], axis)
    values = [cast(value, dtype) for value in values]
    return values[0] if len(values) == 1 else values[0].graph.emit("concatenate", tuple(values), axis=axis)


def stack(values, axis: int = 0):
    """Tensors of one shape joined along a new axis."""
    values = list(values)
    if not values:
        raise ShapeError("stack needs at least one tensor", location=user_location())
    axis = _axis(values[0], axis, new_axes=1)
    return _explained(values, concatenate, [expand_dims(value, axis) for value in values], axis)


def split(x, sections: int, axis: int = -1):
    """``sections`` equal parts along ``axis``. Raises ShapeError when it does not divide."""
    axis = _axis(x, axis)
    if sections < 1 or x.shape[axis] % sections:
        raise x.graph.explain(
            ShapeError(f"axis {axis} of size {x.shape[axis]} does not split into {sections} parts"), (x,)
        )
    width = x.shape[axis] // sections
    before = (slice(None),) * axis
    return tuple(getitem(x, before + (slice(i * width, (i + 1) * width),)) for i in range(sections))


def getitem(x, index):
    """numpy's basic indexing (ints, slices, None, Ellipsis), or an integer tensor that gathers along the first axis."""
    if isinstance(index, TensorMethods):
        return take(x, index, axis=0)
    items = index if isinstance(index, tuple) else (index,)
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, (slice, Integral))) or isinstance(item, bool):
            raise x.graph.explain(
                ShapeError(f"a {type(item).__name__} cannot index a tensor"),
                (x,),
                hint="use take to gather by a tensor",
            )
    used = len([item for item in items if item is not None and item is not Ellipsis])
    if used > len(x.shape) or items.count(Ellipsis) > 1:
        raise x.graph.explain(ShapeError(f"{used} indices for a tensor of {len(x.shape)} axes"), (x,))
    if Ellipsis not in items:
        items = items + (Ellipsis,)
    at = items.index(Ellipsis)
    items = items[:at] + (slice(None),) * (len(x.shape) - used) + items[at + 1 :]

    starts, sizes, steps, shape, backwards = [], [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            count = len(range(start, stop, step))
            if step < 0 and count:
                backwards.append(axis)
                start, step = start + (count - 1) * step, -step
            starts.append(start if count else 0)
            sizes.append(count)
            steps.append(abs(step))
            shape.append(count)
        else:
            if not -size <= item < size:
                raise x.graph.explain(ShapeError(f"index {item} is out of range for axis {axis} of size {size}"), (x,))
            starts.append(int(item) % size)
            sizes.append(1)
            steps.append(1)
        axis += 1
    result = x
    if tuple(sizes) != x.shape or any(step != 1 for step in steps):
        result = x.graph.emit("slice", (x,), starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    if backwards:
        result = flip(result, tuple(backwards))
    return reshape(result, tuple(shape))


# -- indexing ----------------------------------------------------------------------------------------------------------


def take(x, indices, axis: int = 0):
    """Slices of ``x`` along ``axis`` picked by an integer tensor; its shape replaces that axis.

    An index outside of 0..size-1 raises ExecutionError when the graph runs. Equal indices add up in the gradient.
    """
    return x.graph.emit("take", (x, indices), axis=_axis(x, axis))


def scatter_add(indices, updates, size: int, axis: int = 0):
    """Zeros of ``size`` along ``axis``, plus each slice of ``updates`` at its index: the adjoint of ``take``."""
    axis = _axis(updates, axis, new_axes=1 - len(indices.shape))
    return indices.graph.emit("scatter_add", (indices, updates), axis=axis, size=size)


def one_hot(indices, classes: int, dtype=f32):
    """1 at the index along a new last axis, 0 elsewhere; all 0 for an index outside of 0..classes-1."""
    # Narrow index types could not count up to every class.
    indices = expand_dims(cast(indices, promote(indices.dtype, i32)), -1)
    shape = indices.shape[:-1] + (classes,)
    grid = indices.graph.emit("iota", (), shape=shape, axis=len(shape) - 1, dtype=indices.dtype)
    return cast(equal(grid, indices), dtype)


# -- contraction and networks ------------------------------------------------------------------------------------------


def matmul(left, right, transpose_left: bool = False, transpose_right: bool = False):
    """numpy's matmul: the last two axes are multiplied, the others broadcast; 1-d operands are vectors.

    ``transpose_left`` and ``transpose_right`` read an operand's last two axes exchanged. Half types accumulate in f32.
    """
    near = left if isinstance(left, TensorMethods) else right
    left, right = as_value(left, near), as_value(right, near)
    dtype = promote(left.dtype, right.dtype)
    left, right = cast(left, dtype), cast(right, dtype)
    given = left, right
    left_vector, right_vector = len(left.shape) == 1, len(right.shape) == 1
    if left_vector:
        left, transpose_left = expand_dims(left, 0), False
    if right_vector:
        right, transpose_right = expand_dims(right, 1), False
    emit = functools.partial(near.graph.emit, transpose_left=transpose_left, transpose_right=transpose_right)
    result = _explained(given, emit, "matmul", (left, right))
    if right_vector:
        result = squeeze(result, -1)
    if left_vector:
        result = squeeze(result, -1 if right_vector else -2)
    return result


def layer_norm(x, weight, bias, epsilon: float = 1e-5):
    """Layer normalisation over the last axis (Ba et al., arXiv:1607.06450), statistics in f32 for half types.

    ``x``: [..., C]; ``weight`` and ``bias``: [C].
    """
    dtype = promote(promote(x.dtype, weight.dtype), bias.dtype)
    operands = tuple(cast(value, dtype) for value in (x, weight, bias))
    return x.graph.emit("layer_norm", operands, epsilon=float(epsilon))


def cross_entropy(logits, labels, ignore_index: int = -100):
    """``-log softmax(logits)[label]`` for each position: logits [..., V], labels integer [...], result [...].

    Positions whose label is ``ignore_index`` give 0 with gradient 0. Any other label outside of 0..V-1 gives NaN.
    The result is f32 for half types.
    """
    logits = logits if logits.dtype.is_float else cast(logits, f32)
    return logits.graph.emit("cross_entropy", (logits, labels), ignore_index=int(ignore_index))


def attention(query, key, value, causal: bool = True, scale: float | None = None):
    """Scaled dot-product attention (Vaswani et al., arXiv:1706.03762, 3.2.1).

    ``query`` [..., T, D], ``key`` [..., S, D], ``value`` [..., S, E]; result [..., T, E]. With ``causal`` the query at
    t sees keys up to t + S - T (aligned at the end). A row that sees no key gives 0. ``scale`` defaults to
    ``1 / sqrt(D)``.
    """
    return attention_with_logsumexp(query, key, value, causal, scale)[0]


def attention_with_logsumexp(query, key, value, causal: bool = True, scale: float | None = None):
    """``attention`` and, for each query, the logsumexp of its scaled scores ([..., T], f32 for half types)."""
    dtype = promote(promote(query.dtype, key.dtype), value.dtype)
    operands = tuple(cast(operand, dtype) for operand in (query, key, value))
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1] or 1) if query.shape else 1.0
    return query.graph.emit("attention", operands, causal=bool(causal), scale=float(scale))


def dropout(x, rate: float, seed, step):
    """``x`` with each element 0 at probability ``rate`` and the rest scaled by ``1 / (1 - rate)``.

    The mask is a function of (seed, step, this operator, element), so the backward pass sees the same one.
    Raises ShapeError unless 0 <= rate < 1.
    """
    if not 0 <= rate < 1:
        raise x.graph.explain(ShapeError(f"dropout rate {rate} is outside of 0 <= rate < 1"), (x,))
    if rate == 0:
        return x
    keep = greater_equal(x.graph.random_uniform(x.shape, seed, step), rate)
    return where(keep, multiply(x, 1.0 / (1.0 - rate)), 0)


def stop_gradient(x):
    """``x``, through which no gradient flows."""
    return x.graph.emit("stop_gradient", (x,))


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


class TensorMethods:
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
