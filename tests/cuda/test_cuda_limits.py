"""What a multiprocessor holds, beside the answers of NVIDIA's own calculator."""

import pytest

from euler_ir.backends.cuda.limits import LIMITS, limits_of, occupancy, resident_blocks
from euler_ir.errors import LoweringError

# threads, registers, bytes of shared memory; then for each architecture the blocks that cudaOccMaxActiveBlocksPer-
# Multiprocessor of CUDA 13.0's cuda_occupancy.h gives.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")
CASES = (
    ((256, 32, 0), (4, 8, 6, 6, 6, 8, 8, 8, 6, 6)),
    ((128, 125, 27648), (2, 4, 3, 4, 3, 4, 4, 4, 3, 3)),
    ((256, 174, 55296), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
    ((128, 171, 52224), (1, 2, 1, 2, 1, 2, 2, 2, 1, 1)),
    ((256, 255, 122880), (0, 1, 0, 1, 0, 1, 1, 1, 0, 0)),
    ((1024, 32, 0), (1, 2, 1, 1, 1, 2, 2, 2, 1, 1)),
    ((1024, 64, 0), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
    ((1024, 65, 0), (0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
    ((32, 16, 0), (16, 32, 16, 16, 24, 32, 32, 32, 24, 24)),
    ((64, 40, 49152), (1, 3, 2, 3, 2, 4, 4, 4, 2, 2)),
    ((96, 37, 100), (10, 16, 16, 16, 16, 16, 16, 16, 16, 16)),
    ((256, 33, 0), (4, 6, 6, 6, 6, 6, 6, 6, 6, 6)),
    ((128, 255, 0), (2, 2, 2, 2, 2, 2, 2, 2, 2, 2)),
    ((512, 128, 1024), (1, 1, 1, 1, 1, 1, 1, 1, 1, 1)),
    ((256, 16, 101376), (0, 1, 1, 1, 1, 2, 2, 2, 1, 1)),
    ((192, 80, 20000), (3, 4, 4, 4, 4, 4, 4, 4, 4, 4)),
)


def test_all_architectures_are_compared():
    assert set(ARCHITECTURES) == set(LIMITS)


@pytest.mark.parametrize(("kernel", "blocks"), CASES)
def test_resident_blocks_are_those_of_nvidias_calculator(kernel, blocks):
    assert tuple(resident_blocks(architecture, *kernel) for architecture in ARCHITECTURES) == blocks


def test_occupancy_is_the_part_of_the_warps():
    assert occupancy("sm_90", 256, 32, 0) == 1.0
    assert occupancy("sm_90", 128, 125, 27648) == 0.25
    assert occupancy("sm_80", 1024, 65, 0) == 0.0
    assert occupancy("sm_90a", 96, 37, 100) == 0.75


def test_a_newer_architecture_has_the_limits_of_the_next_lower_one():
    for newer, known in (("sm_88", "sm_87"), ("sm_99", "sm_90"), ("sm_110", "sm_103"), ("sm_999", "sm_121")):
        assert limits_of(newer) is LIMITS[known]
    assert limits_of("sm_103f") is LIMITS["sm_103"]


@pytest.mark.parametrize("name", ["sm_61", "h100", "sm_", "compute_90"])
def test_an_unknown_architecture_is_named(name):
    with pytest.raises(LoweringError, match=f"(?s)'{name}' are not known.*sm_75, sm_80"):
        limits_of(name)
