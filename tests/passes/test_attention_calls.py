"""Attention as calls: where its operands are read and its results written, and when that must not be in place."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.compiler import lower
from euler_ir.passes import ShareTransposes, optimize
from euler_ir.plan.memory import check_memory
from euler_ir.plan.plan import AttentionStep

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 5, 4


def heads(x):
    """[batch, length, heads * width] as [batch, heads, length, width]."""
    return x.reshape(BATCH, LENGTH, -1, WIDTH).transpose(0, 2, 1, 3)


def joined(x):
    return x.transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, -1)


def fused_input():
    return ei.input("x", (BATCH, LENGTH, 3 * HEADS * WIDTH))


def case(build):
    """The graph whose outputs ``build`` makes, the plan, and a check that all backends agree on its meaning."""
    with ei.Graph() as graph:
        ei.output(**build())
    plan = lower(graph).plan
    check_memory(plan)
    random = np.random.default_rng(0)
    arrays = {leaf.name: random.standard_normal(leaf.shape).astype(leaf.dtype.numpy) for leaf in graph.inputs}
    want, _ = interpreter.run(graph, arrays)
    for backend in ("reference", "cpu"):
        got = ei.compile(graph, backend=backend)(**arrays)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5, err_msg=f"{name} on {backend}")
    return plan, [step for step in plan.steps() if isinstance(step, AttentionStep)]


def test_a_fused_projection_is_read_and_written_in_place():
    def build():
        x = fused_input()
        mixed = joined(ei.attention(*heads(x).split(3, axis=1)))
        return dict(gradient=ei.gradient((mixed * mixed).sum(), [x])[0] * 2.0)

    plan, (forward, backward) = case(build)
    assert [view.offset for view in forward.operands] == [0, 12, 24]
    assert [view.offset for view in backward.results] == [0, 12, 24]
    assert {view.leading for view in (*forward.operands, *backward.operands[:3], *backward.results)} == {36}
    assert forward.results[0].leading == 12 and len({view.buffer for view in backward.results}) == 1


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)])
def test_gradients_are_written_in_the_order_in_which_they_are_joined(order):
    def build():
        operands = [ei.input(name, (BATCH, HEADS, LENGTH, WIDTH)) for name in "qkv"]
        gradients = ei.gradient((ei.attention(*operands) ** 2.0).sum(), operands)
        return dict(whole=ei.concatenate([gradients[part] for part in order], axis=1).transpose(0, 2, 1, 3) * 2.0)

    _, (_, backward) = case(build)
    assert [backward.results[part].offset for part in order] == [0, 12, 24]
    assert {view.leading for view in backward.results} == {36}


def test_joined_with_something_else_they_are_copied():
    def build():
        operands = [ei.input(name, (BATCH, HEADS, LENGTH, WIDTH)) for name in "qkv"]
        gradients = ei.gradient((ei.attention(*operands) ** 2.0).sum(), operands)
        return dict(whole=ei.concatenate([*gradients, ei.exp(operands[0])], axis=1) * 2.0)

    _, (_, backward) = case(build)
    assert len({view.buffer for view in backward.results}) == 3


def test_gradients_that_others_read_too_lie_apart():
    def build():
        operands = [ei.input(name, (BATCH, HEADS, LENGTH, WIDTH)) for name in "qkv"]
        gradients = ei.gradient((ei.attention(*operands) ** 2.0).sum(), operands)
        return dict(whole=ei.concatenate(gradients, axis=1) * 2.0, norm=(gradients[1] ** 2.0).sum())

    _, (_, backward) = case(build)
    assert len({view.buffer for view in backward.results}) == 3


def test_rows_that_are_not_contiguous_are_copied():
    def build():
        turned = ei.input("k", (BATCH, HEADS, WIDTH, LENGTH)).transpose(0, 1, 3, 2)
        query, value = (ei.input(name, (BATCH, HEADS, LENGTH, WIDTH)) for name in "qv")
        return dict(y=ei.attention(query, turned, value[..., ::2]))

    _, (step,) = case(build)
    assert [view.leading for view in step.operands] == [WIDTH, WIDTH, WIDTH // 2]


def test_an_output_that_is_asked_for_stays_as_it_is():
    def build():
        mixed = ei.attention(*heads(fused_input()).split(3, axis=1))
        return dict(mixed=mixed, turned=joined(mixed))

    _, (step,) = case(build)
    assert step.results[0].leading == WIDTH


def test_batches_that_no_two_strides_step_over():
    def build():
        x = ei.input("x", (2, 3, 5, 2, 3, 4))
        query, key, value = (x[:, :, :, :, part].transpose(0, 3, 1, 2, 4) for part in range(3))
        return dict(y=ei.attention(query, key, value, causal=False))

    _, (step,) = case(build)
    assert len(step.batch) <= 2


def test_shared_keys_and_the_gradient_of_the_logsumexp():
    def build():
        query = ei.input("q", (BATCH, HEADS, LENGTH, WIDTH))
        key = ei.input("k", (BATCH, 1, LENGTH, WIDTH)).broadcast_to(query.shape)
        out, logsumexp = ei.attention_with_logsumexp(query, key, key)
        loss = (logsumexp * ei.input("weight", (BATCH, HEADS, LENGTH))).sum()
        only = ei.gradient(loss, [query])[0]
        return dict(only=only, both=ei.gradient(loss + (out * out).sum(), [query])[0])

    _, steps = case(build)
    assert [step.operator for step in steps] == ["attention", "attention_gradient", "attention_gradient"]
    assert steps[0].operands[1].batch_strides[-1] == 0


@pytest.mark.parametrize("key_heads", [1, 2])
def test_heads_that_share_keys_read_them_in_place(key_heads):
    """Nothing of the keys and values is repeated, forwards or backwards, and no gradient of them is added up later."""

    def build():
        size = (6 + 2 * key_heads) * WIDTH
        x = ei.input("x", (BATCH, LENGTH, size))
        by_head = heads(x)
        query, key, value = by_head[:, :6], by_head[:, 6 : 6 + key_heads], by_head[:, 6 + key_heads :]
        mixed = joined(ei.attention(query, key, value))
        return dict(gradient=ei.gradient((mixed * mixed).sum(), [x])[0] * 2.0)

    plan, (forward, backward) = case(build)
    assert forward.group == backward.group == 6 // key_heads and forward.batch[-1] == forward.group
    query, key, value = forward.operands
    assert {view.leading for view in forward.operands} == {plan.buffers[query.buffer].type.shape[-1]}
    assert query.batch_strides[-1] == WIDTH and key.batch_strides[-1] == value.batch_strides[-1] == 0
    assert [view.batch_strides[-1] for view in backward.results] == [WIDTH, 0, 0]
    assert [view.offset for view in backward.results] == [0, 6 * WIDTH, (6 + key_heads) * WIDTH]
    assert len({view.buffer for view in backward.results}) == 1


def test_where_texts_begin_is_read_in_place():
    def build():
        x, starts = fused_input(), ei.input("starts", (3, LENGTH), ei.i64)
        mixed = joined(ei.attention(*heads(x).split(3, axis=1), visible_from=starts[2]))
        return dict(gradient=ei.gradient((mixed * mixed).sum(), [x])[0])

    plan, steps = case(build)
    for step in steps:
        view = step.operands[-1]
        assert plan.buffers[view.buffer].type.shape == (3, LENGTH)
        assert view.offset == 2 * LENGTH and set(view.batch_strides) == {0}


def test_what_has_no_elements_is_no_call():
    def build():
        query, key = ei.input("q", (2, 3, 4)), ei.input("k", (2, 0, 4))
        return dict(y=ei.attention(query, key, key))

    _, steps = case(build)
    assert not steps


# -- one layout for all readers ----------------------------------------------------------------------------------------


def shared(build):
    """Readers of the attention's output after the pass: their names."""
    with ei.Graph() as graph:
        query = ei.input("q", (BATCH, HEADS, LENGTH, WIDTH))
        out = ei.attention(query, query, query)
        ei.output(**build(out))
    found = ShareTransposes().run(graph)
    (op,) = (op for op in found.ops if op.name == "attention")
    return [reader.name for reader in found.uses().get(op.result, ())]


def test_other_readers_read_the_transpose():
    assert shared(lambda out: dict(y=out.transpose(0, 2, 1, 3), z=ei.exp(out))) == ["transpose"]
    assert shared(lambda out: dict(z=ei.exp(out), y=out.transpose(0, 2, 1, 3))) == ["transpose"]


def test_two_transposes_an_output_or_none_leave_it():
    two = shared(lambda out: dict(y=out.transpose(0, 2, 1, 3), z=out.transpose(1, 0, 2, 3), e=ei.exp(out)))
    assert two == ["transpose", "transpose", "exp"]
    assert shared(lambda out: dict(y=out.transpose(0, 2, 1, 3), out=out, z=ei.exp(out))) == ["transpose", "exp"]
    assert shared(lambda out: dict(y=ei.exp(out), z=ei.tanh(out))) == ["exp", "tanh"]


def test_the_whole_pipeline_ends_with_shared_transposes():
    with ei.Graph() as graph:
        x = fused_input()
        mixed = joined(ei.attention(*heads(x).split(3, axis=1)))
        ei.output(gradient=ei.gradient((mixed * mixed).sum(), [x])[0])
    found = optimize(graph)
    (op,) = (op for op in found.ops if op.name == "attention")
    assert [reader.name for reader in found.uses()[op.result]] == ["transpose"]
