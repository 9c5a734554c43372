"""What FlashAttention's tiles cost on each architecture, and that each of them is right."""

from dataclasses import replace

import pytest
from attention_cases import Case, Emulated, assert_close, assert_same_bits, launches_of

from euler_ir.backends.cuda import nvrtc, sass
from euler_ir.backends.cuda.limits import limits_of, resident_blocks

STEPS = 4
PLAIN = Case(130, 140, 64, 64, dtype="bf16", heads=2, key_heads=1)
MEMORY = ("LDSM", "LDGSTS", "LDL", "STL")
KINDS = (
    {"causal": True, "visible_from": False, "margin": 0},
    {"causal": False, "visible_from": True, "margin": 0},
    {"causal": False, "visible_from": False, "margin": 1},
    {"causal": True, "visible_from": True, "margin": 1},
)
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
@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_90"])
@pytest.mark.parametrize(
    ("width", "value_width"), [*((width, width) for width in range(32, 129, 16)), (64, 128), (128, 64)]
)
def test_no_tile_spills(width, value_width, architecture):
    for kind in KINDS:
        for launch in launches_of(replace(PLAIN, width=width, value_width=value_width, **kind), architecture):
            compiled(launch, architecture)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "value_width", "dtype", "architecture"),
    [
        *((1, 1, "f16", "sm_90"), (16, 16, "bf16", "sm_90"), (32, 32, "f16", "sm_80"), (40, 40, "bf16", "sm_90")),
        *((64, 64, "f16", "sm_90"), (64, 64, "bf16", "sm_86"), (80, 80, "f16", "sm_90"), (96, 96, "bf16", "sm_80")),
        *((96, 96, "f16", "sm_86"), (112, 112, "bf16", "sm_90"), (128, 128, "f16", "sm_80")),
        *((128, 128, "bf16", "sm_86"), (128, 128, "f16", "sm_90"), (127, 5, "bf16", "sm_90")),
        (20, 128, "f16", "sm_90"),
    ],
)
def test_every_width(width, value_width, dtype, architecture):
    """On GPUs with little shared memory blocks have other tiles."""
    for kind, contract in (*((kind, True) for kind in KINDS), (KINDS[0], False)):
        case = replace(PLAIN, width=width, value_width=value_width, dtype=dtype, **kind)
        arrays, emulated = case.inputs(), Emulated(case.graph(), architecture, contract)
        first = emulated(**case.flat(arrays))
        assert_close(first, case.wanted(arrays), STEPS)
        for order in ("descending", 1):
            assert_same_bits(emulated(order=order, **case.flat(arrays)), first)
