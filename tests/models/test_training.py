"""Training runs: what they compute, that they resume bit for bit, and how they fail."""

import errno
import math
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.metrics import MetricsFile, read_metrics
from models.training.pretraining import Pretraining, resume_pretraining, start_pretraining
from models.training.run import Interruption
from models.training.settings import LEARNING_RATES, PretrainingSettings
from models.training.trainer import Diverged, Trainer

ROOT = Path(__file__).parents[2]
TINY = GPT2Config(300, 8, layers=1, heads=2, width=8)

# The example, with a model small enough to train in a test.
PROGRAM = f"""
import runpy, sys
from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.training.settings import LEARNING_RATES
PRESETS["tiny"], LEARNING_RATES["tiny"] = {TINY!r}, 1e-2
sys.argv[0] = "gpt2_train.py"
runpy.run_path({str(ROOT / "examples" / "gpt2_train.py")!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setitem(LEARNING_RATES, "tiny", 1e-2)


@pytest.fixture
def text_file(tmp_path, corpus):
    path = tmp_path / "corpus.txt"
    path.write_text(corpus[:4000])
    return str(path)


def settings(text_file, **given):
    return PretrainingSettings.for_preset(
        text_file, "tiny", **{"steps": 12, "batch_size": 2, "vocab_size": 280, "validate_every": 5, **given}
    )


def start(folder, text_file, backend="reference", **given):
    return start_pretraining(folder, settings(text_file, **given), backend)


def without_times(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def assert_same_run(folder, other):
    first, second = (Checkpoint.load(path / "latest.safetensors") for path in (folder, other))
    assert first.step == second.step and first.progress.get("best") == second.progress.get("best")
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert array.tobytes() == second.arrays[name].tobytes(), name
    records = [without_times(read_metrics(path / "metrics.jsonl")) for path in (folder, other)]
    assert records[0] == records[1]


# --- What a run computes ---


def test_a_run_learns_and_leaves_its_files(tmp_path, text_file, backend):
    run = start(tmp_path / "run", text_file, backend, steps=40, validate_every=20)
    assert run.train() is None
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, 41))
    assert records[-1]["validation_loss"] < records[0]["loss"] - 0.2
    assert records[-1]["tokens"] == 40 * 2 * 8
    assert [record["step"] for record in records if "bits_per_byte" in record] == [20, 40]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    checkpoints = {"latest.safetensors", "best.safetensors"}
    assert names == checkpoints | {"loss.png", "metrics.jsonl", "tokenizer.json", "train.tokens", "validation.tokens"}
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    summary = run.summary()
    assert "Reached step 40 with 640 tokens" in summary and "bits per byte" in summary and "loss.png" in summary


def trainer(text, vocab_size=280, **given):
    tokenizer = Tokenizer.train(text, vocab_size)
    tokens = tokenizer.encode_to_numpy(text)
    options = replace(settings("corpus.txt"), **given)
    config = replace(TINY, vocab_size=tokenizer.vocab_size, dropout=options.dropout)
    task = Pretraining(options, config, tokenizer, tokens[:-300], tokens[-300:], "reference")
    return Trainer(task, options), tokenizer, tokens[-300:]


def test_validation_changes_nothing_and_is_the_same_each_time(corpus):
    (first, *_), (second, *_) = trainer(corpus[:4000]), trainer(corpus[:4000])
    for step in range(4):
        assert first.validate(step) == first.validate(step) != {}
        found, expected = first.step(step), second.step(step)
        assert without_times([found]) == without_times([expected])


def test_bits_per_byte_count_the_bytes_of_the_targets(corpus):
    # Token bytes, not decoded characters: tokens that are parts of a character decode to more bytes than they have.
    trained, tokenizer, validation = trainer(corpus[:3000] + "né 你好 🙂 " * 200, vocab_size=258)
    found = trained.validate(0)
    byte_count = len(tokenizer.decode_bytes(validation[1:]))
    total = found["validation_loss"] * (len(validation) - 1)
    assert found["bits_per_byte"] == pytest.approx(total / math.log(2) / byte_count, rel=1e-12)


def test_accumulation_makes_the_steps_of_one_large_batch(corpus, monkeypatch):
    """The windows differ with the micro step, so let both runs see the same ones."""
    (whole, *_), (parts, *_) = trainer(corpus[:4000], batch_size=4), trainer(corpus[:4000], batch_size=2, accumulate=2)

    def joined(step, micro_step):
        batches = [parts.task.inputs(step, micro) for micro in range(2)]
        return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}

    monkeypatch.setattr(whole.task, "inputs", joined)
    for step in range(5):
        expected, found = whole.step(step), parts.step(step)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
        assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-4)
        assert (found["tokens"], found["learning_rate"]) == (expected["tokens"], expected["learning_rate"])


def test_every_pass_of_every_step_sees_other_windows(corpus):
    trained, *_ = trainer(corpus[:4000], accumulate=2)
    windows = {trained.task.inputs(step, micro)["tokens"].tobytes() for step in range(3) for micro in range(2)}
    assert len(windows) == 6


def test_a_seed_decides_a_run_dropout_included(corpus):
    losses = []
    for seed in (1, 1, 2):
        trained, *_ = trainer(corpus[:4000], seed=seed, dropout=0.3)
        losses.append([trained.step(step)["loss"] for step in range(3)])
    assert losses[0] == losses[1] != losses[2]


# --- Stopping and continuing ---


@pytest.mark.parametrize("given", [{}, {"accumulate": 2, "dropout": 0.2}])
def test_a_stopped_run_continues_as_if_it_had_not_stopped(tmp_path, text_file, monkeypatch, backend, given):
    start(tmp_path / "whole", text_file, backend, **given).train()

    run = start(tmp_path / "parts", text_file, backend, **given)
    stop_at = {3: signal.SIGINT, 8: signal.SIGTERM}
    original = Trainer.step

    def step(self, number):
        record = original(self, number)
        if record["step"] in stop_at:
            os.kill(os.getpid(), stop_at.pop(record["step"]))
        return record

    monkeypatch.setattr(Trainer, "step", step)
    assert run.train() == signal.SIGINT and run.checkpoint.step == 3
    run = resume_pretraining(tmp_path / "parts", backend=backend)
    assert run.train() == signal.SIGTERM and run.checkpoint.step == 8
    assert resume_pretraining(tmp_path / "parts", backend=backend).train() is None
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def program(*arguments, **options):
    command = [sys.executable, "-c", PROGRAM, "--preset", "tiny", "--device", "reference", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_run_killed_at_a_random_moment_continues_bit_for_bit(tmp_path, text_file):
    options = {"steps": 40, "validate_every": 3}
    start(tmp_path / "whole", text_file, **options).train()
    flags = ["--out", tmp_path / "parts"]
    given = ["--corpus", text_file, "--steps", 40, "--batch-size", 2, "--vocab-size", 280, "--validate-every", 3]

    process = program(*flags, *given)
    latest = tmp_path / "parts" / "latest.safetensors"
    deadline = time.monotonic() + 60
    while not latest.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.5))
    process.kill()
    process.communicate()
    assert latest.exists() and process.returncode == -signal.SIGKILL
    assert 3 <= Checkpoint.load(latest).step < 40, "it was to be killed halfway"

    resumed = program(*flags, "--resume")
    output, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert "Continuing after step" in output
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert not list((tmp_path / "parts").glob(".*"))


def test_a_finished_run_resumes_to_nothing_and_can_go_further(tmp_path, text_file):
    start(tmp_path / "run", text_file).train()
    run = resume_pretraining(tmp_path / "run", {"steps": 12})
    assert run.train() is None and run.checkpoint.step == 12
    run = resume_pretraining(tmp_path / "run", {"steps": 14})
    run.train(14)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert len(records) == 14 and records[-1]["learning_rate"] == pytest.approx(1e-3), "the schedule keeps its horizon"


def test_a_run_is_neither_overwritten_nor_changed_by_accident(tmp_path, text_file):
    start(tmp_path / "run", text_file).train()
    with pytest.raises(FileExistsError, match="already holds a training run. Add --resume"):
        start(tmp_path / "run", text_file)
    with pytest.raises(ValueError, match="has --learning-rate 0.01, not 0.5"):
        resume_pretraining(tmp_path / "run", {"learning_rate": 0.5})
    with pytest.raises(FileNotFoundError, match="no training run to continue"):
        resume_pretraining(tmp_path / "other")
    (tmp_path / "run" / "latest.safetensors").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged.*best.safetensors"):
        resume_pretraining(tmp_path / "run")


def test_a_second_signal_acts_at_once():
    with pytest.raises(KeyboardInterrupt), Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_a_log_cut_short_is_read_and_continued(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsFile(path)
    for step in (1, 2, 3):
        log.append({"step": step})
    log.close()
    path.write_text(path.read_text() + '{"step": 4, "lo')
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]
    log = MetricsFile(path, step=2)
    log.append({"step": 3, "again": True})
    log.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


# --- Failing ---


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_its_parameter(tmp_path, text_file, monkeypatch):
    run = start(tmp_path / "run", text_file)
    execute = run._trainer._run[0]

    def poisoned(state, **inputs):
        if state["optim.step"] == 7:
            state["h.0.mlp.c_fc.bias"] = np.full(32, np.nan, np.float32)
        return execute(state, **inputs)

    monkeypatch.setattr(run._trainer, "_run", [poisoned])
    with pytest.raises(Diverged, match=r"Step 8: the loss is nan and the gradient norm of \S+ is nan, .*step 5") as stop:
        run.train()
    assert stop.value.step == 8
    kept = Checkpoint.load(tmp_path / "run" / "latest.safetensors")
    assert kept.step == 5 and all(np.isfinite(array).all() for array in kept.arrays.values())


def test_one_broken_gradient_is_blamed_alone(corpus):
    trained, *_ = trainer(corpus[:4000])
    norms = np.ones(len(trained.parameters))
    norms[3] = np.inf
    assert f"the gradient norm of {trained.parameters[3]} is inf." in trained._blame(9, 2.0, norms)


def test_a_full_disk_stops_the_run_and_keeps_the_checkpoint(tmp_path, text_file, monkeypatch):
    run = start(tmp_path / "run", text_file)
    saved = run._save

    def save(step, *rest):
        if step == 10:
            monkeypatch.setattr(os, "replace", full)
        saved(step, *rest)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run, "_save", save)
    with pytest.raises(OSError, match="No space left"):
        run.train()
    monkeypatch.undo()
    assert Checkpoint.load(tmp_path / "run" / "latest.safetensors").step == 5


def test_a_text_without_validation_part_trains_all_the_same(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("abcdefghij")
    run = start(tmp_path / "run", str(path), steps=2, vocab_size=257)
    assert "validation loss is not available" in run.task.description()
    run.train()
    assert "validation_loss" not in read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert not (tmp_path / "run" / "best.safetensors").exists()
    assert "bits per byte" not in run.summary()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no file"),
        (b"", "is empty"),
        (b"\x7fELF\0\0\1", "NUL byte"),
        (b"caf\xe9", "not UTF-8"),
        (b"abcdefgh", "is too short: 7 tokens to train on, but a context of 8 needs at least 9"),
    ],
)
def test_a_corpus_that_cannot_be_used_is_one_line_and_exit_code_2(tmp_path, content, message):
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    process = program("--corpus", path, "--out", tmp_path / "run", "--vocab-size", 257)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and output == ""
    assert errors.startswith("gpt2_train.py: error: ") and message in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "0"], "argument --steps: must be at least 1, not 0"),
        (["--preset", "huge"], "invalid choice: 'huge'"),
        (["--batch-size", "many"], "argument --batch-size"),
        (["--learning-rate", "-1"], "learning_rate must be above 0"),
        (["--vocab-size", "100"], "vocabulary of 100 ids is too small"),
        (["--context", "9"], "context of 9 tokens is more than the 8 of the preset tiny"),
        (["--dropout", "1"], "dropout rate must be at least 0 and below 1"),
        (["--resume"], "no training run to continue"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_wrong_flags_are_one_line_and_exit_code_2(tmp_path, text_file, capsys, monkeypatch, flags, message):
    example = runpy.run_path(str(ROOT / "examples" / "gpt2_train.py"))
    monkeypatch.setattr(sys, "argv", ["gpt2_train.py"])
    arguments = ["--preset", "tiny", "--corpus", text_file, "--out", str(tmp_path / "run"), *flags]
    try:
        status = example["main"](arguments)
    except SystemExit as exit:
        status = exit.code
    errors = capsys.readouterr().err
    assert status == 2 and message in errors
    assert errors.startswith("gpt2_train.py: error: ") and errors.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, text_file):
    (tmp_path / "file").write_text("in the way")
    process = program("--corpus", text_file, "--out", tmp_path / "file" / "run")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "file" in errors and errors.count("\n") == 1
