"""Products of whole graphs on the emulated device, with what runs before and after them, against numpy in f64."""

import math
from dataclasses import replace

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cuda.calls import Launch, ScratchPointer
from euler_ir.backends.cuda.codegen import kernel_calls
from euler_ir.backends.cuda.gemm import Product, product_calls
from euler_ir.backends.cuda.gemm.made import Scratch
from euler_ir.compiler import lower
from euler_ir.dtypes import bf16, f32
from euler_ir.plan.plan import MatmulStep

SHAPES = {"x": (5, 3, 12), "w": (12, 16), "v": (12, 16), "heads": (5, 3, 4, 8), "bias": (16,), "matrix": (5, 3, 16)}


def graph_of(dtype):
    """Products that the library does with its epilogues, and some whose epilogue or operands kernels make."""
    with ei.Graph("products") as graph:
        x, w, v, heads, bias, matrix = (
            ei.input(name, shape, f32 if name == "bias" else dtype) for name, shape in SHAPES.items()
        )
        bias = bias.cast(dtype)
        ei.output(
            biased=x @ w + bias,
            residual=matrix + (x @ v + bias),
            gelu=ei.gelu(ei.relu(x) @ w + bias, "tanh"),
            scores=heads @ heads.swap_axes(-1, -2),
            moved=(heads @ heads.swap_axes(-1, -2)[..., :2]).transpose(0, 2, 1, 3),
        )
    return graph


def wanted(x, w, v, heads, bias, matrix):
    h = np.maximum(x, 0) @ w + bias
    scores = heads @ np.swapaxes(heads, -1, -2)
    return {
        "biased": x @ w + bias,
        "residual": matrix + x @ v + bias,
        "gelu": 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))),
        "scores": scores,
        "moved": scores[..., :2].transpose(0, 2, 1, 3),
    }


@pytest.mark.parametrize("dtype, passes", [(bf16, "cuda"), (f32, "default")], ids=str)
def test_a_graph_of_products(dtype, passes):
    graph, random = graph_of(dtype), np.random.default_rng(0)
    inputs = {leaf.op.attributes["name"]: leaf.type for leaf in graph.inputs}
    arrays = {name: random.normal(size=type.shape).astype(type.dtype.numpy) for name, type in inputs.items()}
    found = ei.compile(graph, "cuda-emulator", passes=passes)(**arrays)
    # A half product is rounded before a kernel goes on, and so is what it adds.
    relative = 3 * 2.0**-9 if dtype == bf16 else 2e-6
    for name, want in wanted(**{name: array.astype(np.float64) for name, array in arrays.items()}).items():
        got = found[name].astype(np.float64)
        assert got.shape == want.shape and (abs(got - want) <= relative * (abs(want) + 4)).all(), name


def calls_of(dtype, passes):
    plan = lower(graph_of(dtype), passes=passes).plan
    return [product_calls(step, plan).calls for step in plan.steps() if isinstance(step, MatmulStep)]


def test_what_is_called():
    kinds = [tuple(type(call) for call in calls) for calls in calls_of(bf16, "cuda")]
    # A bias of f32 is cast before; GELU runs in a kernel of its own after the product.
    assert kinds.count((Launch, Product)) == 2 and (Product, Launch) in kinds
    assert (Launch, Product, Launch) in [tuple(map(type, calls)) for calls in calls_of(f32, "default")]


def sum_with_scratch():
    """A kernel whose nest needs scratch memory of its own."""
    with ei.Graph("sum") as graph:
        ei.output(y=ei.sum(ei.input("x", (4096, 64)), axes=0))
    (step,) = lower(graph, passes="cuda").plan.steps()
    assert kernel_calls(step).scratch_bytes > 0
    return step


def scratch_of(launches):
    """Where in scratch memory the arguments of launches are."""
    return {each.offset for launch in launches for each in launch.arguments if isinstance(each, ScratchPointer)}


def test_what_is_made_and_what_its_kernel_needs_lie_apart():
    step, scratch = sum_with_scratch(), Scratch()
    own = kernel_calls(step)
    places = [scratch.make(step.kernel.nests[0], (0,), step.origins[0]).offset for _ in range(2)]
    size = own.scratch_bytes + 256  # the sum of 64 columns takes 256 bytes
    assert places == [0, size] and scratch.nbytes == 2 * size
    first, second = scratch.launches[: len(own.calls)], scratch.launches[len(own.calls) :]
    assert scratch_of(first) == {0, 256} and scratch_of(second) == {size, size + 256}


def test_a_product_has_the_scratch_of_what_follows_it():
    plan = lower(graph_of(f32), passes="cuda").plan
    after = sum_with_scratch()
    step = next(step for step in plan.steps() if isinstance(step, MatmulStep) and step.epilogue is not None)
    step = replace(step, inner=0, epilogue=after)
    assert product_calls(step, plan).scratch_bytes == kernel_calls(after).scratch_bytes
