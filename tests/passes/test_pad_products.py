"""Products get rows of whole 16 bytes, and nothing is copied for that."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.dtypes import bf16, f16, f32, f64, i32
from euler_ir.errors import PassError
from euler_ir.passes import PASSES, PRESETS, PadProducts, check_meaning, parse_pipeline
from euler_ir.plan.plan import MatmulStep
from euler_ir.plan.work import tasks, traffic_of
from models.gpt2 import GPT2Config
from models.language_model import train_graph


def classifier(classes, dtype=f32, rows=9, width=8):
    """The loss of a linear classifier, and all of its gradients."""
    with ei.Graph("classifier") as graph:
        x, w = ei.input("x", (rows, width), dtype), ei.input("w", (classes, width), dtype)
        logits = (x @ w.T).cast(f64 if dtype == f64 else f32)
        loss = ei.sum(ei.cross_entropy(logits, ei.input("labels", (rows,), i32)))
        dx, dw = ei.gradient(loss, [x, w])
        ei.output(loss=loss, dx=dx, dw=dw)
    return graph


def leaves(graph):
    random = np.random.default_rng(0)
    found = {}
    for leaf in graph.inputs:
        drawn = random.normal(size=leaf.shape) * 3 if leaf.dtype.is_float else random.integers(0, 5, leaf.shape)
        found[leaf.op.attributes["name"]] = drawn.astype(leaf.dtype.numpy)
    return found


PADDED = parse_pipeline(PRESETS["cuda"].replace("pad-products", "pad-products{smallest=1}"))


@pytest.mark.parametrize("dtype, elements", [(bf16, 8), (f32, 4), (f64, 2)], ids=str)
def test_all_rows_of_products_are_multiples_of_16_bytes_and_all_means_the_same(dtype, elements):
    graph = classifier(13, dtype, rows=9, width=7)
    after = check_meaning(graph, PADDED[:-1], leaves(graph), dict.fromkeys(PASSES, 8))
    products = [op for op in after.ops if op.name == "matmul"]
    assert len(products) == 3
    for op in products:
        assert all(value.shape[-1] % elements == 0 for value in (*op.operands, op.result))


def test_what_is_in_the_padding_of_logits_is_never_seen():
    """Every logit is far below the zeros that a product puts there: a maximum, or a sum, that saw them would tell."""
    graph = classifier(13)
    given = leaves(graph)
    given["x"], given["w"] = abs(given["x"]) * 9 + 9, -abs(given["w"]) * 9 - 9
    found, wanted = (ei.compile(graph, "reference", passes=text)(**given) for text in (PADDED, "cuda"))
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-5)


def test_rows_of_two_types_that_are_padded_differently_meet():
    """Of 9 columns f32 is padded to 12, and f16 to 16."""
    with ei.Graph("two types") as graph:
        x, w = ei.input("x", (9, 9), f32), ei.input("w", (9, 9), f32)
        ei.output(y=ei.exp(x @ w) + (x.cast(f16) @ w.cast(f16)).cast(f32))
    check_meaning(graph, PADDED[:-1], leaves(graph), dict.fromkeys(PASSES, 8))


def test_infinite_operands_stay_out_of_the_padding():
    """Zeros of the padding meet each other alone: 0 times infinity would be NaN."""
    with ei.Graph("product") as graph:
        ei.output(y=ei.input("x", (3, 5), f32) @ ei.input("w", (5, 7), f32))
    given = {"x": np.full((3, 5), np.inf, np.float32), "w": np.ones((5, 7), np.float32)}
    assert (ei.compile(graph, "reference", passes="pad-products{smallest=1},dce")(**given)["y"] == np.inf).all()


@pytest.mark.parametrize("smallest, count", [(9, 3), (10, 0)])
def test_small_products_stay_as_they_are(smallest, count):
    passes = f"decompose,pad-products{{smallest={smallest}}},dce"
    graph = ei.passes.optimize(classifier(13, width=11), passes)
    assert sum(op.result.shape[-1] % 4 == 0 for op in graph.ops if op.name == "matmul") == count


def test_a_graph_whose_rows_are_aligned_is_left_as_it_is():
    graph = ei.passes.optimize(classifier(16, rows=8), "decompose,dce")
    assert str(PadProducts(smallest=1).run(graph)) == str(graph)


def test_smallest_is_positive():
    with pytest.raises(PassError, match="smallest"):
        PadProducts(smallest=0)


def step_of(vocab_size):
    config = GPT2Config(vocab_size, context=256, layers=1, heads=4, width=256)
    return lower(train_graph(config, 2, 256), passes="mixed-precision{compute=bf16},cuda").plan


def moved(plan):
    return sum(traffic_of(plan, step, nest).moved for step, nest in tasks(plan))


def test_a_training_step_with_an_odd_vocabulary_is_aligned_and_moves_no_more():
    odd, even = step_of(50257), step_of(50264)
    products = [step for step in odd.steps() if isinstance(step, MatmulStep)]
    for step in products:
        for view in (step.left, step.right, step.result):
            assert view.leading * step.dtype.itemsize % 16 == 0, str(step)
            assert view.offset * step.dtype.itemsize % 16 == 0, str(step)
    assert moved(odd) <= 1.001 * moved(even)
    assert len(list(odd.steps())) == len(list(even.steps()))
