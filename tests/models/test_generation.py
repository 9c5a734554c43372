"""Decoding with a cache: logits against those that transformers gives to whole texts, and against no cache at all."""

import numpy as np
import pytest
from test_gpt2 import MICRO, MICRO_CONFIG, TINY, assert_close, micro_state

import euler_ir as ei
from euler_ir.plan.plan import CopyStep
from models.generation import reader
from models.generation.cache import decode_graph, extension_graph, prefill_graph
from models.generation.predictor import Predictor
from models.generation.reader import Reader, visible
from models.language_model import evaluation_graph
from models.nanoeuler import NanoEulerConfig

GROUPED = NanoEulerConfig(
    vocab_size=13, context=8, layers=2, heads=4, key_heads=2, head_width=4, width=12, mlp_width=20, predictions=2
)
pytestmark = pytest.mark.usefixtures("compiled_once")
ARCHITECTURES = pytest.mark.parametrize("config", [TINY, GROUPED], ids=["gpt2", "nanoeuler"])


@pytest.fixture(autouse=True)
def small_rooms(monkeypatch):
    """Rooms so small that even a micro model changes them."""
    monkeypatch.setattr(reader, "SMALLEST_ROOM", 2)


def lively_state(config):
    """Parameters far enough from each other that continuations depend on the prompt."""
    state = ei.initial_state(evaluation_graph(config, 1, 1), seed=5)
    for name in state:
        if state[name].ndim == 2:
            state[name] = state[name] * np.float32(0.5 / state[name].std())
    return state


class Uncached:
    """Logits after a text by one graph over the whole context, without a cache."""

    def __init__(self, config, state, backend):
        graph = prefill_graph(config, 1, config.context)
        self._context, self._state = config.context, state.view().add(graph)
        self._run = ei.compile(graph, backend=backend)

    def logits(self, ids):
        window = visible(ids, self._context)
        tokens = np.zeros((1, self._context), np.int32)
        tokens[0, : len(window)] = window
        return self._run(self._state, tokens=tokens, position=np.array([len(window) - 1]))["logits"][0]


@pytest.mark.parametrize("prompt", [1, 5])
def test_logits_at_every_position_are_those_of_transformers(backend, prompt):
    expected = np.load(MICRO / "forward_backward.npz")
    predictor = Predictor(MICRO_CONFIG, micro_state(evaluation_graph(MICRO_CONFIG, 1, 1)), backend=backend)
    for tokens, logits in zip(expected["x"], expected["logits"]):
        text = Reader(predictor)
        for count in range(prompt, len(tokens) + 1):
            assert_close(text.logits([tokens[:count].tolist()])[0], logits[count - 1], f"{count} tokens")


@pytest.mark.parametrize("part", [2, 7])
def test_texts_are_read_in_parts_of_any_length(backend, part):
    expected = np.load(MICRO / "forward_backward.npz")
    predictor = Predictor(MICRO_CONFIG, micro_state(evaluation_graph(MICRO_CONFIG, 1, 1)), backend=backend)
    for tokens, logits in zip(expected["x"], expected["logits"]):
        text = Reader(predictor)
        for count in (*range(1, len(tokens), part), len(tokens)):
            assert_close(text.logits([tokens[:count].tolist()])[0], logits[count - 1], f"{count} tokens")


def test_a_batch_decodes_at_a_position_of_its_own_in_each_row(backend):
    expected = np.load(MICRO / "forward_backward.npz")
    config, (tokens, logits) = MICRO_CONFIG, (expected["x"], expected["logits"])
    batch = len(tokens)
    prefill, decode = prefill_graph(config, batch, 4), decode_graph(config, batch, 8)
    state = micro_state(evaluation_graph(config, 1, 1)).add(prefill)
    position, rows = np.arange(batch) % 3, np.arange(batch)
    first = ei.compile(prefill, backend=backend)(state, tokens=np.ascontiguousarray(tokens[:, :4]), position=position)
    assert_close(first["logits"], logits[rows, position], "prompt")
    run = ei.compile(decode, backend=backend)
    for _ in range(4):
        position = position + 1
        found = run(state, tokens=np.ascontiguousarray(tokens[rows, position]), position=position)
        assert_close(found["logits"], logits[rows, position], f"positions {position}")


def test_what_is_seen_of_a_text_is_its_end_and_moves_by_half_a_context():
    sizes = {context: [len(visible(list(range(n)), context)) for n in range(1, 14)] for context in (1, 5, 8)}
    assert sizes[1] == [1] * 13
    assert sizes[5] == [1, 2, 3, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5]
    assert sizes[8] == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 5]
    assert visible([7, 8, 9], 2) == [8, 9]


@ARCHITECTURES
@pytest.mark.parametrize("prompt", [1, 11])
def test_text_is_that_without_a_cache_beyond_the_context_too(backend, config, prompt):
    """The likeliest tokens in turn: the first alone is soon the same one again and again."""
    state = lively_state(config)
    text, uncached = Reader(Predictor(config, state, backend=backend)), Uncached(config, state, backend)
    ids = [(3 * number + prompt) % 13 for number in range(prompt)]
    for number in range(14):
        logits, expected = text.logits([ids])[0], uncached.logits(ids)
        assert_close(logits, expected.astype(np.float64), f"after {len(ids)} tokens")
        assert np.argmax(logits) == np.argmax(expected)
        ids.append(int(np.argsort(logits)[-1 - number % 3]))
    assert len(set(ids[prompt:])) > 2


@ARCHITECTURES
@pytest.mark.parametrize("count", [2, 5])
def test_rows_of_a_batch_are_read_as_by_themselves(backend, config, count):
    """Of different lengths, beyond the context, while some of them end."""
    state, random = lively_state(config), np.random.default_rng(count)
    predictor, uncached = Predictor(config, state, backend=backend), Uncached(config, state, backend)
    batch = Reader(predictor, count)
    texts = [random.integers(0, 13, 1 + 3 * row).tolist() for row in range(count)]
    for step in range(12):
        for ids, logits in zip(texts, batch.logits(texts), strict=True):
            assert_close(logits, uncached.logits(ids).astype(np.float64), f"{len(ids)} tokens, step {step}")
            ids.append(int(random.integers(0, 13)))
        if step % 4 == 2 and len(texts) > 1:
            kept = random.permutation(len(texts))[1:].tolist()
            texts = [texts[row] for row in kept]
            batch.keep(kept)


@ARCHITECTURES
def test_a_text_may_change_anywhere(backend, config):
    """What it has in common with the one before is not read again, and nothing else is taken for known."""
    state, random = lively_state(config), np.random.default_rng(3)
    text, uncached = Reader(Predictor(config, state, backend=backend)), Uncached(config, state, backend)
    ids = [1, 2, 3]
    for _ in range(25):
        ids = ids[: random.integers(0, len(ids) + 1)] + random.integers(0, 13, random.integers(1, 6)).tolist()
        ids = ids[-12:]
        assert_close(text.logits([ids])[0], uncached.logits(ids).astype(np.float64), str(ids))


def test_only_what_is_new_is_read(monkeypatch):
    """Tokens that graphs are given: rooms of two and four for a turn of a conversation, one for each new token."""
    predictor, given = Predictor(TINY, lively_state(TINY)), []
    run = predictor.run

    def noted(*sizes, **inputs):
        given.append(inputs["tokens"].size)
        return run(*sizes, **inputs)

    monkeypatch.setattr(predictor, "run", noted)
    text, ids = Reader(predictor), [1, 2, 3, 4, 5, 6, 7, 8]
    for known in (ids[:4], ids[:5], ids[:7], ids, ids[:5], [2] * 5):
        text.logits([known])
    assert given == [4, 1, 2, 1, 1, 8]
    text.logits([list(range(9))])
    assert given[-1] == 8 and len(given) == 7


def test_texts_do_not_see_each_other():
    predictor = Predictor(TINY, lively_state(TINY))
    one, other, again = (Reader(predictor) for _ in range(3))
    one.logits([[1, 2]])
    other.logits([[7, 8, 9]])
    again.logits([[1, 2]])
    np.testing.assert_array_equal(one.logits([[1, 2, 3]]), again.logits([[1, 2, 3]]))


def test_the_number_of_threads_changes_no_bit():
    results = []
    for threads in (1, 2, 3):
        state = micro_state(evaluation_graph(MICRO_CONFIG, 1, 1))
        texts = Reader(Predictor(MICRO_CONFIG, state, threads=threads), 2)
        growing = ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8, 9, 1])
        results.append([texts.logits([ids, ids[1:]]).tobytes() for ids in growing])
    assert results[0] == results[1] == results[2]


@ARCHITECTURES
@pytest.mark.parametrize("batch", [1, 4])
def test_decoding_writes_the_cache_in_place_and_reads_weights_where_they_lie(batch, config):
    plan = ei.compile(decode_graph(config, batch, 8)).plan
    assert not any(isinstance(step, CopyStep) for step in plan.steps())
    roles = [buffer.role for step in plan.kernels() for nest in step.kernel.nests for buffer in nest.parameters]
    assert roles.count("inout") == 2 * config.layers
    assert plan.arena_bytes < 20_000 * batch


@pytest.mark.parametrize(("weights", "tolerance"), [("bf16", 0.02), ("i8", 0.04)])
def test_quantised_weights_give_nearly_the_same_logits(weights, tolerance):
    state = micro_state(evaluation_graph(MICRO_CONFIG, 1, 1))
    exact, quantised = (Reader(Predictor(MICRO_CONFIG, state, kind), 2) for kind in (None, weights))
    for ids in ([3, 1, 4, 1, 5], [3, 1, 4, 1, 5, 9], [3, 1, 4, 1, 5, 9, 2, 6]):
        expected, found = exact.logits([ids, ids[2:]]), quantised.logits([ids, ids[2:]])
        assert 0 < np.max(np.abs(found - expected)) < tolerance * np.max(np.abs(expected))


@pytest.mark.parametrize("build", [prefill_graph, extension_graph, decode_graph])
def test_texts_beyond_the_positions_are_refused(build):
    with pytest.raises(ValueError, match="9 tokens is more than the 8 positions"):
        build(TINY, 1, 9)


def test_positions_out_of_range_are_refused(backend):
    """In a batch they would be positions of another text."""
    state = lively_state(TINY)
    tokens = np.zeros((2, 4), np.int32)
    for build, inputs in ((prefill_graph, {}), (extension_graph, {"start": np.array([2, 0])})):
        graph = build(TINY, 2, 4)
        with pytest.raises(ei.ExecutionError, match=r"outside of 0\.\.3"):
            run = ei.compile(graph, backend=backend)
            run(state.view().add(graph), tokens=tokens, position=np.array([3, 4]), **inputs)["logits"]
    graph = decode_graph(TINY, 2, 8)
    with pytest.raises(ei.ExecutionError, match=r"outside of 0\.\.7"):
        run = ei.compile(graph, backend=backend)
        run(state.view().add(graph), tokens=tokens[:, 0].copy(), position=np.array([3, 8]))["logits"]


def test_what_an_error_kept_from_being_read_is_read_again(monkeypatch):
    state = lively_state(TINY)
    predictor, uncached = Predictor(TINY, state), Uncached(TINY, state, "cpu")
    batch = Reader(predictor, 2)
    run, calls = predictor.run, []

    def interrupted(*sizes, **inputs):
        calls.append(sizes)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return run(*sizes, **inputs)

    monkeypatch.setattr(predictor, "run", interrupted)
    texts = [[1, 2, 3], [4, 5, 6, 7]]
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            for ids in texts:
                ids.append(ids[0] + 1)
                batch.logits(texts)
    monkeypatch.setattr(predictor, "run", run)
    for ids, logits in zip(texts, batch.logits(texts)):
        assert_close(logits, uncached.logits(ids).astype(np.float64), str(ids))
