"""Composite operators of networks: activations over rows, norms, losses."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from cases.table import FLOATS, INTEGERS, Input, case, exponential_bound, fixed, indices, normalization_bound

from euler_ir import tensor as T

for _name, _build, _reference in (
    ("softmax", T.softmax, torch.softmax),
    ("log_softmax", T.log_softmax, torch.log_softmax),
):
    for _shape, _axis in (
        ((7,), 0),
        ((7,), -1),
        ((3, 4), 0),
        ((3, 4), -1),
        ((2, 3, 4), 1),
        ((1,), 0),
        ((3, 0), 1),
        ((0, 3), 1),
        ((33,), 0),
    ):
        for _dtype in ("f32", "f64"):
            case(
                "network",
                f"{_name} axis={_axis}",
                lambda x, f=_build, axis=_axis: f(x, axis),
                lambda x, f=_reference, axis=_axis: f(x, axis),
                Input(_shape, _dtype),
                bound=exponential_bound,
                orders=2,
            )
    _rows = fixed([[1, 2, math.nan], [math.inf, 1, 2], [-math.inf, 1, 2], [-math.inf] * 3, [6e4, 0, -6e4], [0, 0, 0]])
    for _dtype in FLOATS:
        case(
            "network",
            f"{_name} rows",
            lambda x, f=_build: f(x),
            lambda x, f=_reference: f(x, -1),
            Input((4, 9), _dtype),
            bound=exponential_bound,
        )
        case(
            "network",
            f"{_name} edges",
            lambda x, f=_build: f(x),
            lambda x, f=_reference: f(x, -1),
            Input((6, 3), _dtype, _rows),
            bound=exponential_bound,
        )
    case(
        "network",
        f"{_name} int",
        lambda x, f=_build: f(x),
        lambda x, f=_reference: f(x.double(), -1),
        Input((4, 3), "i32"),
        bound=exponential_bound,
        dtype="f32",
    )
for _dtype in FLOATS:
    case(
        "reduction",
        "logsumexp rows that overflow",
        lambda x: T.logsumexp(x, -1),
        lambda x: torch.logsumexp(x, -1),
        Input((6, 3), _dtype, _rows),
        bound=exponential_bound,
    )


def layer_norm_reference(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias)


for _shape in ((4,), (3, 5), (2, 3, 8), (2, 1), (0, 4)):
    for _dtype in FLOATS:
        _width = _shape[-1:]
        case(
            "network",
            "layer_norm",
            T.layer_norm,
            layer_norm_reference,
            Input(_shape, _dtype),
            Input(_width, _dtype),
            Input(_width, _dtype),
            bound=normalization_bound,
            orders=2 if _width != (1,) else 1,
        )
case(
    "network",
    "layer_norm offset rows",
    T.layer_norm,
    layer_norm_reference,
    Input((1, 64), "f32", fixed(1e4 + np.arange(64) * 1e-3)),
    Input((64,)),
    Input((64,)),
    bound=normalization_bound,
)
case(
    "network",
    "layer_norm constant rows",
    T.layer_norm,
    layer_norm_reference,
    Input((2, 9), "f32", fixed(np.full(18, 3.3))),
    Input((9,)),
    Input((9,)),
    bound=normalization_bound,
)
case(
    "network",
    "layer_norm mixed",
    T.layer_norm,
    lambda x, w, b: layer_norm_reference(x.to(w.dtype), w, b),
    Input((3, 4), "bf16"),
    Input((4,), "f32"),
    Input((4,), "f32"),
    bound=normalization_bound,
)


def rms_norm_reference(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


def rms_norm_bound(result, x, weight):
    """A sum of squares, all positive, is off by a part that its length bounds; nothing cancels."""
    return (x.shape[-1] + 8) * np.abs(result)


for _shape in ((4,), (3, 5), (2, 3, 8), (2, 1), (0, 4)):
    for _dtype in FLOATS:
        case(
            "network",
            "rms_norm",
            T.rms_norm,
            rms_norm_reference,
            Input(_shape, _dtype),
            Input(_shape[-1:], _dtype),
            bound=rms_norm_bound,
            orders=2 if _shape[-1:] != (1,) else 1,
        )
for _name, _numbers in (("zeros", np.zeros(9)), ("tiny", np.full(9, 1e-30)), ("huge", np.full(9, 1e18))):
    case(
        "network",
        f"rms_norm {_name}",
        T.rms_norm,
        rms_norm_reference,
        Input((1, 9), "f32", fixed(_numbers)),
        Input((9,)),
        bound=rms_norm_bound,
    )
case(
    "network",
    "rms_norm mixed",
    T.rms_norm,
    lambda x, w: rms_norm_reference(x.to(w.dtype), w),
    Input((3, 4), "bf16"),
    Input((4,), "f32"),
    bound=rms_norm_bound,
)


def cross_entropy_reference(logits, labels):
    """``nan`` for a label that is no class; the ignored ones are 0."""
    targets = labels.reshape(-1).long()
    flat = logits.reshape(len(targets), logits.shape[-1])
    known = (targets == -100) | ((targets >= 0) & (targets < logits.shape[-1]))
    if not flat.numel():
        loss = torch.full(targets.shape, math.nan, dtype=logits.dtype)
        loss = torch.where(targets == -100, torch.zeros_like(loss), loss)
    else:
        loss = F.cross_entropy(flat, torch.where(known, targets, -100), ignore_index=-100, reduction="none")
        loss = torch.where(known, loss, torch.full_like(loss, math.nan))
    return loss.reshape(labels.shape)


for _shape in ((5,), (3, 4), (2, 3, 7), (0, 4), (3, 1), (2, 0)):
    for _dtype in FLOATS:
        case(
            "network",
            "cross_entropy",
            T.cross_entropy,
            cross_entropy_reference,
            Input(_shape, _dtype),
            Input(_shape[:-1], "i64", indices(max(_shape[-1], 1))),
            bound=exponential_bound,
            orders=2,
            dtype="f64" if _dtype == "f64" else "f32",
        )
for _dtype in INTEGERS:
    _labels = [0, 3, 4, 127, 1] if _dtype == "u8" else [0, -100, 4, 127, -1]
    case(
        "network",
        "cross_entropy labels",
        T.cross_entropy,
        cross_entropy_reference,
        Input((5, 4)),
        Input((5,), _dtype, fixed(_labels)),
        bound=exponential_bound,
    )
    case(
        "network",
        "cross_entropy many classes",
        T.cross_entropy,
        cross_entropy_reference,
        Input((3, 300)),
        Input((3,), _dtype, fixed([0, 44, 127])),
        bound=exponential_bound,
    )
case(
    "network",
    "cross_entropy ignored",
    T.cross_entropy,
    cross_entropy_reference,
    Input((3, 4), "f64"),
    Input((3,), "i64", fixed([1, -100, 3])),
    bound=exponential_bound,
    orders=2,
)
case(
    "network",
    "cross_entropy large",
    T.cross_entropy,
    cross_entropy_reference,
    Input((2, 3), "f32", fixed([[1e4, 0, -1e4], [-math.inf, 0, 1]])),
    Input((2,), "i32", fixed([2, 1])),
    bound=exponential_bound,
)
