"""NanoEuler against the same model written out in torch, in f64, from the papers; and against its published sizes."""

import dataclasses
import importlib
import math

import numpy as np
import pytest
import torch
from training_runs import ROOT, assert_same_run

import euler_ir as ei
from euler_ir import optim
from euler_ir.compiler import lower
from euler_ir.plan.plan import AttentionStep, KernelStep, MatmulStep
from models.architectures import PRESETS as PRESETS_OF_ALL
from models.chat.vocabulary import with_chat_tokens
from models.data.batches import IGNORED_LABEL
from models.generation.cache import decode_graph
from models.generation.predictor import Predictor
from models.generation.reader import Reader, visible
from models.language_model import WholeTexts, accumulation_graphs, evaluation_graph, train_graph
from models.nanoeuler import PRESETS, NanoEulerConfig
from models.tokenizer.bpe import Tokenizer
from models.training import pretraining
from models.training.checkpoint import Checkpoint
from models.training.pretraining import resume_pretraining, start_pretraining
from models.training.settings import PRESET_SETTINGS, PretrainingSettings

pytestmark = pytest.mark.usefixtures("compiled_once")

TINY = NanoEulerConfig(
    vocab_size=13, context=8, layers=2, heads=6, key_heads=2, head_width=4, width=10, mlp_width=14, predictions=3
)


# -- the same in torch -------------------------------------------------------------------------------------------------


def normed(x, weight, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight


def turned(x, base):
    """Rotary embedding of [batch, heads, T, width], whose halves are the real and imaginary parts of numbers."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * base ** (-torch.arange(half) / half)
    numbers = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((numbers.real, numbers.imag), -1)


def torch_features(config, weights, tokens):
    x = weights["embedding.weight"][tokens]
    batch, length, _ = x.shape
    for layer in range(config.layers):
        block = {name.removeprefix(f"blocks.{layer}."): value for name, value in weights.items()}
        projected = normed(x, block["attention_norm.weight"], config.epsilon) @ block["attention.qkv.weight"]
        sizes = [config.heads * config.head_width] + [config.key_heads * config.head_width] * 2
        query, key, value = (
            part.reshape(batch, length, -1, config.head_width).transpose(1, 2) for part in projected.split(sizes, -1)
        )
        query, key = turned(query, config.rotary_base), turned(key, config.rotary_base)
        mixed = []
        for head in range(config.heads):
            shared = head // (config.heads // config.key_heads)
            scores = query[:, head] @ key[:, shared].mT / math.sqrt(config.head_width)
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            mixed.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ value[:, shared])
        x = x + torch.cat(mixed, -1) @ block["attention.output.weight"]
        inner = normed(x, block["mlp_norm.weight"], config.epsilon)
        gate = inner @ block["mlp.gate.weight"]
        x = x + (gate / (1 + torch.exp(-gate)) * (inner @ block["mlp.up.weight"])) @ block["mlp.down.weight"]
    return normed(x, weights["norm.weight"], config.epsilon)


def torch_loss(config, weights, tokens, targets):
    """The mean over targets that count of the mean over heads, target by target."""
    features, total = torch_features(config, weights, tokens), 0.0
    for k in range(config.predictions):
        places = []
        for row, labels in enumerate(targets.tolist()):
            spans = [labels[position : position + k + 1] for position in range(len(labels) - k)]
            places += [(row, at, span[k]) for at, span in enumerate(spans) if IGNORED_LABEL not in span]
        logs = torch.log_softmax(features @ weights[f"heads.{k}.weight"], -1)
        total = total - logs[tuple(torch.tensor(places).T)].sum() / config.predictions
    return total / int((targets != IGNORED_LABEL).sum())


def torch_weights(state, names):
    return {name: torch.tensor(state[name], dtype=torch.float64, requires_grad=True) for name in names}


def lively_state(*graphs):
    """Weights far enough from each other that a mistake anywhere shows."""
    state, random = ei.initial_state(*graphs), np.random.default_rng(3)
    for name in [parameter.op.attributes["name"] for parameter in graphs[0].parameters]:
        state[name] = (state[name] + 0.3 * random.standard_normal(state[name].shape)).astype(np.float32)
    return state


def batch_of(config, rows, seed=0):
    """Tokens and targets, some of which are not to be learned."""
    random = np.random.default_rng(seed)
    tokens, targets = (random.integers(0, config.vocab_size, (rows, config.context), np.int32) for _ in range(2))
    targets[0, 3] = targets[-1, 0] = targets[-1, -2] = IGNORED_LABEL
    return tokens, targets


def assert_close(actual, expected, what, tolerance=2e-5):
    """Differences within `tolerance` of the largest magnitude: what rounding in f32 explains."""
    assert actual.shape == expected.shape, what
    error = np.max(np.abs(actual.astype(np.float64) - expected)) / np.max(np.abs(expected))
    assert error < tolerance, f"{what} is off by {error:.1e} of its largest value"


def test_logits_loss_and_gradients_are_those_of_torch(backend):
    tokens, targets = batch_of(TINY, 3)
    with ei.Graph() as graph:
        model = TINY.build()
        ids, labels = ei.input("tokens", tokens.shape, ei.i32), ei.input("targets", tokens.shape, ei.i32)
        features = model(ids, WholeTexts(TINY.context))
        counted = ei.not_equal(labels, IGNORED_LABEL).sum().cast(ei.f32)
        loss = model.training_losses(features, labels).sum() / counted
        gradients = {key.op.attributes["name"]: value for key, value in optim.gradients(loss).items()}
        ei.output(logits=model.logits(features), loss=loss, **gradients)
    state = lively_state(graph)
    found = ei.compile(graph, backend=backend)(state, tokens=tokens, targets=targets)

    weights = torch_weights(state, gradients)
    expected = torch_loss(TINY, weights, torch.from_numpy(tokens).long(), targets)
    expected.backward()
    logits = torch_features(TINY, weights, torch.from_numpy(tokens).long()) @ weights["heads.0.weight"]
    assert_close(found["logits"], logits.detach().numpy(), "logits")
    np.testing.assert_allclose(found["loss"], expected.item(), rtol=1e-6)
    assert gradients.keys() == {name for name, _ in TINY.build().named_parameters()}
    for name in gradients:
        assert_close(found[name], weights[name].grad.numpy(), name)


def test_twenty_steps_of_adamw_are_those_of_torch():
    graph = train_graph(TINY, 3, TINY.context, weight_decay=0.1, max_norm=0.5)
    state = lively_state(graph)
    weights = torch_weights(state, [parameter.op.attributes["name"] for parameter in graph.parameters])
    groups = [
        {"params": [value for value in weights.values() if value.ndim >= 2], "weight_decay": 0.1},
        {"params": [value for value in weights.values() if value.ndim < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    step = ei.compile(graph)
    for number in range(20):
        tokens, targets = batch_of(TINY, 3, seed=number)
        found = step(state, tokens=tokens, targets=targets, learning_rate=np.float32(1e-2))
        adamw.zero_grad()
        loss = torch_loss(TINY, weights, torch.from_numpy(tokens).long(), targets)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), 0.5)
        adamw.step()
        np.testing.assert_allclose(found["loss"], loss.item(), rtol=2e-5)
        np.testing.assert_allclose(found["gradient_norm"], norm.item(), rtol=1e-4)
    for name, value in weights.items():
        assert_close(state[name], value.detach().numpy(), name, tolerance=3e-4)


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("preset", "count"), [("nanoeuler-cpu", 1_053_824), ("nanoeuler-116M", 116_417_280)])
def test_presets_have_the_published_number_of_parameters(preset, count):
    assert PRESETS[preset].build().parameter_count() == count


def test_parameters_begin_as_gpt2s_do():
    state = ei.initial_state(evaluation_graph(dataclasses.replace(PRESETS["nanoeuler-cpu"], predictions=1), 1, 128))
    for name, array in state.items():
        if "norm" in name:
            assert (array == 1).all(), name
        else:
            deviation = 0.02 / 8**0.5 if name.endswith(("output.weight", "down.weight")) else 0.02
            assert abs(array.std() / deviation - 1) < 0.03, name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"key_heads": 4}, "6 heads of queries cannot share 4 heads of keys evenly"),
        ({"key_heads": 12}, "6 heads of queries cannot share 12 heads"),
        ({"head_width": 5}, "head_width must be even, not 5"),
        ({"predictions": 0}, "predictions of a NanoEuler must be at least 1, not 0"),
        ({"dropout": 1.0}, "below 1, not 1.0"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **wrong)


# -- several predictions -----------------------------------------------------------------------------------------------


def losses_of(config, state, targets, backend="cpu"):
    """Training losses of each position of a text of one and the same token."""
    with ei.Graph() as graph:
        model = config.build()
        features = model(ei.zeros(targets.shape, ei.i32), WholeTexts(targets.shape[1]))
        ei.output(losses=model.training_losses(features, ei.input("targets", targets.shape, ei.i32)))
    return ei.compile(graph, backend=backend)(state, targets=targets)["losses"]


def test_no_head_looks_beyond_the_end_or_across_what_is_not_learned():
    """A target counts for the heads of all positions from its own back to the last that is ignored, and no others."""
    config = dataclasses.replace(TINY, predictions=4)
    state = lively_state(evaluation_graph(config, 1, 8), train_graph(config, 1, 8))
    targets = np.arange(8, dtype=np.int32)[None]
    targets[0, 3] = IGNORED_LABEL
    before = losses_of(config, state, targets)
    assert before[0, 3] == 0
    reach = {}
    for place in (0, 2, 4, 7):
        changed = targets.copy()
        changed[0, place] = 12
        reach[place] = np.flatnonzero(losses_of(config, state, changed)[0] != before[0]).tolist()
    assert reach == {0: [0], 2: [0, 1, 2], 4: [4], 7: [4, 5, 6, 7]}


@pytest.mark.parametrize("length", [1, 2, 3])
def test_texts_shorter_than_the_heads_reach(length):
    config = dataclasses.replace(TINY, predictions=4)
    state = lively_state(train_graph(config, 1, 8))
    losses = losses_of(config, state, np.full((2, length), 5, np.int32))
    assert losses.shape == (2, length) and (losses > 0).all()


def test_evaluation_counts_the_first_head_alone(backend):
    tokens, targets = batch_of(TINY, 3)
    evaluate = evaluation_graph(TINY, 3, 8)
    state = lively_state(train_graph(TINY, 3, 8))
    assert not any(name.startswith("heads.1") for name in ei.initial_state(evaluate))
    found = ei.compile(evaluate, backend=backend)(state, tokens=tokens, targets=targets)
    weights = torch_weights(state, [name for name, _ in TINY.build().named_parameters()])
    alone = dataclasses.replace(TINY, predictions=1)
    expected = torch_loss(alone, weights, torch.from_numpy(tokens).long(), targets).item()
    assert found["count"] == 21
    np.testing.assert_allclose(found["loss"] / found["count"], expected, rtol=1e-6)


@pytest.mark.parametrize("micro_steps", [2, 4])
def test_gradients_do_not_depend_on_how_a_batch_is_split(micro_steps):
    """With different numbers of targets in each row, and of later ones for the other heads."""
    tokens, targets = batch_of(TINY, 4)
    for row in range(4):
        targets[row, 2 * row + 1 :] = IGNORED_LABEL
    whole = train_graph(TINY, 4, 8)
    accumulate, apply = accumulation_graphs(TINY, 4 // micro_steps, 8)
    rate = np.float32(1e-2)
    expected = ei.compile(whole)(lively_state(whole), tokens=tokens, targets=targets, learning_rate=rate)
    state = lively_state(accumulate, apply)
    run = ei.compile(accumulate)
    for rows in np.split(np.arange(4), micro_steps):
        run(state, tokens=tokens[rows], targets=targets[rows])
    found = ei.compile(apply)(state, learning_rate=rate)
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-6)
    np.testing.assert_allclose(found["gradient_norms"], expected["gradient_norms"], rtol=1e-4, atol=1e-9)


# -- generation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, 5, 11])
def test_a_cache_gives_the_logits_of_torch_beyond_the_context_too(backend, prompt):
    state = lively_state(evaluation_graph(TINY, 1, 8))
    weights = torch_weights(state, state)
    reader = Reader(Predictor(TINY, state, backend=backend))
    ids = np.random.default_rng(prompt).integers(0, 13, 16).tolist()
    for count in range(prompt, 17):
        window = torch.tensor([visible(ids[:count], TINY.context)])
        expected = torch_features(TINY, weights, window)[0, -1] @ weights["heads.0.weight"]
        assert_close(reader.logits([ids[:count]])[0], expected.detach().numpy(), f"{count} tokens")


def test_the_cache_holds_heads_of_keys_alone():
    graph = decode_graph(TINY, 1, 8)
    assert {graph.leaf(name).shape for name in graph.updates} == {(1, 2, 8, 4)}
    assert not any(name.startswith("heads.1") for name in ei.initial_state(graph))


# -- training ----------------------------------------------------------------------------------------------------------


def test_it_is_trained_stopped_continued_and_sampled_like_gpt2(tmp_path, monkeypatch, corpus, capsys):
    config = dataclasses.replace(TINY, layers=1, predictions=2, vocab_size=280, dropout=0.1)
    monkeypatch.setitem(PRESETS_OF_ALL, "tiny", config)
    monkeypatch.setitem(PRESET_SETTINGS, "tiny", {"learning_rate": 1e-2})
    monkeypatch.setattr(pretraining, "SAMPLE_TOKENS", 3)
    (tmp_path / "text.txt").write_text(corpus[:4000])
    given = {"steps": 6, "batch_size": 2, "vocab_size": 280, "validate_every": 3, "dropout": 0.1}
    settings = PretrainingSettings.for_preset(str(tmp_path / "text.txt"), "tiny", **given)
    start_pretraining(tmp_path / "whole", settings, "reference").train()
    start_pretraining(tmp_path / "parts", settings, "reference").train(3)
    resume_pretraining(tmp_path / "parts", backend="reference").train()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")

    kept = Checkpoint.load(tmp_path / "whole" / "best.safetensors")
    assert kept.config == dataclasses.replace(config, vocab_size=kept.tokenizer.vocab_size)
    capsys.readouterr()
    sampled = [str(tmp_path / "whole" / "best.safetensors"), "--prompt", "KING", "--tokens", "20", "--device", "reference"]
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    assert importlib.import_module("gpt2_sample").main(sampled) == 0
    assert capsys.readouterr().out.startswith("KING")


def test_a_chat_leaves_out_the_heads_of_later_tokens():
    """Fine-tuning trains the first head alone, and its checkpoints hold what its config says."""
    tokenizer = Tokenizer([])
    config = dataclasses.replace(TINY, vocab_size=tokenizer.vocab_size)
    state = lively_state(train_graph(config, 1, 8))
    arrays = {name: state[name] for name, _ in config.build().named_parameters()}
    wider, grown, kept = with_chat_tokens(config, tokenizer, arrays)
    assert wider == dataclasses.replace(config, predictions=1, vocab_size=grown.vocab_size)
    assert {name: array.shape for name, array in kept.items()} == {
        name: parameter.shape for name, parameter in wider.build().named_parameters()
    }
    assert grown.vocab_size > tokenizer.vocab_size
    np.testing.assert_array_equal(kept["heads.0.weight"][:, : tokenizer.vocab_size], arrays["heads.0.weight"])


# -- what it becomes ---------------------------------------------------------------------------------------------------


def counts(config):
    """Kernels, products and attentions of an evaluation."""
    steps = list(lower(evaluation_graph(config, 2, 128)).plan.steps())
    return np.array([sum(isinstance(s, kind) for s in steps) for kind in (KernelStep, MatmulStep, AttentionStep)])


def test_a_block_is_three_kernels_five_products_and_one_attention():
    """Statistics of two norms and one rotation of queries and keys; norms and the gate are made inside of products."""
    config = dataclasses.replace(PRESETS["nanoeuler-cpu"], layers=3)
    assert (counts(PRESETS["nanoeuler-cpu"]) - counts(config)).tolist() == [3, 5, 1]


def test_no_scores_and_no_repeated_keys_are_in_memory():
    config = PRESETS["nanoeuler-cpu"]
    plan = lower(train_graph(config, 2, 96)).plan
    assert not [buffer for buffer in plan.buffers if buffer.type.shape.count(96) > 1]
    projected = 2 * 96 * (config.heads + 2 * config.key_heads) * config.head_width
    for step in plan.steps():
        if isinstance(step, AttentionStep):
            query, key, value = (plan.buffers[view.buffer] for view in step.operands[:3])
            assert query is key and math.prod(value.type.shape) == projected
            assert [view.batch_strides[-1] for view in step.operands[:3]] == [config.head_width, 0, 0]
