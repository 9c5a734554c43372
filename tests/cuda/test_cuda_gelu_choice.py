"""The library's GELU is chosen by its time, which is asked for once; the emulator's times are never asked for."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import cache
from euler_ir.backends.cuda import product_choice
from euler_ir.backends.cuda.emulator.device import EmulatedDevice
from euler_ir.backends.cuda.gemm import ProductOptions
from euler_ir.backends.cuda.gemm.api import Epilogue
from euler_ir.backends.cuda.gemm.gelu_choice import REPEATED, is_gelu_fused
from euler_ir.backends.cuda.product_choice import product_options
from euler_ir.backends.cuda.program import CudaProgram
from euler_ir.compiler import Executable, lower
from euler_ir.dtypes import bf16
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import MatmulStep


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "cache"))


def activated():
    with ei.Graph("activated") as graph:
        x, w, bias = ei.input("x", (6, 8), bf16), ei.input("w", (8, 16), bf16), ei.input("bias", (16,), bf16)
        ei.output(y=ei.gelu(x @ w + bias, "tanh"))
    return graph


@pytest.fixture(scope="module")
def stages():
    return lower(activated(), passes="cuda")


def product_of(plan):
    (step,) = (step for step in plan.steps() if isinstance(step, MatmulStep))
    return step


class Times:
    """A clock that gives the times that it is told, and keeps the plans that it was asked about."""

    def __init__(self, kernel, library):
        self.times = {False: kernel, True: library}
        self.asked = []

    def __call__(self, plan, by_library):
        self.asked.append((plan, by_library))
        return self.times[by_library]


@pytest.mark.parametrize("kernel, library, is_fused", [(1.0, 0.5, True), (1.0, 0.99, False), (1.0, 1.5, False)])
def test_what_is_faster_by_a_margin_is_chosen_and_asked_for_once(own_cache, stages, kernel, library, is_fused):
    step, plan, times = product_of(stages.plan), stages.plan, Times(kernel, library)
    for _ in range(2):
        assert is_gelu_fused(step, plan, ("H100",), times) == is_fused
    assert [by_library for _, by_library in times.asked] == [False, True]
    is_gelu_fused(step, plan, ("H200",), times)
    assert len(times.asked) == 4


def test_without_a_cache_nothing_is_timed(stages, monkeypatch):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "off")
    times = Times(1.0, 0.5)
    assert not is_gelu_fused(product_of(stages.plan), stages.plan, ("H100",), times) and not times.asked


def test_the_plan_that_is_timed_does_the_product_alone_and_often(own_cache, stages):
    times = Times(1.0, 0.5)
    is_gelu_fused(product_of(stages.plan), stages.plan, ("H100",), times)
    alone = times.asked[0][0]
    check_memory(alone)
    assert len(list(alone.steps())) == REPEATED
    assert sorted(buffer.place for buffer in alone.buffers) == ["arena", "constant", "constant", "constant"]


def test_a_device_that_is_no_emulator_is_timed(stages, monkeypatch):
    device, timed = EmulatedDevice(), []
    device.is_emulated, device.model = False, "timed by a test"
    original = product_choice._seconds

    def seconds(*given):
        original(*given)  # it runs, and what the emulator's clock says is not looked at
        timed.append(given[2])
        return 0.5 if given[2] else 1.0

    monkeypatch.setattr(product_choice, "_seconds", seconds)
    monkeypatch.setattr(product_choice, "_RUNS", 1)
    made = CudaProgram(stages.plan, device, products=product_options(device))
    assert timed == [False, True]
    assert [product.epilogue.kind for product in made.calls.products()] == [Epilogue.GELU_BIAS]
    again = made.on_plan(stages.plan, {})
    assert timed == [False, True] and again.calls == made.calls


def test_the_emulator_s_times_are_not_asked_for(stages, monkeypatch):
    monkeypatch.setattr(product_choice, "_seconds", lambda *given: pytest.fail("timed"))
    device = EmulatedDevice()
    made = CudaProgram(stages.plan, device, products=product_options(device))
    assert [product.epilogue.kind for product in made.calls.products()] == [Epilogue.NONE]


def test_both_compute_gelu(stages):
    random = np.random.default_rng(0)
    graph = activated()
    arrays = {leaf.op.attributes["name"]: random.normal(size=leaf.shape).astype(bf16.numpy) for leaf in graph.inputs}
    found = []
    for by_library in (False, True):
        options = ProductOptions(fuses_gelu=lambda step, plan: by_library)
        made = CudaProgram(stages.plan, EmulatedDevice(), products=options)
        found.append(Executable(graph, stages, made)(**arrays)["y"].astype(np.float64))
    # The kernel reads a product that is rounded to bf16, the library one that is not.
    np.testing.assert_allclose(found[0], found[1], atol=2.0**-7 * abs(found[0]).max())
    assert (found[0] != found[1]).any()


def test_tf32_is_asked_for_and_for_gpus_alone():
    with ei.Graph("product") as graph:
        ei.output(y=ei.input("x", (16, 64)) @ ei.input("w", (64, 16)))
    random = np.random.default_rng(0)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((16, 64), (64, 16)))
    size = abs(x).astype(np.float64) @ abs(w)
    error = {}
    for tf32 in (False, True):
        found = ei.compile(graph, "cuda-emulator", tf32=tf32)(x=x, w=w)["y"]
        error[tf32] = (abs(found - x.astype(np.float64) @ w) / size).max()
    assert error[False] < 1e-6 < 1e-5 < error[True] < 2.0**-10
    with pytest.raises(ValueError, match="tf32"):
        ei.compile(graph, "cpu", tf32=True)
