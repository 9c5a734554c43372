"""Reading and writing at indices that are data."""

import numpy as np
import torch
import torch.nn.functional as F
from cases.table import ALL, NUMBERS, Input, case, fixed, indices, special

from euler_ir import tensor as T


def take_reference(axis):
    return lambda x, i: torch.index_select(x, axis, i.reshape(-1).long()).reshape(
        x.shape[:axis] + i.shape + x.shape[axis + 1 :]
    )


for _shape, _picks, _axis in (
    ((5,), (), 0),
    ((5, 3), (4,), 0),
    ((5, 3), (2, 4), 1),
    ((5, 3), (0,), 0),
    ((4, 1, 2), (3, 2), 0),
    ((2, 3, 4), (6,), -2),
):
    for _dtype, _integer in (("f64", "i64"), ("f32", "i32")):
        case(
            "indexing",
            f"take axis={_axis}",
            lambda x, i, axis=_axis: T.take(x, i, axis),
            take_reference(_axis % len(_shape)),
            Input(_shape, _dtype),
            Input(_picks, _integer, indices(_shape[_axis])),
            orders=2,
        )
for _dtype in ALL:
    case(
        "indexing",
        "take",
        lambda x, i: T.take(x, i),
        take_reference(0),
        Input((21,), _dtype, special),
        Input((9,), "u8", indices(21)),
    )
case(
    "indexing",
    "take permuted",
    lambda x, i: T.take(x, i),
    take_reference(0),
    Input((4, 3), "f64", permuted=True),
    Input((5,), "i8", indices(4)),
    orders=2,
)
case(
    "indexing",
    "getitem tensor",
    lambda x, i: x[i],
    take_reference(0),
    Input((4, 3), "f64"),
    Input((2, 2), "i64", indices(4)),
    orders=2,
)


def scatter_reference(size, axis):
    def reference(i, x):
        shape = x.shape[:axis] + (size,) + x.shape[axis + i.ndim :]
        flat = x.reshape(x.shape[:axis] + (i.numel(),) + x.shape[axis + i.ndim :])
        return torch.zeros(shape, dtype=x.dtype).index_add(axis, i.reshape(-1).long(), flat)

    return reference


def scatter_bound(result, i, x):
    return (i.size + 1) * i.size * np.abs(x).max(initial=0)


for _picks, _shape, _axis, _size in (
    ((6,), (6, 3), 0, 4),
    ((2, 3), (2, 3, 2), 0, 5),
    ((4,), (2, 4), 1, 3),
    ((0,), (0, 3), 0, 4),
    ((), (3,), 0, 4),
    ((4,), (2, 4), -1, 3),
):
    case(
        "indexing",
        f"scatter_add axis={_axis}",
        lambda i, x, size=_size, axis=_axis: T.scatter_add(i, x, size, axis),
        scatter_reference(_size, _axis % (len(_shape) - len(_picks) + 1)),
        Input(_picks, "i64", indices(_size)),
        Input(_shape, "f64"),
        bound=scatter_bound,
        orders=2,
    )
for _dtype in NUMBERS:
    case(
        "indexing",
        "scatter_add",
        lambda i, x: T.scatter_add(i, x, 4),
        scatter_reference(4, 0),
        Input((30,), "i32", indices(4)),
        Input((30, 2), _dtype),
        bound=scatter_bound,
    )


def added_bound(result, y, i, x):
    return (i.size + 1) * (np.abs(y).max() + i.size * np.abs(x).max())


for _dtype in (each for each in NUMBERS if each not in ("f16", "bf16")):
    case(
        "indexing",
        "index_add",
        lambda y, i, x: y.graph.emit("index_add", (y, i, x), axis=0),
        lambda y, i, x: y + scatter_reference(4, 0)(i, x),
        Input((4, 2), _dtype),
        Input((30,), "i32", indices(4)),
        Input((30, 2), _dtype),
        bound=added_bound,
    )
case(
    "indexing",
    "index_add axis=1",
    lambda y, i, x: y.graph.emit("index_add", (y, i, x), axis=1),
    lambda y, i, x: y.index_add(1, i, x),
    Input((2, 5, 3), "f64"),
    Input((4,), "i64", indices(5)),
    Input((2, 4, 3), "f64"),
    bound=added_bound,
    orders=2,
)
case(
    "indexing",
    "scatter_add bf16 ones",
    lambda i, x: T.scatter_add(i, x, 2),
    lambda i, x: torch.tensor([0, 600]).to(x.dtype),
    Input((600,), "i32", fixed(np.ones(600))),
    Input((600,), "bf16", fixed(np.ones(600))),
)


def written(axis):
    def reference(x, update, start):
        result = x.clone()
        result.narrow(axis, int(start), update.shape[axis]).copy_(update)
        return result

    return reference


for _shape, _sizes, _axis, _start in (
    ((5,), (2,), 0, 3),
    ((4, 6), (4, 1), -1, 0),
    ((2, 3, 7, 4), (2, 3, 1, 4), 2, 6),
    ((3, 4, 5), (3, 2, 5), 1, 1),
    ((4, 3), (4, 3), 0, 0),
    ((4, 3), (0, 3), 0, 2),
    ((0, 3), (0, 2), 1, 1),
):
    for _integer in ("i64", "u8"):
        case(
            "indexing",
            f"dynamic_update_slice axis={_axis}",
            lambda x, update, start, axis=_axis: T.dynamic_update_slice(x, update, start, axis),
            written(_axis % len(_shape)),
            Input(_shape, "f64"),
            Input(_sizes, "f64"),
            Input((), _integer, fixed([_start])),
            orders=2,
        )


def written_by_row(axis):
    def reference(x, update, start):
        result = x.clone()
        for row in np.ndindex(*start.shape):
            result[row] = written(axis - start.ndim)(x[row], update[row], start[row])
        return result

    return reference


for _shape, _sizes, _axis, _starts in (
    ((3, 5), (3, 2), 1, [3, 0, 2]),
    ((2, 3, 7, 4), (2, 3, 1, 4), 2, [6, 0]),
    ((2, 3, 7, 4), (2, 3, 2, 4), 2, [[5, 0, 3], [1, 1, 4]]),
    ((4, 5, 33), (4, 5, 20), -1, [13, 0, 1, 12]),
    ((2, 4), (2, 0), 1, [4, 0]),
    ((0, 4), (0, 2), 1, []),
):
    for _integer in ("i64", "u8"):
        case(
            "indexing",
            f"dynamic_update_slice axis={_axis}, starts by row",
            lambda x, update, start, axis=_axis: T.dynamic_update_slice(x, update, start, axis),
            written_by_row(_axis % len(_shape)),
            Input(_shape, "f64"),
            Input(_sizes, "f64"),
            Input(np.shape(_starts), _integer, fixed(_starts)),
            orders=2,
        )
for _dtype in ALL:
    case(
        "indexing",
        "dynamic_update_slice",
        lambda x, update, start: T.dynamic_update_slice(x, update, start),
        written(0),
        Input((21,), _dtype, special),
        Input((9,), _dtype),
        Input((), "i8", fixed([7])),
    )
for _classes, _dtype in ((5, "i64"), (5, "i32"), (300, "u8"), (300, "i8")):
    case(
        "indexing",
        f"one_hot {_classes}",
        lambda i, n=_classes: T.one_hot(i, n),
        lambda i, n=_classes: (i[..., None].long() == torch.arange(n)).to(torch.float32),
        Input((12,), _dtype, special),
        dtype="f32",
    )
case(
    "indexing",
    "one_hot 0-d",
    lambda i: T.one_hot(i, 3, "f16"),
    lambda i: F.one_hot(i, 3).to(torch.float16),
    Input((), "i64", indices(3)),
)
