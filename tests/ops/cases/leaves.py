"""Values that come from no operand."""

import numpy as np
import torch
from cases.table import Input, case

import euler_ir as ei


def leaf(name, build, reference, **rest):
    case("leaf", name, build, lambda: torch.as_tensor(reference()), **rest)


leaf("constant float", lambda: ei.constant(2.5), lambda: 2.5)
leaf("constant int", lambda: ei.constant([1, 2, 3]), lambda: [1, 2, 3])
leaf("constant bool", lambda: ei.constant(True), lambda: True)
leaf(
    "constant array",
    lambda: ei.constant(np.array([[0.1, 1e-300]])),
    lambda: torch.tensor([[0.1, 1e-300]], dtype=torch.float64),
)
leaf("constant empty", lambda: ei.constant(np.zeros((0, 3), np.float32)), lambda: torch.zeros(0, 3), dtype="f32")
leaf("full", lambda: ei.full((2, 3), 7, "i32"), lambda: torch.full((2, 3), 7, dtype=torch.int32))
leaf("zeros", lambda: ei.zeros((0, 2)), lambda: torch.zeros(0, 2, dtype=torch.float32), dtype="f32")
leaf("ones", lambda: ei.ones((), "bf16"), lambda: torch.ones((), dtype=torch.bfloat16))
leaf("arange", lambda: ei.arange(5), lambda: torch.arange(5))
leaf("arange", lambda: ei.arange(2, 11, 3), lambda: torch.arange(2, 11, 3))
leaf("arange", lambda: ei.arange(5, 0, -2), lambda: torch.arange(5, 0, -2))
leaf("arange", lambda: ei.arange(3, 3), lambda: torch.arange(3, 3))
leaf("arange", lambda: ei.arange(0.0, 2.0, 0.5), lambda: torch.arange(0.0, 2.0, 0.5, dtype=torch.float32), dtype="f32")
leaf("arange", lambda: ei.arange(4, dtype="f16"), lambda: torch.arange(4, dtype=torch.float16))
leaf("iota", lambda: ei.iota((2, 3), 1), lambda: torch.arange(3).expand(2, 3))
leaf("iota", lambda: ei.iota((2, 3), 0, "i32"), lambda: torch.arange(2, dtype=torch.int32)[:, None].expand(2, 3))
leaf("iota", lambda: ei.iota((0, 3), 1), lambda: torch.arange(3).expand(0, 3))
leaf(
    "parameter",
    lambda: ei.parameter("p", (2, 3), ei.initializers.Zeros()),
    lambda: torch.zeros(2, 3, dtype=torch.float32),
    dtype="f32",
)
leaf("state", lambda: ei.state("s", (2,), dtype="i64"), lambda: torch.zeros(2, dtype=torch.int64))
case("leaf", "input", lambda x: x, lambda x: x, Input((2, 3), "f16"))
