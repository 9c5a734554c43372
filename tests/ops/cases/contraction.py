"""Matrix products."""

import numpy as np
import torch
from cases.table import Input, case, contraction

from euler_ir import tensor as T

for _left, _right in (
    ((2, 3), (3, 4)), ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((1, 1), (1, 1)), ((2, 0), (0, 3)),
    ((0, 3), (3, 2)), ((2, 3), (3, 0)), ((5, 2, 0), (0, 3)), ((0, 2, 3), (3, 4)), ((2, 37), (37, 3)),
):  # fmt: skip
    for _dtype in ("f32", "f64"):
        case(
            "contraction",
            "matmul",
            T.matmul,
            torch.matmul,
            Input(_left, _dtype),
            Input(_right, _dtype),
            bound=contraction,
            orders=2,
        )
for _tl in (False, True):
    for _tr in (False, True):
        for _batch_left, _batch_right in (((), ()), ((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (3,))):
            _left = _batch_left + ((4, 3) if _tl else (3, 4))
            _right = _batch_right + ((5, 4) if _tr else (4, 5))
            case(
                "contraction",
                f"matmul{' left^T' if _tl else ''}{' right^T' if _tr else ''}",
                lambda a, b, tl=_tl, tr=_tr: T.matmul(a, b, tl, tr),
                lambda a, b, tl=_tl, tr=_tr: (a.mT if tl else a) @ (b.mT if tr else b),
                Input(_left, "f64"),
                Input(_right, "f64"),
                bound=lambda y, a, b: 5 * np.abs(a).max() * np.abs(b).max() * 4,
                orders=2,
            )
case(
    "contraction",
    "matmul permuted",
    T.matmul,
    torch.matmul,
    Input((3, 4), "f32", permuted=True),
    Input((4, 2), "f32", permuted=True),
    bound=contraction,
)
case(
    "contraction",
    "matmul same",
    lambda x: x @ x.T,
    lambda x: x @ x.T,
    Input((3, 4), "f64"),
    bound=lambda y, x: 20 * np.abs(x).max() ** 2,
    orders=2,
)
case("contraction", "matmul array", lambda x: np.eye(3, dtype=np.float32) @ x, lambda x: x * 1, Input((3, 2)))
for _dtype in ("f16", "bf16", "i32", "i64", "i8", "u8"):
    case(
        "contraction",
        "matmul",
        T.matmul,
        torch.matmul,
        Input((3, 40), _dtype),
        Input((40, 5), _dtype),
        bound=contraction,
    )
case(
    "contraction",
    "matmul mixed",
    T.matmul,
    lambda a, b: a.to(torch.float32) @ b.to(torch.float32) if b.dtype != torch.float64 else a @ b,
    Input((3, 4), "f16"),
    Input((4, 5), "f32"),
    bound=contraction,
    dtype="f32",
)
