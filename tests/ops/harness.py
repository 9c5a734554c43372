"""Runs the cases on a backend, computes what they should give, and says how far apart the two may be."""

from __future__ import annotations

import functools
import zlib

import ml_dtypes
import numpy as np
import pytest
import torch
from cases import CASES, TORCH, Case

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.dtypes import accumulation_dtype, as_dtype

BACKENDS = ("interpreter", "reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu))

_DTYPE_OF_TORCH = {torch_dtype: as_dtype(name) for name, torch_dtype in TORCH.items()}


def run(graph: ei.Graph, inputs: dict[str, np.ndarray], backend: str) -> dict[str, np.ndarray]:
    """The outputs of ``graph`` on ``backend``, with the first state where the graph has any."""
    state = ei.initial_state(graph) if graph.parameters or graph.states else None
    return executable(graph, backend)(state, **inputs)


def executable(graph: ei.Graph, backend: str):
    """``graph`` compiled for ``backend``; 'interpreter' runs it as it stands, without any pass."""
    if backend == "interpreter":
        return lambda state, **inputs: interpreter.run(graph, dict(state or {}) | inputs)[0]
    return ei.compile(graph, backend=backend)


def arrays_of(case: Case) -> list[np.ndarray]:
    """The operands of a case: a function of its name alone."""
    random = np.random.default_rng(zlib.crc32(case.name.encode()))
    with np.errstate(over="ignore"):
        return [np.asarray(spec.make(random, spec.shape, as_dtype(spec.dtype))) for spec in case.inputs]


def feeds(index: int, case: Case, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What the graph made by ``operands`` is called with; a permuted operand is fed transposed."""
    return {
        f"case{index}_{position}": np.ascontiguousarray(array.T) if spec.permuted else array
        for position, (spec, array) in enumerate(zip(case.inputs, arrays))
    }


def operands(graph: ei.Graph, index: int, case: Case) -> tuple[list[ei.Value], list[ei.Value]]:
    """The inputs of a case in ``graph``, and the same as its ``build`` takes them, permuted ones turned back."""
    inputs = [
        graph.input(f"case{index}_{position}", spec.shape[::-1] if spec.permuted else spec.shape, spec.dtype)
        for position, spec in enumerate(case.inputs)
    ]
    return inputs, [ei.transpose(x) if spec.permuted else x for spec, x in zip(case.inputs, inputs)]


def build(graph: ei.Graph, index: int, case: Case) -> dict[str, ei.Value]:
    """The outputs of a case: its value and, of a composite operator, the value of its decomposition too."""
    with graph:
        value = case.build(*operands(graph, index, case)[1])
        outputs = {"value": value}
        definition = value.op.definition
        # A random operator and its decomposition would draw from one stream, which a graph must not.
        if definition.decompose is not None and case.family != "random":
            outputs["decomposed"] = definition.decompose(value.op)[value.index]
    return outputs


def outputs_of(cases: list[tuple[int, Case]], backend: str) -> dict[tuple[int, str], np.ndarray]:
    """The outputs of several cases from one graph, so that a compiler is called once for all of them."""
    graph, inputs = ei.Graph("cases"), {}
    for index, case in cases:
        graph.set_outputs(**{f"out{index}_{kind}": value for kind, value in build(graph, index, case).items()})
        inputs.update(feeds(index, case, arrays_of(case)))
    results = run(graph, inputs, backend)
    return {(int(name[3:].split("_")[0]), name.split("_")[1]): array for name, array in results.items()}


@functools.cache
def _family_outputs(family: str, backend: str) -> dict[tuple[int, str], np.ndarray] | None:
    try:
        return outputs_of([(index, case) for index, case in enumerate(CASES) if case.family == family], backend)
    except Exception:
        return None


def case_outputs(index: int, backend: str) -> dict[str, np.ndarray]:
    """The outputs of one case by kind. When its family does not run as a whole, each case runs alone to say which."""
    case = CASES[index]
    results = _family_outputs(case.family, backend)
    if results is None:
        results = outputs_of([(index, case)], backend)
    return {kind: results[index, kind] for kind in ("value", "decomposed") if (index, kind) in results}


def as_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def expected(case: Case, arrays: list[np.ndarray]) -> tuple[ei.DType, np.ndarray]:
    """The dtype that torch gives to the case, and its values from the same operands in f64 (integers: as they are)."""
    tensors = [as_torch(array) for array in arrays]
    dtype = as_dtype(case.dtype) if case.dtype else _DTYPE_OF_TORCH[case.reference(*tensors).dtype]
    torch.set_default_dtype(torch.float64)
    try:
        wide = widen(case.reference(*map(widen, tensors)))
    finally:
        torch.set_default_dtype(torch.float32)
    return dtype, wide.numpy()


def unit_roundoff(dtype: ei.DType) -> float:
    """Half the distance from 1 to the next number."""
    return float(ml_dtypes.finfo(dtype.numpy).eps) / 2


def assert_close(got: np.ndarray, want: np.ndarray, dtype: ei.DType, slack, signed_zeros: bool) -> None:
    """``got`` is ``want`` rounded once to ``dtype``, give or take ``slack`` unit roundoffs of the accumulation type.

    ``slack`` 0 asks for the same bits. For f64 the slack counts twice, because ``want`` is rounded as well. NaN equals
    NaN, and a result below the normal range may be off by one step of it.
    """
    assert got.dtype == dtype.numpy and got.shape == want.shape
    if not dtype.is_float:
        np.testing.assert_array_equal(got, want)
        return
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.float64)
    wide = got.astype(np.float64)
    same = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
    if signed_zeros:
        same &= np.isnan(wide) | (np.signbit(wide) == np.signbit(rounded))
    if np.any(slack):
        step = float(ml_dtypes.finfo(got.dtype).smallest_subnormal)
        allowed = slack * unit_roundoff(accumulation_dtype(dtype)) * (2 if dtype == ei.f64 else 1)
        with np.errstate(all="ignore"):
            same |= np.abs(wide - want) <= allowed + unit_roundoff(dtype) * np.abs(want) + step
    if not np.all(same):
        bad = np.argwhere(~np.atleast_1d(same))
        place = tuple(bad[0]) if got.shape else ()
        raise AssertionError(
            f"{len(bad)} of {got.size} differ; first at {place}: {wide[place]!r}, not {rounded[place]!r}"
        )
