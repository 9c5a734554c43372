"""Every operator of a graph on the emulated device, against an independent oracle: the cases of tests/ops."""

import numpy as np
import pytest
from cases import CASES
from harness import arrays_of, assert_close, expected, outputs_of

NUMBERED = list(enumerate(CASES))


def assert_expected(numbered):
    """The values of numbered cases, all of one graph."""
    outputs = outputs_of(numbered, "cuda-emulator")
    for index, case in numbered:
        arrays = arrays_of(case)
        dtype, want = expected(case, arrays)
        with np.errstate(all="ignore"):
            slack = case.bound(want, *[array.astype(np.float64) for array in arrays])
        for kind in ("value", "decomposed"):
            if (index, kind) in outputs:
                try:
                    assert_close(outputs[index, kind], want, dtype, slack, case.signed_zeros)
                except AssertionError as error:
                    error.add_note(f"{kind} of {case.name}")
                    raise


def test_one_case_of_each_operator():
    """Elementwise ones are in test_cuda_operations.py, in every dtype; products and attention have their own tests."""
    first = {}
    for index, case in NUMBERED:
        if case.family in ("reduction", "movement", "indexing", "network", "leaf", "random"):
            first.setdefault(case.function, (index, case))
    assert_expected(list(first.values()))


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({case.family for case in CASES}))
def test_every_case(family):
    assert_expected([(index, case) for index, case in NUMBERED if case.family == family])
