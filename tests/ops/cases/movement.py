"""Operators that move elements and compute nothing."""

import torch
import torch.nn.functional as F
from cases.table import ALL, Input, case, normal

from euler_ir import tensor as T


def movement(name, build, reference, shape, dtypes=("f64",), permuted=False, orders=2):
    for dtype in dtypes:
        case("movement", name, build, reference, Input(shape, dtype, normal, permuted), orders=orders)


MOVES = (
    ("broadcast_to (2,3)", lambda x: T.broadcast_to(x, (2, 3)), lambda x: x.expand(2, 3), (3,)),
    ("broadcast_to (4,2,3)", lambda x: T.broadcast_to(x, (4, 2, 3)), lambda x: x.expand(4, 2, 3), (2, 1)),
    ("broadcast_to (2,)", lambda x: T.broadcast_to(x, (2,)), lambda x: x.expand(2), ()),
    ("broadcast_to (0,3)", lambda x: T.broadcast_to(x, (0, 3)), lambda x: x.expand(0, 3), (1, 3)),
    ("reshape (3,-1)", lambda x: T.reshape(x, 3, -1), lambda x: x.reshape(3, -1), (2, 6)),
    ("reshape ()", lambda x: T.reshape(x, ()), lambda x: x.reshape(()), (1, 1)),
    ("reshape (0,5)", lambda x: T.reshape(x, (0, 5)), lambda x: x.reshape(0, 5), (3, 0)),
    ("reshape (-1,)", lambda x: T.reshape(x, (-1,)), lambda x: x.reshape(-1), ()),
    ("transpose", lambda x: T.transpose(x), lambda x: x.permute(2, 1, 0), (2, 3, 4)),
    ("transpose 1,-1,0", lambda x: T.transpose(x, 1, -1, 0), lambda x: x.permute(1, 2, 0), (2, 3, 4)),
    ("transpose 0-d", lambda x: T.transpose(x), lambda x: x * 1, ()),
    ("transpose T", lambda x: x.T @ x, lambda x: x.T @ x, (1, 1)),
    ("swap_axes", lambda x: T.swap_axes(x, 0, -1), lambda x: x.swapaxes(0, -1), (2, 0, 4)),
    ("expand_dims -1", lambda x: T.expand_dims(x, -1), lambda x: x.unsqueeze(-1), (2, 3)),
    ("expand_dims 0", lambda x: T.expand_dims(x, 0), lambda x: x.unsqueeze(0), ()),
    ("squeeze", lambda x: T.squeeze(x), lambda x: x.squeeze(), (1, 3, 1)),
    ("squeeze -1", lambda x: T.squeeze(x, -1), lambda x: x.squeeze(-1), (1, 3, 1)),
    ("flip", lambda x: T.flip(x), lambda x: x.flip(0, 1), (2, 3)),
    ("flip -1", lambda x: T.flip(x, -1), lambda x: x.flip(-1), (2, 3)),
    ("flip ()", lambda x: T.flip(x, ()), lambda x: x * 1, (2, 3)),
    ("flip 0", lambda x: T.flip(x, 0), lambda x: x.flip(0), (0, 3)),
    ("pad", lambda x: T.pad(x, ((1, 2), (0, 3)), 7), lambda x: F.pad(x, (0, 3, 1, 2), value=7), (2, 3)),
    ("pad empty", lambda x: T.pad(x, ((1, 2), (0, 3))), lambda x: F.pad(x, (0, 3, 1, 2)), (0, 3)),
    ("pad 0-d", lambda x: T.pad(x, ()), lambda x: x * 1, ()),
    ("getitem int", lambda x: x[1], lambda x: x[1], (3, 4)),
    ("getitem negative", lambda x: x[-1, -2], lambda x: x[-1, -2], (3, 4)),
    ("getitem slice", lambda x: x[1:, :-1], lambda x: x[1:, :-1], (3, 4)),
    ("getitem step", lambda x: x[::2, 1::2], lambda x: x[::2, 1::2], (5, 7)),
    ("getitem reverse", lambda x: x[::-1, 5:0:-2], lambda x: x.flip(0)[:, [5, 3, 1]], (3, 7)),
    ("getitem empty", lambda x: x[2:1], lambda x: x[2:1], (3, 4)),
    ("getitem empty reverse", lambda x: x[0:2:-1], lambda x: x[0:0], (3, 4)),
    ("getitem beyond", lambda x: x[1:100, -100:2], lambda x: x[1:100, -100:2], (3, 4)),
    ("getitem none", lambda x: x[None, ..., 0, None], lambda x: x[None, ..., 0, None], (3, 4)),
    ("getitem ellipsis", lambda x: x[...], lambda x: x * 1, ()),
    ("getitem of size 0", lambda x: x[::2], lambda x: x[::2], (0, 2)),
    ("concatenate same", lambda x: T.concatenate([x, x, x], -1), lambda x: torch.cat([x, x, x], -1), (2, 3)),
    ("concatenate one", lambda x: T.concatenate([x], 0), lambda x: torch.cat([x], 0), (2, 3)),
    ("stack", lambda x: T.stack([x, x * 2], -1), lambda x: torch.stack([x, x * 2], -1), (2, 3)),
    ("stack 0-d", lambda x: T.stack([x, x]), lambda x: torch.stack([x, x]), ()),
    ("split", lambda x: T.split(x, 3, -1)[1], lambda x: x.chunk(3, -1)[1], (2, 6)),
    ("split 0", lambda x: T.split(x, 2, 0)[1], lambda x: x.chunk(2, 0)[1], (4, 3)),
    ("iter", lambda x: sum(x), lambda x: x[0] + x[1], (2, 3)),
    ("later", lambda x: x.graph.emit("later", (x,)), lambda x: x * 1, (2, 3)),
)
for _name, _build, _reference, _shape in MOVES:
    movement(_name, _build, _reference, _shape)
    if len(_shape) == 2:
        movement(_name, _build, _reference, _shape, permuted=True)
for _index in (1, 4, 9, 17, 21, 26, 27, 28, 35):
    _name, _build, _reference, _shape = MOVES[_index]
    movement(_name, _build, _reference, _shape, tuple(dtype for dtype in ALL if dtype != "f64"), orders=0)
case(
    "movement",
    "concatenate",
    lambda a, b: T.concatenate([a, b], 0),
    lambda a, b: torch.cat([a, b], 0),
    Input((2, 3), "f64"),
    Input((0, 3), "f64"),
    orders=2,
)
case(
    "movement",
    "concatenate",
    lambda a, b: T.concatenate([a, b], -1),
    lambda a, b: torch.cat([a, b], -1),
    Input((2, 3), "f16"),
    Input((2, 2), "f32"),
)
case(
    "movement",
    "pad -inf",
    lambda x: T.pad(x, ((1, 1),), float("-inf")),
    lambda x: F.pad(x, (1, 1), value=float("-inf")),
    Input((3,), "bf16"),
)


def _dilate(x, low, high, interior, value):
    size = x.shape[0] + max(x.shape[0] - 1, 0) * interior
    inner = torch.full((size,), value, dtype=x.dtype)
    inner[:: interior + 1] = x
    return torch.cat([torch.full((low,), value, dtype=x.dtype), inner, torch.full((high,), value, dtype=x.dtype)])


for _size in (0, 1, 4):
    case(
        "movement",
        "pad interior",
        lambda x: T.pad_with_interior(x, (2,), (1,), (3,), 5),
        lambda x: _dilate(x, 2, 1, 3, 5),
        Input((_size,), "f64"),
        orders=2,
    )
