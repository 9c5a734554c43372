"""What FlashAttention's tiles cost on each architecture, and that each of them is right."""

import itertools
from dataclasses import replace

import pytest
from attention_cases import Case, Emulated, assert_close, assert_same_bits, launches_of

from euler_ir.backends.cuda import nvrtc, sass
from euler_ir.backends.cuda.limits import limits_of, resident_blocks

STEPS = 4
PLAIN = Case(130, 140, 64, 64, dtype="bf16", heads=2, key_heads=1)
MEMORY = ("LDSM", "LDGSTS", "LDL", "STL")
KINDS = [
    {"causal": causal, "visible_from": packed, "margin": margin}
    for causal, packed, margin in itertools.product((True, False), (False, True), (0, 1))
]
"""Each has a source of its own: masks by place and by visible_from, rows aligned and not."""


def compiled(launch, architecture):
    """What NVRTC makes of a launch, within the limits of ``architecture``. Nothing is kept outside of registers."""
    found = nvrtc.compile_cuda(launch.source.text, architecture, launch.kernel)
    resources = found.resources[launch.kernel]
    assert resources.spill_stores == resources.spill_loads == resources.stack == 0, (launch.kernel, resources)
    assert resources.shared == 0 and launch.shared_bytes <= limits_of(architecture).shared_of_block
    assert resident_blocks(architecture, launch.threads, resources.registers, launch.shared_bytes) > 0
    return found


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_use_tensor_cores_and_nothing_outside_of_registers(architecture):
    """Fed by ldmatrix and asynchronous copies."""
    for launch in launches_of(PLAIN, architecture):
        text = sass.disassemble(compiled(launch, architecture).cubin)[launch.kernel]
        instructions = sass.opcodes(text)
        assert instructions["HMMA.16816.F32.BF16"] == sass.tensor_core_instructions(text) >= 64
        counts = {name: sum(n for opcode, n in instructions.items() if opcode.startswith(name)) for name in MEMORY}
        assert counts["LDSM"] >= 16 and counts["LDGSTS"] >= 8 and counts["LDL"] == counts["STL"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(
    ("width", "value_width"), [*((width, width) for width in range(16, 129, 16)), (64, 128), (128, 64), (40, 33)]
)
def test_no_tile_spills(width, value_width, architecture, kind):
    for dtype in ("bf16", "f16"):
        case = replace(PLAIN, width=width, value_width=value_width, dtype=dtype, **kind)
        for launch in launches_of(case, architecture):
            compiled(launch, architecture)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("architecture", ["sm_86", "sm_90"])
@pytest.mark.parametrize(
    ("width", "value_width"),
    [*((width, width) for width in (1, 16, 32, 40, 48, 64, 80, 96, 112, 128)), (127, 5), (20, 128)],
)
def test_every_width(width, value_width, architecture, dtype):
    """On GPUs with little shared memory tiles are smaller from 80 columns on."""
    for contract, kind in itertools.product((True, False), (KINDS[0], KINDS[3], KINDS[6])):
        case = replace(PLAIN, width=width, value_width=value_width, dtype=dtype, **kind)
        arrays, emulated = case.inputs(), Emulated(case.graph(), architecture, contract)
        first = emulated(**case.flat(arrays))
        assert_close(first, case.wanted(arrays), STEPS)
        for order in ("descending", 1):
            assert_same_bits(emulated(order=order, **case.flat(arrays)), first)
