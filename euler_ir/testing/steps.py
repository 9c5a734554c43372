"""One function of the DSL applied to values that a drawing has: what is drawn of every operator."""

from __future__ import annotations

from euler_ir import tensor as T
from euler_ir.dtypes import DTYPES, bf16, f16, f32, f64, i8, i32, i64, u8
from euler_ir.errors import EulerError
from euler_ir.graph import Value
from euler_ir.testing.drawing import MOST_ELEMENTS, SIZES, Drawing

_UNARY = (
    T.negative, T.absolute, T.sign, T.floor, T.exp, T.log, T.sqrt, T.rsqrt, T.sin, T.cos, T.tanh, T.erf, T.erfc,
    T.sigmoid, T.gelu, T.relu, T.isnan, T.logical_not, T.stop_gradient, T.silu, lambda x: T.gelu(x, "none"),
    T.normal_cdf, T.normal_pdf, T.normal_cdf_tanh,
)  # fmt: skip
_BINARY = (
    T.add, T.subtract, T.multiply, T.divide, T.floor_divide, T.remainder, T.power, T.maximum, T.minimum, T.equal,
    T.not_equal, T.less, T.less_equal, T.greater, T.greater_equal, T.logical_and, T.logical_or, T.logical_xor,
)  # fmt: skip
_REDUCTIONS = (T.sum, T.prod, T.max, T.min, T.mean, T.logsumexp)
MOST_FEATURES = 12
"""Width of the layers of a transformer: their weights have four times its square."""


def apply(draw: Drawing) -> None:
    """Apply one function; what it refuses, and what would be large, is left out.

    The simplest choice is none: the last value takes the place of its result, and others find theirs where it was.
    """
    if not draw.number(0, 15):
        draw.values.append(draw.values[-1])
        return
    x = draw.value()
    step = draw.choose(_ALONG_AN_AXIS if x.ndim and draw.chance(2) else _ANYWHERE)
    with draw.graph:
        try:
            results = step(draw, x)
        except EulerError:
            return
    for result in results if isinstance(results, (tuple, list)) else (results,):
        if result is not None and result.size <= MOST_ELEMENTS:
            draw.values.append(result)


# -- elementwise -------------------------------------------------------------------------------------------------------


def unary(draw: Drawing, x: Value):
    return draw.choose(_UNARY)(x)


def binary(draw: Drawing, x: Value):
    operands = (x, draw.partner(x.shape))
    return draw.choose(_BINARY)(*(operands if draw.chance(2) else operands[::-1]))


def with_number(draw: Drawing, x: Value):
    return draw.choose(_BINARY)(x, draw.choose((0, 1, 2, -1, 0.5, 3, 100)))


def beside_itself(draw: Drawing, x: Value):
    """``x`` and itself at other places, which one loop cannot always make together."""
    other = T.flip(x, draw.axes(x))
    if x.ndim > 1 and x.shape[0] == x.shape[-1] and draw.chance(2):
        other = T.swap_axes(other, 0, -1)
    return draw.choose((T.add, T.subtract, T.maximum))(x, other)


def beside_its_reduction(draw: Drawing, x: Value):
    axes = draw.axes(x)
    whole = draw.choose((T.max, T.min, T.sum, T.prod))(x, axes, keepdims=True)
    if draw.chance(3):
        x = T.cast(x, draw.choose((f64, f16, i8)))
    return draw.choose((T.subtract, T.multiply, T.maximum))(x, T.flip(whole) if draw.chance(3) else whole)


def where(draw: Drawing, x: Value):
    return T.where(T.less(x, draw.partner(x.shape)), x, draw.partner(x.shape))


def cast(draw: Drawing, x: Value):
    return T.cast(x, draw.choose(list(DTYPES.values())))


# -- reductions and scans ----------------------------------------------------------------------------------------------


def reduce(draw: Drawing, x: Value):
    return draw.choose(_REDUCTIONS)(x, draw.axes(x), keepdims=draw.chance(2))


def arg(draw: Drawing, x: Value):
    return draw.choose((T.argmax, T.argmin))(x, draw.choose((None, *range(-x.ndim, x.ndim))))


def along_axis(draw: Drawing, x: Value):
    function = draw.choose((T.softmax, T.log_softmax, T.cumsum, lambda x, axis: T.cumsum(x, axis, reverse=True)))
    return function(x, draw.number(-x.ndim, x.ndim - 1))


# -- movements ---------------------------------------------------------------------------------------------------------


def reshape(draw: Drawing, x: Value):
    sizes = [size for size in x.shape for size in ([2, size // 2] if size and size % 2 == 0 else [size])]
    while len(sizes) > 1 and draw.chance(2):
        at = draw.number(0, len(sizes) - 2)
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    return T.reshape(x, tuple(sizes) + (1,) * draw.number(0, 1))


def transpose(draw: Drawing, x: Value):
    axes = list(range(x.ndim))
    return T.transpose(x, *(axes.pop(draw.number(0, len(axes) - 1)) for _ in x.shape))


def broadcast(draw: Drawing, x: Value):
    shape = tuple(draw.choose((2, 3)) if size == 1 and draw.chance(2) else size for size in x.shape)
    return T.broadcast_to(x, (draw.choose((1, 2, 5)),) * draw.number(0, 1) + shape)


def index(draw: Drawing, x: Value):
    parts = []
    for size in x.shape:
        start, stop = draw.number(-size - 1, size), draw.number(-size - 1, size)
        parts.append(slice(start, stop, draw.choose((1, 1, 2, -1, -3))))
        if size and draw.chance(3):
            parts[-1] = draw.choose((draw.number(-size, size - 1), slice(None, None, -1)))
    return x[tuple(parts[: draw.number(0, len(parts))])]


def flip(draw: Drawing, x: Value):
    return T.flip(x, draw.axes(x))


def pad(draw: Drawing, x: Value):
    low, high, interior = ([draw.number(0, 2) for _ in x.shape] for _ in range(3))
    return T.pad_with_interior(x, tuple(low), tuple(high), tuple(interior), draw.choose((0, 1, 5)))


def join(draw: Drawing, x: Value):
    parts = [x, *(value for value in draw.values[-4:] if value.shape == x.shape and draw.chance(2)), x[:2]]
    if draw.chance(2):
        return T.stack(parts[:-1], draw.number(0, x.ndim))
    axis = draw.number(0, x.ndim - 1) if len(parts) == 2 else 0
    joined = T.concatenate(parts, axis)
    return joined[(slice(None),) * axis + (slice(draw.number(0, joined.shape[axis]), None),)]


def split(draw: Drawing, x: Value):
    axis = draw.number(0, x.ndim - 1)
    return T.split(x, draw.choose([n for n in (1, 2, 3, 4) if x.shape[axis] % n == 0]), axis)


def later(draw: Drawing, x: Value):
    """What rematerialization puts before values that are computed again."""
    return x.graph.emit("later", (x,))


# -- indexing ----------------------------------------------------------------------------------------------------------


def take(draw: Drawing, x: Value):
    axis = draw.number(0, x.ndim - 1)
    return T.take(x, draw.positions(x.shape[axis], draw.shape()[:2]), axis)


def scatter(draw: Drawing, x: Value):
    axis = draw.number(0, x.ndim)
    count = draw.number(0, x.ndim - axis)
    size = draw.choose((1, 2, 5))
    scattered = T.scatter_add(draw.positions(size, x.shape[axis : axis + count]), x, size, axis)
    return scattered + draw.partner(scattered.shape) if draw.chance(3) else scattered


def index_add(draw: Drawing, x: Value):
    axis = draw.number(0, x.ndim - 1)
    count = draw.choose(draw.sizes)
    updates = draw.leaf(x.shape[:axis] + (count,) + x.shape[axis + 1 :], x.dtype)
    return x.graph.emit("index_add", (x, draw.positions(x.shape[axis], (count,)), updates), axis=axis)


def write(draw: Drawing, x: Value):
    """A slice written at a place that is given, or at one for each row, and often kept in what it was written into."""
    axis = draw.number(0, x.ndim - 1)
    size = draw.number(0, x.shape[axis])
    update = draw.leaf(x.shape[:axis] + (size,) + x.shape[axis + 1 :], x.dtype)
    starts = draw.positions(x.shape[axis] - size + 1, x.shape[: draw.number(0, axis)])
    result = T.dynamic_update_slice(x, update, starts, axis)
    graph = draw.graph
    if x in (*graph.parameters, *graph.states) and x.op.attributes["name"] not in graph.updates:
        graph.set_update(x, result)
    return result


def one_hot(draw: Drawing, x: Value):
    return T.one_hot(T.remainder(T.cast(x, i32), 3), 4)


# -- products and networks ---------------------------------------------------------------------------------------------


def matmul(draw: Drawing, x: Value):
    left, right, inner = draw.chance(2), draw.chance(2), x.shape[-1]
    if left and x.ndim > 1:
        inner = x.shape[-2]
    columns = draw.choose((*draw.sizes, x.shape[-1]))
    batch = tuple(1 if draw.chance(3) else size for size in x.shape[:-2][draw.number(0, 2) :])
    shape = (columns, inner) if right else (inner, columns)
    fitting = [value for value in draw.values if value.shape[-2:] == shape and value.shape[:-2] in ((), batch)]
    other = draw.choose(fitting) if fitting and draw.chance(2) else draw.leaf(batch + shape, x.dtype)
    return T.matmul(x, other, transpose_left=left and x.ndim > 1, transpose_right=right)


def norm(draw: Drawing, x: Value):
    weight = draw.leaf(x.shape[-1:], x.dtype)
    return T.rms_norm(x, weight) if draw.chance(2) else T.layer_norm(x, weight, draw.leaf(x.shape[-1:], x.dtype))


def cross_entropy(draw: Drawing, x: Value):
    x = x if x.shape[-1] else T.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
    labels = draw.positions(x.shape[-1], x.shape[:-1])
    ignored = draw.choose((-100, 0))
    return T.cross_entropy(x, T.where(T.equal(labels, 1), ignored, labels), ignore_index=ignored)


def attention(draw: Drawing, x: Value):
    query, key, value = _heads(draw, x)
    visible_from = _visible_from(draw, query, key) if draw.chance(3) else None
    results = T.attention_with_logsumexp(query, key, value, draw.chance(2), visible_from=visible_from)
    return results[0 if draw.chance(2) else slice(None)]


def attention_gradient(draw: Drawing, x: Value):
    """The gradient by itself, of a logsumexp that is not that of its scores."""
    operands = query, key, value = _heads(draw, x)
    wide = f32 if query.dtype.is_half else query.dtype
    rows = [draw.leaf(query.shape[:-1], wide) for _ in range(2)]
    d_output = draw.leaf((*query.shape[:-1], value.shape[-1]), query.dtype)
    operands = (*operands, rows[0], d_output, rows[1])
    if draw.chance(3):
        operands += (T.broadcast_to(T.cast(_visible_from(draw, query, key), i64), query.shape[:-1]),)
    return x.graph.emit("attention_gradient", operands, causal=draw.chance(2), scale=0.5)


def _heads(draw: Drawing, x: Value) -> tuple[Value, Value, Value]:
    """Queries made of ``x``, keys and values; a head of these may belong to several of queries."""
    query = x if x.ndim > 1 else T.reshape(x, 1, x.size)
    length, depth, leading = draw.choose(SIZES[:6]), query.shape[-1], query.shape[:-2]
    if leading and draw.chance(2):
        heads = [count for count in range(1, leading[-1] + 1) if leading[-1] % count == 0]
        leading = (*leading[:-1], draw.choose(heads or leading[-1:]))
    key = draw.leaf((*leading, length, depth), x.dtype)
    return query, key, draw.leaf((*leading, length, draw.choose((depth, depth, 3))), x.dtype)


def _visible_from(draw: Drawing, query: Value, key: Value) -> Value:
    """Positions among the keys and one more, of each query or of those of all heads."""
    shape = query.shape[:-1]
    if len(shape) > 1 and draw.chance(2):
        shape = (*shape[:-2], 1, shape[-1])
    return draw.positions(key.shape[-2] + 1, shape)


def transformer_layer(draw: Drawing, x: Value):
    """A layer of GPT-2 over ``x``, rows of features: norm, attention of heads, norm, two products, residuals."""
    dtype = x.dtype if x.dtype.is_float else f32
    width = draw.choose((4, 6, MOST_FEATURES))
    rows = x.size // width
    x = T.reshape(T.cast(x, dtype), (-1,))[: rows * width].reshape((rows, width))
    heads = draw.choose((1, 2))
    normed = T.layer_norm(x, draw.leaf((width,), dtype), draw.leaf((width,), dtype))
    projected = T.matmul(normed, draw.leaf((width, 3 * width), dtype)) + draw.leaf((3 * width,), dtype)
    split = T.transpose(T.reshape(projected, (rows, 3, heads, width // heads)), 1, 2, 0, 3)
    mixed = T.attention(split[0], split[1], split[2], causal=draw.chance(2))
    x = x + T.matmul(T.reshape(T.transpose(mixed, 1, 0, 2), (rows, width)), draw.leaf((width, width), dtype))
    normed = T.layer_norm(x, draw.leaf((width,), dtype), draw.leaf((width,), dtype))
    hidden = T.gelu(T.matmul(normed, draw.leaf((width, 2 * width), dtype)) + draw.leaf((2 * width,), dtype))
    return x + T.matmul(hidden, draw.leaf((2 * width, width), dtype))


# -- what reads nothing ------------------------------------------------------------------------------------------------


def randomness(draw: Drawing, x: Value):
    step = draw.choose((3, T.cast(x, i64) if x.shape == () else 4))
    kind = draw.choose((draw.graph.random_uniform, draw.graph.random_normal))
    return kind(draw.shape(), 5, step, draw.choose((f32, f64, f16, bf16)))


def dropout(draw: Drawing, x: Value):
    return T.dropout(x, 0.25, 7, 1)


def grid(draw: Drawing, x: Value):
    shape = (draw.choose(draw.sizes), *draw.shape()[1:])
    dtype = draw.choose((f32, i32, i64, u8))
    return draw.graph.emit("iota", (), shape=shape, axis=draw.number(0, len(shape) - 1), dtype=dtype)


def another_leaf(draw: Drawing, x: Value) -> None:
    draw.leaf()


_ANYWHERE = (
    unary, unary, unary, unary, binary, binary, binary, with_number, where, cast, cast, reduce, reshape, transpose,
    broadcast, pad, scatter, one_hot, attention, randomness, dropout, another_leaf, beside_itself,
    beside_its_reduction, later, transformer_layer,
)  # fmt: skip
_ALONG_AN_AXIS = (
    reduce, reduce, arg, along_axis, along_axis, reshape, transpose, index, index, flip, pad, join, split, take,
    scatter, index_add, write, matmul, matmul, norm, cross_entropy, attention, attention_gradient, grid,
    beside_itself, beside_itself, beside_its_reduction, beside_its_reduction, beside_its_reduction,
)  # fmt: skip
