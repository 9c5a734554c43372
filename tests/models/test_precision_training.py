"""Training in mixed precision: beside torch's autocast, with overflows, stopped and continued, and its command line."""

import math
import runpy
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from training_runs import ROOT, assert_same_run, start, trainer

import euler_ir as ei
from euler_ir import optim
from models.gpt2 import GPT2Config
from models.language_model import next_token, train_graph
from models.training.checkpoint import Checkpoint
from models.training.metrics import read_metrics
from models.training.pretraining import resume_pretraining
from models.training.settings import PretrainingSettings

pytestmark = pytest.mark.usefixtures("tiny_preset")

SMALL = GPT2Config(vocab_size=96, context=16, layers=1, heads=2, width=32)
HALVES = [("bf16", torch.bfloat16), pytest.param("f16", torch.float16, marks=pytest.mark.slow)]

# --- Beside torch ---


def torch_loss(p, tokens, targets):
    """The loss of a model of SMALL's sizes, whose parameters are `p` by name, in torch."""
    width, (batch, length) = SMALL.width, tokens.shape

    def norm(x, name):
        return F.layer_norm(x, (width,), p[f"{name}.weight"], p[f"{name}.bias"], SMALL.epsilon)

    def linear(x, name):
        return F.linear(x, p[f"{name}.weight"].T, p[f"{name}.bias"])

    x = p["wte.weight"][torch.tensor(tokens.astype(np.int64))] + p["wpe.weight"][:length]
    for h in (f"h.{layer}" for layer in range(SMALL.layers)):
        by_head = linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").split(width, 2)
        q, k, v = (each.reshape(batch, length, SMALL.heads, -1).transpose(1, 2) for each in by_head)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + linear(mixed, f"{h}.attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc"), approximate="tanh"), f"{h}.mlp.c_proj")
    logits = F.linear(norm(x, "ln_f"), p["wte.weight"]).flatten(0, 1)
    return F.cross_entropy(logits, torch.tensor(targets.astype(np.int64)).flatten())


def torch_parameters(state, graph, dtype=torch.float32):
    names = [parameter.op.attributes["name"] for parameter in graph.parameters]
    return {name: torch.tensor(np.array(state[name]), dtype=dtype, requires_grad=True) for name in names}


def batch(random):
    """Tokens and targets, i32[4, context], of a text in which the next token is often the last one and one more."""
    steps = random.choice([1, 1, 1, 5], (4, SMALL.context + 1))
    ids = (np.cumsum(steps, axis=1) % SMALL.vocab_size).astype(np.int32)
    return ids[:, :-1].copy(), ids[:, 1:].copy()


@pytest.mark.parametrize(("precision", "autocast"), HALVES)
def test_gradients_are_as_near_to_the_real_ones_as_those_of_torch_autocast(precision, autocast):
    with ei.Graph() as graph:
        total, count, _ = next_token(SMALL, 4, SMALL.context, training=True)
        loss = total / count.cast(ei.f32)
        gradients = optim.gradients(loss)
        ei.output(**{key.op.attributes["name"]: value for key, value in gradients.items()})
    executable = ei.compile(graph, passes=f"mixed-precision{{compute={precision}}},default")
    of_autocast, ours = [], []
    for seed in range(2):
        state, random = ei.initial_state(graph, seed=seed), np.random.default_rng(seed)
        for name in state:
            state[name] = state[name] + 0.05 * random.standard_normal(state[name].shape).astype(np.float32)
        tokens, targets = batch(random)
        real, half = (torch_parameters(state, graph, dtype) for dtype in (torch.float64, torch.float32))
        torch_loss(real, tokens, targets).backward()
        with torch.autocast("cpu", dtype=autocast):
            loss = torch_loss(half, tokens, targets)
        loss.backward()
        found = executable(state, tokens=tokens, targets=targets)
        # The gradient of a key's bias is 0 but for rounding.
        names = [name for name in real if not name.endswith("c_attn.bias")]
        want = {name: real[name].grad.numpy() for name in names}
        for errors, arrays in ((of_autocast, {name: half[name].grad.numpy() for name in names}), (ours, found)):
            errors.append([np.linalg.norm(arrays[n] - want[n]) / np.linalg.norm(want[n]) for n in names])
    assert np.max(of_autocast) < {"bf16": 0.03, "f16": 0.004}[precision]
    assert np.max(ours) < 1.3 * np.max(of_autocast)
    assert np.mean(ours) < 1.1 * np.mean(of_autocast)


@pytest.mark.parametrize(("precision", "autocast"), HALVES)
def test_losses_of_ten_steps_are_those_of_torch_autocast(precision, autocast):
    """AdamW on f32 weights in both; in f16 with a scale, which both begin at 2^16."""
    scale = optim.LossScale() if precision == "f16" else None
    graph = train_graph(SMALL, 4, SMALL.context, loss_scale=scale, weight_decay=0.0)
    step = ei.compile(graph, passes=f"mixed-precision{{compute={precision}}},default")
    state, random = ei.initial_state(graph), np.random.default_rng(0)
    parameters = torch_parameters(state, graph)
    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "f16")
    losses = []
    for _ in range(10):
        tokens, targets = batch(random)
        with torch.autocast("cpu", dtype=autocast):
            loss = torch_loss(parameters, tokens, targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        found = step(state, tokens=tokens, targets=targets, learning_rate=np.float32(1e-3))
        losses.append((float(found["loss"]), loss.item(), float(found["gradient_norm"]), norm.item()))
    ours, torchs, our_norms, norms = np.array(losses).T
    assert torchs[-1] < torchs[0] - 0.1
    np.testing.assert_allclose(ours, torchs, rtol={"bf16": 3e-3, "f16": 5e-4}[precision])
    np.testing.assert_allclose(our_norms, norms, rtol={"bf16": 3e-2, "f16": 5e-3}[precision])


# --- Runs ---


@pytest.mark.parametrize(("precision", "accumulate"), [("bf16", 1), ("f16", 2)])
def test_every_precision_learns_what_f32_does(corpus, precision, accumulate):
    (exact, *_), (mixed, *_) = (
        trainer(corpus[:4000], precision=each, accumulate=accumulate, dropout=0.1) for each in ("f32", precision)
    )
    records = [[each.step(step) for each in (exact, mixed)] for step in range(8)]
    for name, tolerance in (("loss", {"bf16": 5e-3, "f16": 1e-3}), ("gradient_norm", {"bf16": 2e-2, "f16": 4e-3})):
        found = np.array([[record[name] for record in both] for both in records])
        np.testing.assert_allclose(found[:, 1], found[:, 0], rtol=tolerance[precision], err_msg=name)
        assert np.any(found[:, 1] != found[:, 0])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_steps_that_overflow_f16_are_left_out_and_said(tmp_path, text_file, monkeypatch, capsys, accumulate):
    """A scale of 2^24 is too much for gradients of logits, whose largest are near 1/16 here."""
    monkeypatch.setattr(optim, "LossScale", partial(optim.LossScale, 2.0**24))
    run = start(tmp_path / "run", text_file, precision="f16", accumulate=accumulate)
    begun = {name: array.tobytes() for name, array in run.trainer.state.items()}
    run.train(1)
    kept = {name for name, array in run.trainer.state.items() if array.tobytes() == begun[name]}
    assert kept == begun.keys() - {"loss_scale.scale"}
    said = "Step 1 is left out: a gradient overflows at a loss scale of 16,777,216. Now half."
    assert said in capsys.readouterr().out
    resume_pretraining(tmp_path / "run", backend="reference").train()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    skipped = [record.get("skipped", False) for record in records]
    assert 4 <= sum(skipped) <= 10 and skipped == sorted(skipped, reverse=True)
    scales = [record["loss_scale"] for record in records]
    assert scales == [2.0 ** (24 - min(step, sum(skipped))) for step in range(12)]
    assert all(math.isfinite(record["loss"]) for record in records)
    assert [record["gradient_norm"] is None for record in records] == skipped
    assert Checkpoint.load(tmp_path / "run" / "latest.safetensors").arrays["optim.step"] == 12 - sum(skipped)


def test_a_loss_that_is_not_finite_is_no_matter_of_the_scale(corpus):
    """What overflows on the way forward does so at every scale: it is reported as in any precision."""
    trained, *_ = trainer(corpus[:4000], precision="f16")
    trained.state["ln_f.weight"][...] = 1e30
    with pytest.raises(ArithmeticError, match="^Step 1: the loss is"):
        trained.step(0)


def test_a_gradient_that_overflows_without_a_scale_is_reported(corpus):
    trained, *_ = trainer(corpus[:4000], precision="f16")
    norms = np.full(len(trained.parameters), math.inf)
    outputs = {"loss": 1.0, "gradient_norm": math.inf, "gradient_norms": norms}
    for scale in (2.0, 1.0):
        trained._run = [lambda state, **inputs: outputs | {"loss_scale": scale}]
        if scale > 1:
            assert trained.step(0)["skipped"]
        else:
            with pytest.raises(ArithmeticError, match="^Step 1: .* gradient norm of wte.weight is inf"):
                trained.step(0)


def test_a_run_in_f16_continues_bit_for_bit(tmp_path, text_file):
    start(tmp_path / "whole", text_file, precision="f16").train()
    start(tmp_path / "parts", text_file, precision="f16").train(5)
    resume_pretraining(tmp_path / "parts", backend="reference").train()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert Checkpoint.load(tmp_path / "parts" / "latest.safetensors").arrays["loss_scale.good_steps"] == 12


@pytest.mark.parametrize("precisions", [("f32", "bf16"), ("bf16", "f16"), ("f16", "f32")])
def test_a_run_may_continue_in_another_precision(tmp_path, text_file, precisions):
    """Weights and moments are f32 in all; a scale begins anew, or is of no use any more."""
    before, after = precisions
    start(tmp_path / "run", text_file, precision=before).train(6)
    run = resume_pretraining(tmp_path / "run", {"precision": after}, "reference")
    kept = Checkpoint.load(tmp_path / "run" / "latest.safetensors").arrays
    assert run.trainer.state["optim.m.wte.weight"].tobytes() == kept["optim.m.wte.weight"].tobytes()
    run.train()
    latest = Checkpoint.load(tmp_path / "run" / "latest.safetensors")
    assert latest.step == 12 and latest.settings["precision"] == after
    assert ("loss_scale.scale" in latest.arrays) == (after == "f16")
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 12


def test_other_settings_are_refused():
    with pytest.raises(ValueError, match="There is no precision 'f8'. Choose one of f32, bf16, f16."):
        PretrainingSettings.for_preset("x", precision="f8")
    assert PretrainingSettings.for_preset("x").passes("cpu") == "default"
    halves = PretrainingSettings.for_preset("x", precision="bf16")
    assert halves.passes("cuda:1") == "mixed-precision{compute=bf16},cuda"


# --- Command lines ---

WITH_DEVICE = "train sft dpo sample chat evaluate evaluate_chat compare look probes"


@pytest.mark.parametrize("name", WITH_DEVICE.split())
def test_without_a_gpu_every_example_says_what_is_missing_and_what_to_do(name, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    main = runpy.run_path(str(ROOT / "examples" / f"gpt2_{name}.py"))["main"]
    arguments = {"look": ["x", "lens"], "evaluate": ["x", "y"], "evaluate_chat": ["x", "y"], "compare": ["x", "y"]}
    arguments = arguments.get(name, [] if name in ("train", "probes") else ["x"])
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--device", "cuda"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "argument --device: " in said and "CuPy, which reaches the GPU" in said
    assert "pip install cupy-cuda12x" in said and "--device cpu" in said
    with pytest.raises(SystemExit):
        main([*arguments, "--device", "gpu"])
    assert "unknown backend 'gpu': use one of cpu, " in capsys.readouterr().err
