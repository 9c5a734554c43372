"""Every operator against an independent oracle: value, shape and dtype, on every backend."""

import inspect

import numpy as np
import pytest
from cases import CASES
from harness import BACKENDS, arrays_of, assert_close, build, case_outputs, expected

import euler_ir as ei
from euler_ir.ops import OPS


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[case.name for case in CASES])
def test_value(index, backend):
    case = CASES[index]
    arrays = arrays_of(case)
    dtype, want = expected(case, arrays)
    with np.errstate(all="ignore"):
        wide = [array.astype(np.float64) for array in arrays]
        slack = case.bound(want, *wide)
    for kind, got in case_outputs(index, backend).items():
        try:
            assert_close(got, want, dtype, slack, case.signed_zeros)
        except AssertionError as error:
            error.add_note(f"{kind} of {case.name} on {backend}")
            raise


def test_every_operator_has_a_case():
    graph = ei.Graph("all")
    for index, case in enumerate(CASES):
        build(graph, index, case)
    assert set(OPS) <= {op.name for op in graph.ops}


def test_every_function_has_a_case():
    elsewhere = {
        "input",
        "output",
        "update",
        "gradient",
        "compile",
        "pipeline_of",
        "read_values",
        "replace_values",
        "initial_state",
        "dropout",
        "random_uniform",
        "random_normal",
    }
    public = {name for name, member in vars(ei).items() if inspect.isfunction(member)} - elsewhere
    assert public <= {case.function for case in CASES}
