"""Reductions and running ones."""

import math

import numpy as np
import torch
from cases.table import (
    ALL, FLOATS, INTEGERS, Input, case, exact, exponential_bound, fixed, levels, normal, product_bound,
    running_bound, special, summation,
)  # fmt: skip

from euler_ir import tensor as T

AXES = (
    ((), None), ((1,), None), ((7,), 0), ((7,), -1), ((3, 4), None), ((3, 4), 0), ((3, 4), -1), ((3, 4), (0, -1)),
    ((2, 3, 4), (0, 2)), ((2, 3, 4), (-2,)), ((2, 3, 4), ()), ((1, 5), 0), ((0, 3), 1), ((33,), 0),
)  # fmt: skip
EMPTY = (((0,), None), ((3, 0), 1), ((3, 4, 0, 5), (0, 2)))


def all_axes(x, axes):
    return tuple(range(x.ndim)) if axes is None else axes


def fold_axes(function):
    """A torch reduction of one axis applied to several."""

    def reference(x, axes, keepdims=False):
        axes = (axes,) if isinstance(axes, int) else all_axes(x, axes)
        result = x
        for axis in sorted((axis % max(x.ndim, 1) for axis in axes), reverse=True):
            result = function(result, axis)
        shape = [1 if axis in [a % max(x.ndim, 1) for a in axes] else size for axis, size in enumerate(x.shape)]
        return result.reshape(shape) if keepdims else result

    return reference


def reduction(name, build, reference, dtypes, bound, empty, make=normal, orders=2, edges=True, **rest):
    for shape, axes in AXES + (EMPTY if empty else ()):
        for keepdims in (False, True):
            case(
                "reduction",
                f"{name} axes={axes}{' keepdims' if keepdims else ''}".replace(", ", ","),
                lambda x, axes=axes, keep=keepdims: build(x, axes, keep),
                lambda x, axes=axes, keep=keepdims: reference(x, axes, keep),
                Input(shape, "f64" if shape == (2, 3, 4) else dtypes[0], make),
                bound=bound(axes),
                orders=orders,
                **rest,
            )
    case(
        "reduction",
        f"{name} axes=0",
        lambda x: build(x, 0, False),
        lambda x: reference(x, 0, False),
        Input((3, 5), dtypes[0], make, permuted=True),
        bound=bound(0),
        **rest,
    )
    for dtype in dtypes[1:]:
        case(
            "reduction",
            f"{name} axes=-1",
            lambda x: build(x, -1, False),
            lambda x: reference(x, -1, False),
            Input((4, 9), dtype, make),
            bound=bound(-1),
            **rest,
        )
    for dtype in FLOATS if edges else ():
        # Rows of one NaN, one infinity or two of opposite signs among ordinary numbers.
        rows = [[1, math.nan, 2], [math.nan, 1, 2], [1, 2, math.nan], [math.inf, 1, 2], [-math.inf, 1, math.inf]]
        rows += [[-math.inf, -math.inf, -math.inf], [0.0, 0.0, 2.0], [math.inf, math.inf, 1], [1, 2, -math.inf]]
        case(
            "reduction",
            f"{name} edges",
            lambda x: build(x, -1, False),
            lambda x: reference(x, -1, False),
            Input((9, 3), dtype, fixed(rows)),
            bound=bound(-1),
            **rest,
        )


def mean_bound(axes):
    def bound(result, x):
        return summation(axes, max(x.size // max(np.size(result), 1), 1))(result, x)

    return bound


reduction(
    "sum",
    T.sum,
    lambda x, axes, keep: torch.sum(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    summation,
    True,
)
reduction(
    "mean",
    T.mean,
    lambda x, axes, keep: torch.mean(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    mean_bound,
    True,
)
reduction(
    "max",
    T.max,
    lambda x, axes, keep: torch.amax(x, all_axes(x, axes), keep) if axes != () else x * 1,
    ALL,
    lambda axes: exact,
    False,
    orders=1,
    signed_zeros=False,
)
reduction(
    "min",
    T.min,
    lambda x, axes, keep: torch.amin(x, all_axes(x, axes), keep) if axes != () else x * 1,
    ALL,
    lambda axes: exact,
    False,
    orders=1,
    signed_zeros=False,
)
reduction("prod", T.prod, fold_axes(torch.prod), FLOATS, lambda axes: product_bound, True)
reduction(
    "logsumexp",
    T.logsumexp,
    lambda x, axes, keep: torch.logsumexp(x, all_axes(x, axes), keep) if axes != () else x * 1,
    FLOATS,
    lambda axes: exponential_bound,
    True,
)
for _dtype in INTEGERS + ("bool",):
    for _name, _reference in (("sum", torch.sum), ("prod", torch.prod)):
        for _make in (normal, special):
            case(
                "reduction",
                _name,
                lambda x, f=getattr(T, _name): f(x, -1),
                lambda x, f=_reference: f(x, -1),
                Input((3, 7), _dtype, _make),
            )
    case(
        "reduction",
        "mean",
        lambda x: T.mean(x),
        lambda x: torch.mean(x.double()),
        Input((3, 7), _dtype),
        bound=mean_bound(None),
        dtype="f32",
    )
    case(
        "reduction",
        "logsumexp int",
        lambda x: T.logsumexp(x),
        lambda x: torch.logsumexp(x.double(), 0),
        Input((7,), _dtype),
        bound=exponential_bound,
        dtype="f32",
    )
case(
    "reduction",
    "sum same",
    lambda x: T.sum(x + x),
    lambda x: torch.sum(x + x),
    Input((4,), "f64"),
    bound=lambda y, x: 8 * np.abs(x).sum(),
    orders=2,
)
case(
    "reduction",
    "sum bf16 ones",
    lambda x: T.sum(x),
    lambda x: torch.sum(x),
    Input((1000,), "bf16", fixed(np.ones(1000))),
    bound=exact,
)
case(
    "reduction",
    "mean f16 no overflow",
    lambda x: T.mean(x),
    lambda x: torch.mean(x),
    Input((4096,), "f16", fixed(np.full(4096, 100))),
    bound=exact,
)
case(
    "reduction",
    "prod zeros",
    lambda x: T.prod(x, 1),
    lambda x: torch.prod(x, 1),
    Input((3, 3), "f64", fixed([[0, 2, 3], [0, 0, 3], [1, 2, 3]])),
    orders=1,
)

for _name, _reference in (("argmax", torch.argmax), ("argmin", torch.argmin)):
    for _shape, _axis in (
        ((), None),
        ((1,), 0),
        ((7,), None),
        ((3, 4), None),
        ((3, 4), 0),
        ((3, 4), -1),
        ((2, 3, 4), 1),
        ((0, 3), 1),
    ):
        for _keep in (False, True):
            case(
                "reduction",
                f"{_name} axis={_axis}{' keepdims' if _keep else ''}",
                lambda x, f=getattr(T, _name), axis=_axis, keep=_keep: f(x, axis, keep),
                lambda x, f=_reference, axis=_axis, keep=_keep: f(x, axis, keep),
                Input(_shape),
            )
    for _dtype in ALL:

        def _first_extremum(x, largest=_name == "argmax"):
            """The least index of the extremum or of the first NaN; torch leaves the choice among ties open."""
            return torch.from_numpy(np.asarray((np.argmax if largest else np.argmin)(x.float().numpy(), -1)))

        _ties = Input((5, 9), _dtype, levels)
        case("reduction", f"{_name} ties", lambda x, f=getattr(T, _name): f(x, -1), _first_extremum, _ties)
        if _dtype in FLOATS:
            _rows = fixed(
                [[1, math.nan, math.nan], [math.nan, 1, 2], [math.inf, 1, math.inf], [-math.inf, -math.inf, 1]]
            )
            _edges = Input((4, 3), _dtype, _rows)
            case("reduction", f"{_name} edges", lambda x, f=getattr(T, _name): f(x, -1), _first_extremum, _edges)

for _shape, _axis in (((7,), 0), ((7,), -1), ((3, 4), 0), ((3, 4), -1), ((2, 0, 3), 1), ((1, 3), 0), ((0,), 0)):
    for _reverse in (False, True):
        for _dtype in ("f32", "f64"):
            case(
                "reduction",
                f"cumsum axis={_axis}{' reverse' if _reverse else ''}",
                lambda x, axis=_axis, reverse=_reverse: T.cumsum(x, axis, reverse),
                lambda x, axis=_axis, reverse=_reverse: (
                    torch.cumsum(x.flip(axis), axis).flip(axis) if reverse else torch.cumsum(x, axis)
                ),
                Input(_shape, _dtype),
                bound=running_bound(_axis),
                orders=2,
            )
for _dtype in ALL[2:]:
    case(
        "reduction",
        "cumsum",
        lambda x: T.cumsum(x, 1),
        lambda x: torch.cumsum(x, 1),
        Input((3, 9), _dtype),
        bound=running_bound(1),
    )
case(
    "reduction",
    "cumsum bf16 ones",
    lambda x: T.cumsum(x, 0),
    lambda x: torch.cumsum(x, 0),
    Input((600,), "bf16", fixed(np.ones(600))),
)
