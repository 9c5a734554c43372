"""The pipeline for a backend with libraries: half products and attention stay whole, and products read memory."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.dtypes import bf16, f16, f32, i32
from euler_ir.initializers import Normal
from euler_ir.inspect.fusion import fusion_of
from euler_ir.passes import check_meaning, parse_pipeline
from euler_ir.plan.plan import AttentionStep, MadeOperand, MatmulStep

PASSES = parse_pipeline("cuda")[:-1]
"""Those that make graphs; the last one fuses."""
SHAPES = {"weight": (16, 16), "scale": (16,)}


def training_step(dtype):
    """A step of half numbers with products, attention, statistics and their gradients."""
    with ei.Graph("step") as graph:
        x, labels = ei.input("x", (2, 8, 16), dtype), ei.input("labels", (2, 8), i32)
        weight, scale = (ei.parameter(name, shape, Normal(1.0), dtype) for name, shape in SHAPES.items())
        hidden = ei.layer_norm(x @ weight, scale, scale).reshape(2, 8, 2, 8).transpose(0, 2, 1, 3)
        mixed = ei.attention(hidden, hidden, hidden, causal=True).transpose(0, 2, 1, 3).reshape(2, 8, 16)
        logits = (ei.gelu(mixed @ weight, "tanh") @ weight).cast(f32)
        loss = ei.mean(ei.cross_entropy(logits, labels))
        for leaf, gradient in zip((weight, scale), ei.gradient(loss, [weight, scale])):
            ei.update(leaf, leaf - gradient)
        ei.output(loss=loss)
    return graph


def leaves(dtype):
    random = np.random.default_rng(0)
    shapes = {"x": (2, 8, 16), **SHAPES}
    arrays = {name: random.normal(size=shape).astype(dtype.numpy) for name, shape in shapes.items()}
    return arrays | {"labels": random.integers(0, 16, (2, 8)).astype(np.int32)}


def dtypes_of(graph, name):
    return {op.result.dtype for op in graph.ops if op.name == name}


HALVES = pytest.mark.parametrize("dtype", [bf16, f16], ids=str)


@HALVES
def test_half_products_and_attention_stay_whole_and_mean_the_same(dtype):
    after = check_meaning(training_step(dtype), PASSES, leaves(dtype))
    for name in ("matmul", "attention", "attention_gradient"):
        assert dtypes_of(after, name) == {dtype}
    # All that is summed otherwise is summed in f32.
    assert dtypes_of(after, "sum") == {f32}


@HALVES
def test_by_default_they_are_of_f32(dtype):
    after = check_meaning(training_step(dtype), parse_pipeline("default"), leaves(dtype))
    for name in ("matmul", "attention", "attention_gradient"):
        assert dtypes_of(after, name) == {f32}


@pytest.mark.parametrize("passes, dtype", [("cuda", bf16), ("default", f32)])
def test_steps_of_the_plan(passes, dtype):
    steps = list(lower(training_step(bf16), passes=passes).plan.steps())
    for kind in (MatmulStep, AttentionStep):
        assert {step.dtype for step in steps if isinstance(step, kind)} == {dtype}


def test_a_long_sum_stays_one_product_which_the_library_splits():
    for passes, is_split in (("cuda", False), ("default", True)):
        with ei.Graph("long") as graph:
            x = ei.input("x", (8192, 16))
            ei.output(y=ei.matmul(x, x, transpose_left=True))
        (step,) = (step for step in lower(graph, passes=passes).plan.steps() if isinstance(step, MatmulStep))
        assert bool(step.batch) == is_split, passes


@pytest.mark.parametrize("dtype, kernels", [(bf16, 1), (f32, 2)], ids=str)
def test_a_sum_with_what_a_library_gives_is_made_in_the_norm_that_reads_it(dtype, kernels):
    """A residual stream of f32: no library adds to it, so that nothing is won by keeping the sum beside the product."""
    with ei.Graph("block") as graph:
        x, h, w = ei.input("x", (32, 64)), ei.input("h", (32, 16), dtype), ei.input("w", (16, 64), dtype)
        y, scale = x + (h @ w).cast(f32), ei.input("scale", (64,))
        ei.output(y=y, norm=ei.layer_norm(y, scale, scale))
    steps = list(lower(graph, passes="cuda").plan.steps())
    after = [step.epilogue for step in steps if isinstance(step, MatmulStep)]
    assert len(steps) - 1 + sum(epilogue is not None for epilogue in after) == kernels


def with_prologues():
    with ei.Graph("prologues") as graph:
        x, w = ei.input("x", (32, 16)), ei.input("w", (16, 64), bf16)
        ei.output(y=ei.relu(x) @ w.cast(f32))
    return graph


def test_no_product_makes_its_operands_and_the_report_says_why():
    stages = lower(with_prologues(), passes="cuda")
    (step,) = (step for step in stages.plan.steps() if isinstance(step, MatmulStep))
    assert not isinstance(step.left, MadeOperand) and not isinstance(step.right, MadeOperand)
    refusals = [edge.refusal for edge in fusion_of(stages).unfused]
    assert [refusal.code for refusal in refusals] == ["no-prologues"] * 2
    assert all(refusal.why and "prologues" in refusal.hint for refusal in refusals)


def test_by_default_it_makes_both():
    stages = lower(with_prologues())
    (step,) = (step for step in stages.plan.steps() if isinstance(step, MatmulStep))
    assert isinstance(step.left, MadeOperand) and isinstance(step.right, MadeOperand)
    assert not fusion_of(stages).unfused


def test_one_row_of_half_numbers_is_a_product_too_and_integers_are_not():
    for dtype, products in ((bf16, 1), (f32, 0), (i32, 0)):
        with ei.Graph("row") as graph:
            ei.output(y=ei.input("x", (1, 64), dtype) @ ei.input("w", (64, 32), dtype))
        steps = lower(graph, passes="cuda").plan.steps()
        assert sum(isinstance(step, MatmulStep) for step in steps) == products, dtype


def test_the_reference_sums_half_products_in_f32_and_rounds_once():
    with ei.Graph("long") as graph:
        x = ei.input("x", (1, 4096), f16)
        ei.output(y=ei.matmul(x, x, transpose_right=True), z=x @ ei.input("w", (4096, 1), f16))
    program = ei.compile(graph, "reference", passes="cuda")
    x = np.full((1, 4096), 8, np.float16)
    w = np.where(np.arange(4096) < 2048, 64, -64).astype(np.float16).reshape(4096, 1)
    found = program(x=x, w=w)  # the second sum rises to 1,048,576 on the way
    assert np.isinf(found["y"]) and found["z"] == 0
