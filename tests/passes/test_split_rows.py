"""Splitting rows: the same numbers, no large tensor left, nothing computed twice; and what must stay whole does."""

import math

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.compiler import lower
from euler_ir.initializers import Normal
from euler_ir.passes import PIPELINE, Decompose, MergeEqual, RemoveDead, SplitRows
from euler_ir.plan.memory import check_memory
from euler_ir.verify import verify
from models.gpt2 import PRESETS, GPT2Config
from models.language_model import evaluation_graph, train_graph

WIDTH, CLASSES, IGNORED = 8, 96, -1


def head(batch, length, loss_of, bias=False, dtype=ei.f32, outputs=()):
    """A linear head on features, its loss, and its gradients; ``outputs`` names more values to give out."""
    with ei.Graph("head") as graph:
        x = ei.input("x", (batch, length, WIDTH), dtype)
        labels = ei.input("labels", (batch, length), ei.i32)
        weight = ei.parameter("weight", (CLASSES, WIDTH), Normal(1.0), dtype)
        wanted = [x, weight]
        logits = ei.matmul(x, weight, transpose_right=True)
        if bias:
            wanted.append(ei.parameter("bias", (CLASSES,), Normal(1.0), dtype))
            logits = logits + wanted[-1]
        loss = loss_of(logits, labels)
        gradients = dict(zip(("dx", "dweight", "dbias"), ei.gradient(loss, wanted)))
        values = {"loss": loss, **gradients, "logits": logits, "probabilities": ei.softmax(logits)}
        ei.output(**{name: values[name] for name in ("loss", *gradients, *outputs)})
    return graph


def mean_loss(logits, labels):
    count = ei.maximum(ei.sum(ei.not_equal(labels, IGNORED)), 1).cast(ei.f32)
    return ei.sum(ei.cross_entropy(logits, labels, ignore_index=IGNORED).cast(ei.f32)) / count


def primitive(graph):
    for each in (Decompose(), MergeEqual(), RemoveDead()):
        graph = each.run(graph)
    return graph


def split(graph, rows=128, itemsize=4):
    """``graph`` before and after the pass, with blocks of ``rows`` rows of all classes."""
    before = primitive(graph)
    after = RemoveDead().run(MergeEqual().run(SplitRows(rows * CLASSES * itemsize).run(before)))
    verify(after)
    return before, after


def arrays(batch, length, labels=None, dtype=np.float32):
    random = np.random.default_rng(7)
    given = random.integers(0, CLASSES, (batch, length)).astype(np.int32) if labels is None else labels
    given[0, 3] = IGNORED
    return {
        "x": random.standard_normal((batch, length, WIDTH)).astype(dtype),
        "labels": given,
        "weight": random.standard_normal((CLASSES, WIDTH)).astype(dtype),
        "bias": random.standard_normal(CLASSES).astype(dtype),
    }


def in_f64(leaves, bias):
    """Loss and gradients by their formulas, in float64."""
    x, weight = leaves["x"].astype(np.float64).reshape(-1, WIDTH), leaves["weight"].astype(np.float64)
    labels = leaves["labels"].reshape(-1)
    counts = labels != IGNORED
    logits = x @ weight.T + (leaves["bias"].astype(np.float64) if bias else 0)
    grown = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = grown / grown.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels])[counts].mean()
    probabilities[rows, labels] -= 1
    d = probabilities * counts[:, None] / counts.sum()
    dx = (d @ weight).reshape(leaves["x"].shape)
    return {"loss": loss, "dx": dx, "dweight": d.T @ x, **({"dbias": d.sum(0)} if bias else {})}


def flops(graph):
    return sum(
        2 * op.result.size * op.operands[0].shape[-2 if op.attributes["transpose_left"] else -1]
        for op in graph.ops
        if op.name == "matmul"
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("batch", "length", "blocks"), [(2, 192, 3), (1, 256, 2), (7, 53, 2)])
def test_loss_and_gradients_are_those_of_float64(batch, length, blocks, bias):
    before, after = split(head(batch, length, mean_loss, bias))
    large = batch * length * CLASSES
    assert any(op.result.size == large for op in before.ops)
    assert max(op.result.size for op in after.ops) <= -(-large // blocks) + CLASSES
    assert flops(after) == flops(before)
    leaves = arrays(batch, length)
    found, wanted = interpreter.run(after, leaves)[0], in_f64(leaves, bias)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6 * np.abs(value).max(), err_msg=name)


def test_the_weight_gradient_is_a_running_sum_of_products():
    _, after = split(head(1, 512, mean_loss))
    total = after.outputs["dweight"]
    for _ in range(3):
        assert total.op.name == "add" and total.op.operands[1].op.name == "matmul"
        total = total.op.operands[0]
    assert total.op.name == "matmul"


def test_a_label_that_is_no_class_makes_its_own_loss_nan():
    labels = np.zeros((1, 256), np.int32)
    labels[0, 200] = CLASSES
    before, after = split(head(1, 256, mean_loss))
    leaves = arrays(1, 256, labels)
    for graph in (before, after):
        outputs = interpreter.run(graph, leaves)[0]
        assert np.isnan(outputs["loss"]) and np.isnan(outputs["dweight"]).all()
        assert np.array_equal(np.isnan(outputs["dx"]).any(-1)[0], np.arange(256) == 200)


def test_products_of_halves_stay_such_and_are_summed_in_f32():
    before, after = split(head(4, 128, mean_loss, bias=True, dtype=ei.bf16), itemsize=2)
    assert after.outputs["dweight"].dtype == ei.bf16
    assert {op.result.dtype for op in after.ops if op.name == "matmul"} == {ei.bf16}
    leaves = arrays(4, 128, dtype=ei.bf16.numpy)
    wanted, found = (interpreter.run(graph, leaves)[0] for graph in (before, after))
    for name in ("dweight", "dbias"):
        exact = wanted[name].astype(np.float64)
        # Each block's product is rounded to bf16, and then their sum.
        np.testing.assert_allclose(found[name].astype(np.float64), exact, rtol=2**-7, atol=1e-3 * np.abs(exact).max())


def test_a_graph_without_gradients_is_split_too():
    with ei.Graph() as graph:
        x, labels = ei.input("x", (256, WIDTH)), ei.input("labels", (256,), ei.i32)
        weight = ei.parameter("weight", (WIDTH, CLASSES), Normal(1.0))
        ei.output(loss=ei.cross_entropy(x @ weight, labels), best=ei.max(x @ weight, axes=1))
    before, after = split(graph)
    assert max(op.result.size for op in after.ops) == 128 * CLASSES
    random = np.random.default_rng(0)
    leaves = {
        "x": random.standard_normal((256, WIDTH)).astype(np.float32),
        "labels": random.integers(0, CLASSES, 256).astype(np.int32),
        "weight": random.standard_normal((WIDTH, CLASSES)).astype(np.float32),
    }
    wanted, found = (interpreter.run(each, leaves)[0] for each in (before, after))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5)


def test_two_heads_are_both_split():
    def loss_of(logits, labels):
        other = ei.matmul(logits.graph.leaf("x"), logits.graph.parameter("second", (WIDTH, CLASSES), Normal(1.0)))
        return mean_loss(logits, labels) + 2 * mean_loss(other, labels)

    before, after = split(head(1, 256, loss_of))
    assert max(op.result.size for op in after.ops) == 128 * CLASSES
    assert flops(after) == flops(before)
    leaves = arrays(1, 256) | {"second": np.random.default_rng(1).standard_normal((WIDTH, CLASSES)).astype(np.float32)}
    wanted, found = (interpreter.run(each, leaves)[0] for each in (before, after))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-6)


def test_random_numbers_stay_those_of_the_whole():
    def loss_of(logits, labels):
        return mean_loss(ei.tensor.dropout(logits, 0.5, 1, 2), labels)

    before, after = split(head(2, 128, loss_of))
    assert sum(op.name == "exp" for op in after.ops) == 2
    wanted, found = (interpreter.run(graph, arrays(2, 128))[0] for graph in (before, after))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("outputs", [("logits",), ("probabilities",)])
def test_what_a_call_returns_stays_whole(outputs):
    before, after = split(head(1, 256, mean_loss, outputs=outputs))
    assert str(after) == str(before)


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda logits, labels: mean_loss(logits, labels) ** 2,
        lambda logits, labels: mean_loss(logits - ei.max(logits, axes=1)[:, None], labels),
        lambda logits, labels: ei.sum(logits.transpose(2, 1, 0).sum(0)) + mean_loss(logits, labels),
    ],
    ids=["the gradient needs the whole loss", "rows of one another", "transposed"],
)
def test_what_needs_all_rows_at_once_stays_whole(loss_of):
    before, after = split(head(1, 256, loss_of))
    assert str(after) == str(before)


def test_rows_are_not_taken_for_columns_where_there_are_as_many():
    with ei.Graph() as graph:
        x, weight = ei.input("x", (256, WIDTH)), ei.parameter("weight", (WIDTH, 256), Normal(1.0))
        logits = x @ weight
        by_row = ei.sum(logits - ei.max(logits, axes=1)[:, None], axes=1)
        ei.output(by_row=by_row, y=ei.sum(ei.exp(x @ weight + weight[0]), 1))
        ei.output(mixed=ei.sum(ei.exp(logits) - ei.max(logits, axes=1), axes=1))
    before, after = split(graph, rows=256)
    leaves = {"x": np.random.default_rng(0).standard_normal((256, WIDTH)).astype(np.float32)}
    leaves["weight"] = leaves["x"].T.copy()
    wanted, found = (interpreter.run(each, leaves)[0] for each in (before, after))
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_blocks_keep_enough_rows_and_stay_few():
    _, after = split(head(1, 256, mean_loss), rows=16)
    assert min(op.result.shape[0] for op in after.ops if op.name == "exp") == 128
    _, after = split(head(1, 300, mean_loss), rows=1)
    assert {op.result.shape[0] for op in after.ops if op.name == "exp"} == {150}
    before, after = split(head(1, 129, mean_loss), rows=1)
    assert str(after) == str(before)
    _, after = split(head(1, 128 * 64, mean_loss), rows=1)
    assert sum(op.name == "exp" for op in after.ops) == 16


def test_small_logits_are_left_alone():
    graph = primitive(train_graph(PRESETS["nano"], 16, 128))
    assert str(SplitRows().run(graph)) == str(graph)


@pytest.mark.parametrize("build", [train_graph, evaluation_graph])
def test_a_plan_holds_one_block_of_logits_at_a_time(build):
    config = GPT2Config(4001, 128, layers=1, heads=2, width=16)
    logits = math.prod((8, 128, config.vocab_size)) * 4
    plan = lower(build(config, 8, 128), passes=_pipeline(logits // 4)).plan
    check_memory(plan)
    assert logits / 4 < plan.arena_bytes < logits / 2


def _pipeline(block_bytes):
    return [SplitRows(block_bytes) if each.name == SplitRows.name else each for each in PIPELINE]


def test_a_trained_model_is_the_same_up_to_rounding():
    config = GPT2Config(300, 256, layers=1, heads=2, width=16)
    graph = train_graph(config, 2, 256)
    tokens = np.random.default_rng(0).integers(0, 300, (2, 256)).astype(np.int32)
    targets = np.where(tokens % 5 == 0, -100, tokens).astype(np.int32)
    results = []
    for passes in (_pipeline(1 << 40), _pipeline(128 * 300 * 4)):
        state, step = ei.initial_state(graph), ei.compile(graph, passes=passes)
        for _ in range(2):
            outputs = step(state, tokens=tokens, targets=targets, learning_rate=np.float32(1e-3))
        results.append(outputs | {"wte": state["optim.m.wte.weight"].copy()})
    for name in results[0]:
        np.testing.assert_allclose(results[1][name], results[0][name], rtol=1e-4, atol=1e-7, err_msg=name)
