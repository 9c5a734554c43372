"""Choosing by a mask, and changing the type."""

import math

import numpy as np
import torch
from cases.table import ALL, FLOATS, INTEGERS, TORCH, Input, by_python, case, fixed, levels, normal, special

from euler_ir import tensor as T

for _shapes in (((), (), ()), ((3,), (), (2, 3)), ((2, 1), (1, 3), ()), ((0,), (0,), (1,)), ((2, 3), (3,), (2, 1))):
    _condition, _chosen, _other = _shapes
    case(
        "where",
        "where",
        T.where,
        torch.where,
        Input(_condition, "bool"),
        Input(_chosen, "f64"),
        Input(_other, "f64"),
        orders=2,
    )
for _dtype in ALL:
    case(
        "where",
        "where",
        T.where,
        torch.where,
        Input((21,), "bool"),
        Input((21,), _dtype, special),
        Input((21,), _dtype),
    )
case("where", "where mixed", T.where, torch.where, Input((4,), "bool"), Input((4,), "f16"), Input((4,), "f32"))
case("where", "where scalars", lambda c: T.where(c, 1, 0), lambda c: torch.where(c, 1, 0), Input((4,), "bool"))
case(
    "where",
    "where scalar",
    lambda c, x: T.where(c, x, float("-inf")),
    lambda c, x: torch.where(c, x, float("-inf")),
    Input((4,), "bool"),
    Input((4,), "bf16"),
)
case(
    "where",
    "where arrays",
    lambda c: T.where(c, 2, np.array([0.5, 1.5, 2.5], np.float32)),
    lambda c: torch.where(c, 2, torch.tensor([0.5, 1.5, 2.5])),
    Input((3,), "bool"),
)
case(
    "where",
    "where condition",
    lambda c, x, y: T.where(c, x, y),
    lambda c, x, y: torch.where(c != 0, x, y),
    Input((6,), "i32", levels),
    Input((6,)),
    Input((6,)),
)
case(
    "where",
    "where same",
    lambda c, x: T.where(c, x, x),
    lambda c, x: x * 1,
    Input((4,), "bool"),
    Input((4,), "f64"),
    orders=2,
)


def saturate(target):
    """Truncation that stays at the ends of the range; NaN gives 0 (LLVM's fptosi.sat). Undefined in C and torch."""
    info = torch.iinfo(target)

    def of_scalar(value):
        if math.isnan(value):
            return 0
        return info.max if value >= info.max else info.min if value <= info.min else int(value)

    return by_python(of_scalar, result=target)


for _source in ALL:
    for _target in ALL:
        if _source in FLOATS and _target in INTEGERS:
            _reference = saturate(TORCH[_target])
        else:
            _reference = lambda x, target=TORCH[_target]: x.to(target)  # noqa: E731
        for _make in (normal, special):
            case(
                "cast",
                f"cast to {_target}",
                lambda x, target=_target: T.cast(x, target),
                _reference,
                Input((21,), _source, _make),
            )
ENDS = [end + offset for end in (0, 127, -128, 255, 2**31 - 1, -(2**31), 2.0**63) for offset in (-1, -0.5, 0, 0.5, 1)]
for _source in FLOATS:
    for _target in INTEGERS:
        case(
            "cast",
            f"cast at the ends of {_target}",
            lambda x, target=_target: T.cast(x, target),
            saturate(TORCH[_target]),
            Input((len(ENDS),), _source, fixed(ENDS)),
        )
case(
    "cast",
    "cast f32 to f16 and back",
    lambda x: T.cast(T.cast(x, "f16"), "f32"),
    lambda x: x.to(torch.float16).to(torch.float32),
    Input((21,)),
)
