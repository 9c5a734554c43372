"""Decoding with a cache: logits against those that transformers gives to whole texts, and against no cache at all."""

import numpy as np
import pytest
from test_gpt2 import MICRO, TINY, assert_close, micro_config, micro_state

import euler_ir as ei
from euler_ir.plan.plan import CopyStep
from models.generation import predictor
from models.generation.cache import decode_graph, prefill_graph
from models.generation.predictor import Predictor
from models.language_model import evaluation_graph


@pytest.fixture(autouse=True)
def small_rooms(monkeypatch):
    """Rooms so small that even a micro model changes them."""
    monkeypatch.setattr(predictor, "SMALLEST_ROOM", 4)


def lively_state(config):
    """Parameters far enough from each other that continuations depend on the prompt."""
    state = ei.initial_state(evaluation_graph(config, 1, 1), seed=5)
    for name in state:
        if name.endswith("weight") and "ln" not in name:
            state[name] = state[name] * np.float32(30)
    return state


def uncached(config, state, ids, backend):
    """Logits after `ids` by one graph over the whole context."""
    graph = prefill_graph(config, 1, config.context)
    window = ids[-config.context :]
    tokens = np.zeros((1, config.context), np.int32)
    tokens[0, : len(window)] = window
    state = state.view().add(graph)
    return ei.compile(graph, backend=backend)(state, tokens=tokens, position=len(window) - 1)["logits"][0]


@pytest.mark.parametrize("prompt", [1, 2, 5])
def test_logits_at_every_position_are_those_of_transformers(backend, prompt):
    expected = np.load(MICRO / "forward_backward.npz")
    config = micro_config()
    state = micro_state(evaluation_graph(config, 1, 1))
    predictor = Predictor(config, state, backend=backend)
    for tokens, logits in zip(expected["x"], expected["logits"]):
        text = predictor.begin()
        assert_close(text.read(tokens[:prompt].tolist()), logits[prompt - 1], f"prompt of {prompt}")
        for position in range(prompt, len(tokens)):
            assert_close(text.read([int(tokens[position])]), logits[position], f"position {position}")


def test_a_batch_decodes_as_its_rows_do(backend):
    expected = np.load(MICRO / "forward_backward.npz")
    config, (tokens, logits) = micro_config(), (expected["x"], expected["logits"])
    batch = len(tokens)
    prefill, decode = prefill_graph(config, batch, 4), decode_graph(config, batch, 8)
    state = micro_state(evaluation_graph(config, 1, 1)).add(prefill)
    first = ei.compile(prefill, backend=backend)(state, tokens=np.ascontiguousarray(tokens[:, :4]), position=2)
    assert_close(first["logits"], logits[:, 2], "prompt")
    run = ei.compile(decode, backend=backend)
    for position in range(3, 8):
        found = run(state, tokens=np.ascontiguousarray(tokens[:, position]), position=position)
        assert_close(found["logits"], logits[:, position], f"position {position}")


@pytest.mark.parametrize("prompt", [1, 3, 8, 11])
def test_text_is_that_without_a_cache_beyond_the_context_too(backend, prompt):
    """The likeliest tokens in turn: the first alone is soon the same one again and again."""
    state = lively_state(TINY)
    text = Predictor(TINY, state, backend=backend).begin()
    ids = [(3 * number + prompt) % 13 for number in range(prompt)]
    new = list(ids)
    for number in range(14):
        logits, expected = text.read(new), uncached(TINY, state, ids, backend)
        assert_close(logits, expected.astype(np.float64), f"after {len(ids)} tokens")
        assert np.argmax(logits) == np.argmax(expected)
        new = [int(np.argsort(logits)[-1 - number % 3])]
        ids += new
    assert len(set(ids[prompt:])) > 2


def test_texts_do_not_see_each_other():
    predictor = Predictor(TINY, lively_state(TINY))
    one, other = predictor.begin(), predictor.begin()
    one.read([1, 2])
    other.read([7, 8, 9])
    again = predictor.begin()
    again.read([1, 2])
    np.testing.assert_array_equal(one.read([3]), again.read([3]))


def test_the_number_of_threads_changes_no_bit():
    results = []
    for threads in (1, 2, 3):
        text = Predictor(micro_config(), micro_state(evaluation_graph(micro_config(), 1, 1)), threads=threads).begin()
        results.append([text.read(ids).tobytes() for ids in ([5, 6, 7], [8], [9])])
    assert results[0] == results[1] == results[2]


def test_decoding_writes_the_cache_in_place_and_reads_weights_where_they_lie():
    plan = ei.compile(decode_graph(TINY, 1, 8)).plan
    assert not any(isinstance(step, CopyStep) for step in plan.steps())
    roles = [buffer.role for step in plan.kernels() for nest in step.kernel.nests for buffer in nest.parameters]
    assert roles.count("inout") == 2 * TINY.layers
    assert plan.arena_bytes < 20_000


@pytest.mark.parametrize(("weights", "tolerance"), [("bf16", 0.02), ("i8", 0.03)])
def test_quantised_weights_give_nearly_the_same_logits(weights, tolerance):
    state = micro_state(evaluation_graph(micro_config(), 1, 1))
    exact, quantised = Predictor(micro_config(), state).begin(), Predictor(micro_config(), state, weights).begin()
    for ids in ([3, 1, 4, 1, 5], [9], [2], [6]):
        expected, found = exact.read(ids), quantised.read(ids)
        assert 0 < np.max(np.abs(found - expected)) < tolerance * np.max(np.abs(expected))


def test_texts_beyond_the_positions_are_refused():
    with pytest.raises(ValueError, match="9 tokens is more than the 8 positions"):
        prefill_graph(TINY, 1, 9)
    with pytest.raises(ValueError, match="9 tokens is more than the 8 positions"):
        decode_graph(TINY, 1, 9)
