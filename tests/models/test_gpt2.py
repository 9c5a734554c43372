"""GPT-2 against numbers made with transformers and torch (tests/data/gpt2_micro), and against published sizes."""

from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import optim
from models.data.batches import IGNORED_LABEL
from models.generation.cache import prefill_graph
from models.gpt2 import GPT2, PRESETS, GPT2Config
from models.huggingface import read_gpt2
from models.language_model import WholeTexts, accumulation_graphs, evaluation_graph, train_graph

MICRO = Path(__file__).parents[1] / "data" / "gpt2_micro"
MICRO_CONFIG = read_gpt2(MICRO)[0]
TINY = GPT2Config(vocab_size=13, context=8, layers=2, heads=2, width=8)


def micro_state(*graphs):
    state = ei.initial_state(*graphs)
    weights = read_gpt2(MICRO)[1]
    assert weights.keys() == {parameter.op.attributes["name"] for graph in graphs for parameter in graph.parameters}
    for name, array in weights.items():
        state[name] = array
    return state


def assert_close(actual, expected, what, tolerance=2e-5):
    """Differences within `tolerance` of the largest magnitude: what rounding in f32 explains."""
    assert actual.shape == expected.shape, what
    error = np.max(np.abs(actual.astype(np.float64) - expected)) / np.max(np.abs(expected))
    assert error < tolerance, f"{what} is off by {error:.1e} of its largest value"


def test_logits_hidden_states_and_gradients_are_those_of_transformers(backend):
    expected = np.load(MICRO / "forward_backward.npz")
    x, targets = expected["x"], expected["targets"]
    with ei.Graph() as graph:
        model = GPT2(MICRO_CONFIG)
        tokens, labels = ei.input("tokens", x.shape, ei.i32), ei.input("targets", x.shape, ei.i32)
        hidden = []
        for block in model.h:
            block.forward = recorded(block.forward, hidden)
        features = model(tokens, WholeTexts(x.shape[1]))
        logits = model.logits(features)
        losses = ei.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
        loss = losses.sum() / ei.not_equal(labels, IGNORED_LABEL).sum().cast(ei.f32)
        gradients = optim.gradients(loss)
        ei.output(logits=logits, loss=loss, hidden_0=hidden[0], hidden_1=hidden[1], hidden_2=features)
        ei.output(**{"grad:transformer." + key.op.attributes["name"]: value for key, value in gradients.items()})
    found = ei.compile(graph, backend=backend)(micro_state(graph), tokens=x, targets=targets)

    compared = set(expected.files) - {"x", "targets"}
    assert compared == found.keys()
    for name in compared:
        assert_close(found[name], expected[name], name)


def recorded(forward, inputs):
    def wrapper(x, *rest):
        inputs.append(x)
        return forward(x, *rest)

    return wrapper


def test_twenty_steps_of_adamw_are_those_of_torch(backend):
    expected = np.load(MICRO / "adamw_20_steps.npz")
    batches = expected["batches"]
    graph = train_graph(MICRO_CONFIG, batches.shape[1], batches.shape[2] - 1)
    state = micro_state(graph)
    step = ei.compile(graph, backend=backend)
    results = [
        step(
            state,
            tokens=np.ascontiguousarray(batch[:, :-1]),
            targets=np.ascontiguousarray(batch[:, 1:]),
            learning_rate=np.float32(rate),
        )
        for batch, rate in zip(batches, expected["lrs"], strict=True)
    ]
    assert state["optim.step"] == 20
    np.testing.assert_allclose([result["loss"] for result in results], expected["losses"], rtol=2e-5)
    np.testing.assert_allclose([result["gradient_norm"] for result in results], expected["grad_norms"], rtol=1e-4)
    finals = [name for name in expected.files if name.startswith("final:")]
    assert len(finals) == len(graph.parameters)
    for name in finals:
        array, target = state[name.removeprefix("final:transformer.")], expected[name]
        if name.endswith("c_attn.bias"):
            # Softmax ignores what is added to all scores of a row, so the gradient of a key's bias is rounding alone,
            # which Adam scales up to whole steps: it says nothing about correctness.
            array, target = (np.delete(bias, np.s_[24:48]) for bias in (array, target))
        # Adam turns a gradient that is hardly more than rounding into whole steps of its element, here and there.
        assert_close(array, target, name, tolerance=3e-4)


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("nano", 875_264),
        ("nanogpt-cpu", 804_096),
        ("small", 10_942_464),
        ("124M", 124_439_808),
        ("355M", 354_823_168),
        ("774M", 774_030_080),
        ("1558M", 1_557_611_200),
    ],
)
def test_presets_have_the_published_number_of_parameters(preset, count):
    assert GPT2(PRESETS[preset]).parameter_count() == count


def test_parameters_begin_as_in_gpt2():
    state = ei.initial_state(evaluation_graph(PRESETS["nano"], 1, 128))
    for name, array in state.items():
        if name.endswith("bias"):
            assert not array.any(), name
        elif "ln_" in name:
            assert (array == 1).all(), name
        else:
            deviation = 0.02 / 8**0.5 if name.endswith("c_proj.weight") else 0.02
            assert abs(array.std() / deviation - 1) < 0.03, name
            assert abs(array.mean()) < 5 * deviation / array.size**0.5, name


def ragged_batches():
    """Eight windows with different numbers of targets that count."""
    random = np.random.default_rng(5)
    tokens = random.integers(13, size=(8, 8)).astype(np.int32)
    targets = random.integers(13, size=(8, 8)).astype(np.int32)
    for row in range(8):
        targets[row, row + 1 :] = IGNORED_LABEL
    return tokens, targets


@pytest.mark.parametrize("micro_steps", [1, 2, 8])
def test_accumulation_gives_the_mean_over_all_targets_of_the_step(backend, micro_steps):
    tokens, targets = ragged_batches()
    rate = np.float32(1e-2)
    whole = train_graph(TINY, 8, 8)
    accumulate, apply = accumulation_graphs(TINY, 8 // micro_steps, 8)
    expected_state = ei.initial_state(whole)
    state = ei.initial_state(accumulate, apply)
    run, run_accumulate, run_apply = (ei.compile(graph, backend=backend) for graph in (whole, accumulate, apply))
    for _ in range(2):
        expected = run(expected_state, tokens=tokens, targets=targets, learning_rate=rate)
        for rows in np.split(np.arange(8), micro_steps):
            run_accumulate(state, tokens=tokens[rows], targets=targets[rows])
        found = run_apply(state, learning_rate=rate)
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
        np.testing.assert_allclose(found["gradient_norms"], expected["gradient_norms"], rtol=1e-4, atol=1e-9)
    assert_close(state["wte.weight"], expected_state["wte.weight"], "wte.weight", tolerance=1e-4)
    assert not any(array.any() for name, array in state.items() if name.startswith("accumulator."))


def test_a_step_without_any_target_changes_nothing_but_decay(backend):
    graph = train_graph(TINY, 1, 8, weight_decay=0.0)
    state = ei.initial_state(graph)
    before = state.copy()
    targets = np.full((1, 8), IGNORED_LABEL, np.int32)
    found = ei.compile(graph, backend=backend)(
        state, tokens=np.zeros((1, 8), np.int32), targets=targets, learning_rate=np.float32(1e-2)
    )
    assert found["loss"] == 0 and found["gradient_norm"] == 0
    assert all(np.array_equal(state[name], before[name]) for name in before if name != "optim.step")


def test_logits_of_a_position_depend_on_nothing_behind_it(backend):
    logits = prefill_graph(TINY, 1, 8)
    run = ei.compile(logits, backend=backend)
    state = ei.initial_state(logits)
    tokens = np.arange(8, dtype=np.int32)[None]
    other = tokens.copy()
    other[:, 4:] = 12
    first, second = (run(state, tokens=ids, position=np.array([3]))["logits"] for ids in (tokens, other))
    np.testing.assert_array_equal(first, second)
    assert first.shape == (1, 13)
    assert not np.array_equal(first, run(state, tokens=tokens, position=np.array([4]))["logits"])


def test_dropout_acts_in_training_only_and_changes_with_the_draw(backend):
    config = GPT2Config(13, 8, 1, 2, 8, dropout=0.5)
    tokens, targets = ragged_batches()
    train, evaluate = train_graph(config, 8, 8), evaluation_graph(config, 8, 8)
    assert [value.op.attributes["name"] for value in evaluate.inputs] == ["tokens", "targets"]
    run = ei.compile(train, backend=backend)

    def loss(seed, draw):
        return run(
            ei.initial_state(train),
            tokens=tokens,
            targets=targets,
            learning_rate=np.float32(0),
            seed=np.int64(seed),
            draw=np.int64(draw),
        )["loss"]

    assert loss(1, 1) == loss(1, 1)
    assert len({float(loss(1, 1)), float(loss(1, 2)), float(loss(2, 1))}) == 3


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="width of 10 does not divide into 4 heads"):
        GPT2Config(512, 128, 4, 4, 10)
    with pytest.raises(ValueError, match="at least 1"):
        GPT2Config(512, 0, 4, 4, 8)
    with pytest.raises(ValueError, match="9 tokens is more than the 8 positions"):
        evaluation_graph(TINY, 1, 9)
