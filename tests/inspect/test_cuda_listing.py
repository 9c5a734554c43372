"""What the CUDA backend makes of a graph: its text at each level, what its kernels take, and errors in words."""

import json
import re
from dataclasses import replace

import pytest

import euler_ir as ei
from euler_ir.backends.cuda import nvrtc, sass
from euler_ir.backends.cuda.limits import occupancy
from euler_ir.cli import main
from euler_ir.errors import LoweringError
from euler_ir.inspect.cuda.resources import resources
from euler_ir.inspect.cuda.step_calls import lower_for_cuda, step_calls
from euler_ir.inspect.dump import dump
from euler_ir.plan.plan import MatmulStep

MLP = "examples/mlp.py:train_graph"


def attention_graph(width=64, length=130):
    with ei.Graph("attend") as graph:
        query, key, value = (ei.input(name, (2, length, width), ei.bf16) for name in ("q", "k", "v"))
        ei.output(y=ei.attention(query, key, value), z=ei.softmax(ei.input("x", (10, 100))))
    return graph


@pytest.fixture(scope="module")
def plan():
    return lower_for_cuda(attention_graph()).plan


@pytest.fixture(scope="module")
def found(plan):
    return resources(plan, "sm_80")


def test_cuda_begins_with_the_calls_of_a_step():
    text = dump(attention_graph(), "cuda")
    head, _, code = text.partition("\n\n")
    assert head.startswith("// cuda 'attend': ") and all(line.startswith("//") for line in head.splitlines())
    launched = re.findall(r"launch (\w+) <", head)
    assert len(launched) == 2
    for kernel in launched:
        assert re.search(rf'extern "C" __global__ .*\b{kernel}\(', code)


def test_pointers_of_a_kernel_are_said_to_be_tensors_of_the_model():
    comments = " ".join(line.removeprefix("//").strip() for line in dump(attention_graph(), "cuda").splitlines())
    assert re.search(r"attention\w* is launched first with query = %q, key = %k, value = %v, output = %y, ", comments)
    (softmax,) = re.findall(r"(\w+) is launched first with b0 = %x, b1 = %z ", comments)
    assert f"launch {softmax} <" in comments


def test_what_units_share_is_printed_once():
    text = dump(attention_graph(), "cuda")
    assert text.count("struct alignas(2) bf16") == 1 and "// ---- target.cuh, as above ----" in text


def test_kernels_of_a_step_take_what_nvrtc_and_the_launch_say(plan, found):
    launches = [call for each in step_calls(plan, "sm_80") for call in each.calls.calls]
    assert found.calls == {"launch": len(launches)} and found.launches == len(launches)
    for launch, kernel in zip(launches, found.kernels, strict=True):
        compiled = nvrtc.compile_cuda(launch.source.text, "sm_80").resources[launch.kernel]
        assert (kernel.name, kernel.launches, kernel.threads) == (launch.kernel, 1, launch.threads)
        assert kernel.registers == compiled.registers and kernel.shared == compiled.shared + launch.shared_bytes
        assert kernel.occupancy == occupancy("sm_80", kernel.threads, kernel.registers, kernel.shared) > 0
    assert not found.excesses()


def test_bytes_moved_by_hand(found):
    (softmax,) = (kernel for kernel in found.kernels if kernel.least == 2 * 4 * 1000)
    # Its row is read for the maximum and for the sum, and written.
    assert softmax.moved == 3 * 4 * 1000
    (attention,) = (kernel for kernel in found.kernels if kernel is not softmax)
    assert attention.least == 4 * 2 * 130 * 64 * 2 + 2 * 130 * 4  # query, key, value, result; logsumexp


def test_a_kernel_that_no_block_can_run_is_said(found):
    kernel = replace(found.kernels[0], resident=0, name="huge")
    (excess,) = replace(found, kernels=(kernel, *found.kernels[1:])).excesses()
    assert "huge cannot be launched on sm_80" in excess


@pytest.mark.usefixtures("gpu_compiler")
def test_the_command_prints_a_line_a_kernel(capsys):
    assert main(["resources", MLP, "--arch", "sm_86"]) == 0
    first, headings, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"train on sm_86: a step is \d+ calls: 5 products, \d+ launches", first)
    assert headings.split()[:2] == ["kernel", "launches"]
    assert main(["resources", MLP, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["architecture"] == "sm_90" and len(record["kernels"]) == len(lines) >= 4


def test_products_are_calls_of_the_library():
    plan = lower_for_cuda(product_graph()).plan
    (step,) = (each for each in step_calls(plan) if isinstance(each.step, MatmulStep))
    assert [type(call).__name__ for call in step.calls.calls] == ["Product"]


def product_graph():
    with ei.Graph("product") as graph:
        ei.output(y=ei.input("a", (64, 32)) @ ei.input("b", (32, 16)))
    return graph


@pytest.mark.parametrize("command", [["resources", MLP], ["dump", MLP, "--stage", "sass"]], ids=lambda words: words[0])
@pytest.mark.usefixtures("gpu_compiler")
def test_an_unknown_gpu_is_one_line(command, capsys):
    assert main([*command, "--arch", "sm_42"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("euler-ir: ") and "sm_42" in message


@pytest.mark.parametrize(
    ("stage", "missing", "hint"),
    [("ptx", "NVRTC", "pip install nvidia-cuda-nvrtc-cu12"), ("sass", "nvdisasm", "pip install nvidia-cuda-nvdisasm")],
)
@pytest.mark.usefixtures("gpu_compiler")
def test_a_missing_tool_is_said_with_the_command_that_installs_it(stage, missing, hint, capsys, monkeypatch):
    def absent(*arguments):
        raise LoweringError(f"there is no {missing}", hint=hint)

    monkeypatch.setattr(*((nvrtc, "library", absent) if stage == "ptx" else (sass, "_tool", absent)))
    assert main(["dump", MLP, "--stage", stage]) == 2
    message = capsys.readouterr().err
    assert f"there is no {missing}" in message and hint in message
    assert main(["dump", MLP, "--stage", "cuda"]) == 0
