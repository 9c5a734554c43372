"""What is written for nests: which mapping takes them, how wide they load, in how many launches; and NVRTC takes it."""

import re

import nests
import pytest

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.calls import Table
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.sources import joined, own_code
from euler_ir.compiler import lower
from euler_ir.dtypes import f32
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Kernel, Load, Nest, Store
from euler_ir.plan.kernels import plan_of_kernels
from models.gpt2 import PRESETS
from models.language_model import train_graph


def launches(*nests_of_kernel):
    """The launches of a kernel of these nests."""
    (step,) = plan_of_kernels("plan", (Kernel("kernel", nests_of_kernel),)).kernels()
    return kernel_calls(step).calls


def copy(size, offset=0):
    v = Axis("v", size)
    buffers = (Buffer("x", f32, size + offset, "input"), Buffer("y", f32, size, "output"))
    return Nest(buffers, (v,), (Load("a", f32, "x", Index.of(v) + offset), Store("y", Index.of(v), "a")), vector=True)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nvrtc_takes_every_nest(architecture):
    nest = nests.pad(3, 4, 2), nests.softmax(5, 64), nests.gather(9, 5, 20), nests.scatter_add(9, 5, 20)
    (launch,) = launches(*nest, nests.layer_norm(4, 77), nests.column_sum(9, 7), nests.scan(3, 9))
    resources = nvrtc.compile_cuda(launch.source.text, architecture).resources
    assert list(resources) == [launch.kernel] and resources[launch.kernel].spill_stores == 0


def test_neighbours_are_loaded_together():
    (aligned,), (shifted,) = launches(copy(1024)), launches(copy(1024, 1))
    assert "eir::load<4>(x + 4 * group)" in aligned.source.text and "eir::store(y + 4 * group" in aligned.source.text
    assert "eir::load<4>(x" not in shifted.source.text and "x[v + 1]" in shifted.source.text
    assert "eir::store(y + 4 * group" in shifted.source.text


def test_nests_of_one_structure_share_a_function():
    few, many = launches(*[copy(1024)] * 3), launches(*[copy(1024)] * 100, copy(512))
    assert len(few) == len(many) == 1
    assert few[0].source.text.count("static __device__ void nest_") == 1
    assert few[0].blocks == 3 and len(few[0].arguments) == 6
    assert many[0].source.text.count("void nest_") == 2 and many[0].blocks == 101
    (table,) = many[0].arguments
    assert isinstance(table, Table) and len(table.pointers) == 202


def test_nothing_is_launched_for_no_points():
    assert launches(copy(0)) == ()


def test_names_that_mean_something_in_cuda_are_changed():
    v = Axis("int", 8)
    buffers = (Buffer("threadIdx", f32, 8, "input"), Buffer("float", f32, 8, "output"))
    body = (Load("task", f32, "threadIdx", Index.of(v)), Store("float", Index.of(v), "task"))
    (launch,) = launches(Nest(buffers, (v,), body))
    nvrtc.compile_cuda(launch.source.text, "sm_80")


@pytest.fixture(scope="module")
def steps_of_nano():
    """The launches of generated kernels in a training step of the nano preset, by what they do."""
    plan = lower(train_graph(PRESETS["nano"], 4, 128), "cuda").plan
    return [(step, kernel_calls(step).calls) for step in plan.kernels()]


def test_all_parameters_are_updated_in_one_launch(steps_of_nano):
    updates = [(step, calls) for step, calls in steps_of_nano if "sqrt" in step.kernel.name and len(calls) == 1]
    ((step, (launch,)),) = [(step, calls) for step, calls in updates if len(step.kernel.nests) > 40]
    assert isinstance(launch.arguments[0], Table) and len(launch.arguments) == 1
    functions = launch.source.text.count("static __device__ void nest_")
    assert functions < len(step.kernel.nests) / 5, "a function for each parameter, not for each size"
    own = own_code(launch.source.text)
    assert "eir::load<4>" in own and "eir::store" in own
    assert set(re.findall(r"\bb\d+\[([^]]*)\]", own)) == {"0"}, "all but numbers of the step is moved in vectors"


def test_a_step_takes_few_launches(steps_of_nano):
    """Columns that several blocks share, and scattered rows, take more than one."""
    assert sum(len(calls) for _, calls in steps_of_nano) <= len(steps_of_nano) + 20


def test_kernels_of_a_training_step_fit_a_gpu(steps_of_nano):
    """Four blocks of 256 threads and more at a time on a multiprocessor, and nothing spilled."""
    texts = {call.source.code: call.source.text for _, calls in steps_of_nano for call in calls}
    unit = joined("nano", list(texts.values()))
    resources = nvrtc.compile_cuda(unit, "sm_90").resources
    assert len(resources) == len(texts)
    for kernel, used in resources.items():
        assert used.spill_stores == 0 and used.registers <= 64, kernel
