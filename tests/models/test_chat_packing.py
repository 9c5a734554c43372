"""Conversations in rows: what fits, how they are packed, and that each is learned from as if it were alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import euler_ir as ei
from euler_ir import optim
from euler_ir.compiler import lower
from euler_ir.plan.plan import AttentionStep
from models.chat.conversation import Rendered, render
from models.chat.packing import PackedBatches, filled, fitting, next_trained_token, pack, shifted
from models.data.batches import IGNORED_LABEL
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph, next_token, train_graph
from models.nanoeuler import NanoEulerConfig
from models.tokenizer.bpe import Tokenizer

BYTES = Tokenizer([], ["<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"])
USER, ASSISTANT, END = 257, 258, 260
CONFIG = GPT2Config(BYTES.vocab_size, 24, layers=2, heads=2, width=8)
NANOEULER = NanoEulerConfig(
    vocab_size=BYTES.vocab_size, context=24, layers=2, heads=4, key_heads=2, head_width=4, width=8, mlp_width=12
)
_ = IGNORED_LABEL  # for tables of targets


def text(*contents):
    roles = ["user", "assistant"] * len(contents)
    return render([{"role": role, "content": content} for role, content in zip(roles, contents)], BYTES)


def test_one_place_shifts_by_one():
    """Prompt [A], answer [B, end]: exactly two targets, at the places of what is before them."""
    tokens, targets = shifted(Rendered([7, 8, 9], [False, True, True]))
    assert tokens.tolist() == [7, 8] and targets.tolist() == [8, 9]
    tokens, targets = shifted(text("A", "B"))
    assert tokens.tolist() == [USER, 32, END, ASSISTANT, 33]
    assert targets.tolist() == [_, _, _, 33, END]


def test_the_text_of_a_user_changes_no_target():
    first, second = shifted(text("A", "B", "AA", "BB")), shifted(text("!", "B", "??", "BB"))
    assert first[1].tolist() == second[1].tolist() and first[0].tolist() != second[0].tolist()


def test_what_does_not_fit_is_cut_after_an_answer_or_left_out():
    rendered = text("A", "B", "AA", "BB")  # turns of 3, 3, 4 and 4 ids
    whole, cut = shifted(rendered), shifted(text("A", "B"))
    for context in range(16):
        found, wanted = fitting(rendered, context), whole if context >= 13 else cut if context >= 5 else None
        assert (found is None) == (wanted is None)
        assert wanted is None or all(np.array_equal(*pair) for pair in zip(found, wanted)), context
    assert fitting(text("A" * 30, "B"), 24) is None
    last = Rendered(rendered.ids, [False] * 11 + rendered.trained[11:])
    assert fitting(last, 12) is None and fitting(last, 13)[1].tolist() == [_] * 10 + [33, 33, END]


def test_an_untrained_end_is_left_out():
    asks_again = text("A", "B", "AAAA")
    assert [part.tolist() for part in fitting(asks_again, 24)] == [part.tolist() for part in shifted(text("A", "B"))]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_packing_keeps_every_text_once_and_no_row_overflows(lengths):
    texts = [(np.full(length, index, np.int32),) * 2 for index, length in enumerate(lengths)]
    rows = pack(texts, 20)
    assert sorted(index for row in rows for index in row) == list(range(len(texts)))
    assert all(sum(lengths[index] for index in row) <= 20 for row in rows)
    # Any two rows of a best fit hold more than one row can.
    sums = sorted(sum(lengths[index] for index in row) for row in rows)
    assert len(sums) < 2 or sums[0] + sums[1] > 20
    inputs = filled(texts, rows, len(rows) + 1, 20)
    for row, indices in enumerate(rows):
        assert inputs["tokens"][row].tolist() == [i for i in indices for _ in range(lengths[i])] + [0] * (
            20 - sum(lengths[i] for i in indices)
        )
        expected = [place for i in indices for place in range(lengths[i])]
        assert inputs["positions"][row].tolist()[: len(expected)] == expected
        assert (inputs["targets"][row, len(expected) :] == IGNORED_LABEL).all()
    assert (inputs["targets"][-1] == IGNORED_LABEL).all()


CONTENTS = ("A", "B"), ("to be", "or not", "?", "!"), ("x", ""), ("!" * 9, "yes")
TEXTS = [shifted(text(*contents)) for contents in CONTENTS]


def gradients_graph(objective, batch, context, config=CONFIG):
    with ei.Graph("gradients") as graph:
        total, count, _ = objective(config, batch, context, training=False)
        by = optim.gradients(total)
        ei.output(loss=total, count=count, **{p.op.attributes["name"].replace(".", "_"): g for p, g in by.items()})
    return graph


@pytest.mark.parametrize(
    "config, backend",
    [(CONFIG, "reference"), (CONFIG, "cpu"), (NANOEULER, "reference")],
    ids=["gpt2", "gpt2-cpu", "nanoeuler"],
)
def test_packed_loss_and_gradients_are_the_sums_of_each_alone(config, backend):
    rows = pack(TEXTS, 24)
    assert any(len(row) > 1 for row in rows)
    graph = gradients_graph(next_trained_token, len(rows) + 1, 24, config)
    state = ei.initial_state(graph, seed=2)
    for name in state:  # LayerNorm's ones and zeros would hide what is not read
        state[name] = np.random.default_rng(len(name)).normal(0, 0.3, state[name].shape).astype(np.float32)
    packed = ei.compile(graph, backend=backend)(state, **filled(TEXTS, rows, len(rows) + 1, 24))
    sums = {}
    for tokens, targets in TEXTS:
        alone = gradients_graph(next_token, 1, len(tokens), config)
        found = ei.compile(alone, backend=backend)(state, tokens=tokens[None], targets=targets[None])
        for name, value in found.items():
            sums[name] = sums.get(name, 0) + np.asarray(value, np.float64)
    assert packed["count"] == sums["count"] == sum((targets >= 0).sum() for _, targets in TEXTS)
    for name, value in sums.items():
        np.testing.assert_allclose(packed[name], value, rtol=2e-5, atol=2e-5, err_msg=name)


def test_a_neighbour_has_no_influence():
    graph = gradients_graph(next_trained_token, 1, 24)
    state = ei.initial_state(graph, seed=2)
    lone = filled(TEXTS, [[0]], 1, 24)
    loss = ei.compile(graph, backend="reference")(state, **lone)["loss"]
    both = filled(TEXTS, [[0, 3]], 1, 24)
    both["targets"][0, len(TEXTS[0][0]) :] = IGNORED_LABEL
    changed = {name: array.copy() for name, array in both.items()}
    changed["tokens"][0, len(TEXTS[0][0]) :] = 50
    for inputs in (both, changed):
        np.testing.assert_allclose(ei.compile(graph, backend="reference")(state, **inputs)["loss"], loss, rtol=1e-6)


def test_every_pass_takes_every_row_once_and_the_last_step_is_filled_up():
    texts = [(np.array([index, index], np.int32), np.array([5, 6], np.int32)) for index in range(7)]
    batches = PackedBatches(texts, batch_size=2, accumulate=2, context=2, seed=1)
    assert (batches.passes.count, batches.passes.steps) == (7, 2)
    passes = []
    for number in range(3):
        seen = []
        for step in (2 * number, 2 * number + 1):
            for micro_step in range(2):
                inputs = batches.batch(step, micro_step)
                assert all(array.shape == (2, 2) and array.dtype == np.int32 for array in inputs.values())
                seen += inputs["tokens"][inputs["targets"] != IGNORED_LABEL].tolist()[::2]
        assert sorted(seen) == list(range(7))
        passes.append(seen)
    assert passes[0] != passes[1] != passes[2]
    again = PackedBatches(texts, 2, 2, 2, seed=1).batch(5, 1)
    assert all(np.array_equal(again[name], array) for name, array in batches.batch(5, 1).items())
    assert not np.array_equal(PackedBatches(texts, 2, 2, 2, seed=2).batch(0)["tokens"], batches.batch(0)["tokens"])


@pytest.mark.parametrize("config", [CONFIG, NANOEULER], ids=["gpt2", "nanoeuler"])
def test_a_step_keeps_nothing_of_the_size_of_all_pairs_of_places(config):
    context = 29  # as long as nothing else is
    plan = lower(train_graph(replace(config, context=context), 3, context, objective=next_trained_token)).plan
    assert not [buffer for buffer in plan.buffers if buffer.type.shape[-2:] == (context, context)]
    attentions = [step for step in plan.steps() if isinstance(step, AttentionStep)]
    assert len(attentions) == 2 * config.layers and all(step.has_visible_from for step in attentions)
    # One number for each place: all heads read the same.
    assert {plan.buffers[step.operands[-1].buffer].type.size for step in attentions} == {3 * context}


def test_nothing_to_learn_is_no_nan():
    graph = train_graph(CONFIG, 2, 24, objective=next_trained_token)
    state = ei.initial_state(graph)
    outputs = ei.compile(graph, backend="reference")(state, learning_rate=np.float32(0.1), **filled([], [], 2, 24))
    assert outputs["loss"] == 0 and outputs["gradient_norm"] == 0
    assert all(np.isfinite(array).all() for array in state.values())
    with pytest.raises(ValueError, match="No conversation fits into 24 tokens"):
        PackedBatches([], 2, 1, 24, 0)


def test_longer_rows_than_the_model_reads_are_refused():
    with pytest.raises(ValueError, match="25 tokens is more than the 24 positions"):
        evaluation_graph(CONFIG, 1, 25, objective=next_trained_token)
