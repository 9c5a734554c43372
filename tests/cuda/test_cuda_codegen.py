"""What is written for nests: which mapping takes them, how wide they load, in how many launches; and NVRTC takes it."""

import nests
import pytest

from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.calls import Table
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.dtypes import f32
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Kernel, Load, Nest, Store
from euler_ir.plan.kernels import plan_of_kernels


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
