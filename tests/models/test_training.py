"""Training runs: what they compute, and that they resume bit for bit."""

import math
import os
import random
import signal
import time

import numpy as np
import pytest
from training_runs import assert_same_run, program, start, trainer, without_times

import euler_ir as ei
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.evaluation import Evaluation
from models.training.metrics import MetricsFile, read_metrics
from models.training.pretraining import resume_pretraining
from models.training.run import Interruption
from models.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("tiny_preset")


# --- What a run computes ---


def test_a_run_learns_and_leaves_its_files(tmp_path, text_file, drawn):
    run = start(tmp_path / "run", text_file, "cpu", steps=40, validate_every=20)
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
    run.peak_flops = 1e12
    summary = run.summary()
    flops = (6 * run.task.config.build().parameter_count() + 12 * 1 * 8 * 8) * 640
    seconds = sum(record["seconds"] for record in records)
    assert f"{flops / seconds / 1e9:.1f} GFLOP/s, MFU {flops / seconds / 1e12:.1%}." in summary
    assert "Reached step 40 with 640 tokens" in summary and "bits per byte" in summary and "loss.png" in summary


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


def test_a_vocabulary_with_gaps_is_evaluated():
    tokenizer, config = Tokenizer([], {"<|endoftext|>": 299}), GPT2Config(300, 8, layers=1, heads=1, width=8)
    state = ei.initial_state(evaluation_graph(config, 1, 8))
    found = Evaluation(config, tokenizer, 1, 8).of(state, [np.array([*tokenizer.encode("some text"), 299], np.int32)])
    assert (found.tokens, found.bytes) == (9, 8), "the end of the text has no bytes"


@pytest.mark.parametrize(("batch_size", "accumulate"), [(4, 2), (1, 8)])
def test_a_step_is_the_same_however_it_is_split(corpus, batch_size, accumulate):
    (whole, *_), (parts, *_) = (
        trainer(corpus[:4000], batch_size=each, accumulate=times) for each, times in ((8, 1), (batch_size, accumulate))
    )
    for step in range(5):
        expected, found = whole.step(step), parts.step(step)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
        assert found["gradient_norm"] == pytest.approx(expected["gradient_norm"], rel=1e-5)
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


@pytest.mark.parametrize(
    ("backend", "given"), [("reference", {}), ("cpu", {"accumulate": 2, "dropout": 0.2, "optimizer": "muon"})]
)
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


WAITING = """
import signal
from models.training.trainer import Trainer
original = Trainer.step
def waiting(self, number):
    if number == 15:
        signal.alarm(60)
        signal.pause()
    return original(self, number)
Trainer.step = waiting
"""


def test_a_run_killed_at_a_random_moment_continues_bit_for_bit(tmp_path, text_file):
    start(tmp_path / "whole", text_file, steps=20, validate_every=3).train()
    flags = ["--out", tmp_path / "parts"]
    given = ["--corpus", text_file, "--steps", 20, "--batch-size", 2, "--vocab-size", 280, "--validate-every", 3]

    # However late it is killed, it has not ended: it waits before its step 16.
    process = program(*flags, *given, before=WAITING)
    latest, log = tmp_path / "parts" / "latest.safetensors", tmp_path / "parts" / "metrics.jsonl"
    steps = random.randint(3, 15)
    while process.poll() is None and not (latest.exists() and len(read_metrics(log)) >= steps):
        time.sleep(0.01)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert 3 <= Checkpoint.load(latest).step <= 15

    resumed = program(*flags, "--resume")
    output, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert "Continuing after step" in output
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert not list((tmp_path / "parts").glob(".*"))


KILLED = """
import os, signal
calls, original = 0, os.{function}
def killing(*arguments):
    global calls
    calls += 1
    if {after}:
        original(*arguments)
    if calls == {number}:
        os.kill(os.getpid(), signal.SIGKILL)
    if not {after}:
        original(*arguments)
os.{function} = killing
"""


@pytest.mark.parametrize(
    ("function", "after"),
    [
        ("replace", False),
        pytest.param("replace", True, marks=pytest.mark.slow),
        pytest.param("fsync", False, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_while_it_saves_keeps_a_checkpoint(tmp_path, text_file, function, after):
    """Before, in or after the writing of any file: tokenizer, tokens, log, best, latest, picture."""
    options = {"steps": 6, "validate_every": 2}
    start(tmp_path / "whole", text_file, **options).train()
    number = random.randint(1, 13 if function == "replace" else 26)
    given = ["--steps", 6, "--validate-every", 2, "--batch-size", 2, "--vocab-size", 280, "--corpus", text_file]
    before = KILLED.format(function=function, number=number, after=after)
    process = program("--out", tmp_path / "parts", *given, before=before)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, number
    if (tmp_path / "parts" / "latest.safetensors").exists():
        run = resume_pretraining(tmp_path / "parts", backend="reference")
    else:
        run = start(tmp_path / "parts", text_file, **options)
    run.train()
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    best = [Checkpoint.load(tmp_path / name / "best.safetensors") for name in ("whole", "parts")]
    assert best[0].step == best[1].step
    assert not list((tmp_path / "parts").glob(".*"))


def test_a_finished_run_resumes_to_nothing_and_can_go_further(tmp_path, text_file):
    start(tmp_path / "run", text_file).train()
    run = resume_pretraining(tmp_path / "run", {"steps": 12})
    assert run.train() is None and run.checkpoint.step == 12
    run = resume_pretraining(tmp_path / "run", {"steps": 14})
    run.train(14)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert len(records) == 14 and records[-1]["learning_rate"] == pytest.approx(1e-3), "the schedule keeps its horizon"


def test_validating_does_not_change_what_is_learned(tmp_path, text_file):
    losses = []
    for every in (1, 12):
        start(tmp_path / str(every), text_file, steps=6, validate_every=every, dropout=0.2).train()
        records = read_metrics(tmp_path / str(every) / "metrics.jsonl")
        losses.append([(record["loss"], record["gradient_norm"]) for record in records])
    assert losses[0] == losses[1]


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


def bits_at_validations(run, *bits, monkeypatch):
    numbers = iter(bits)
    monkeypatch.setattr(run.task, "validate", lambda state: {"validation_loss": 1.0, "bits_per_byte": next(numbers)})


def test_best_and_latest_are_both_kept_and_a_run_without_progress_ends_early(tmp_path, text_file, monkeypatch, capsys):
    run = start(tmp_path / "run", text_file, steps=40, validate_every=4, patience=2)
    bits_at_validations(run, 5.0, 3.0, 4.0, 3.0, 9.0, monkeypatch=monkeypatch)
    assert run.train() is None
    assert "Stopped early: 2 validations in a row since step 8 were no better." in capsys.readouterr().out
    best, latest = (Checkpoint.load(tmp_path / "run" / f"{name}.safetensors") for name in ("best", "latest"))
    assert (best.step, latest.step) == (8, 16)
    assert latest.progress["best"] == {"step": 8, "validation_loss": 1.0, "bits_per_byte": 3.0}
    assert run.summary().splitlines()[3] == "Best, at step 8: validation loss 1.000, 3.000 bits per byte."
    # It does not go on by itself, and does with more patience.
    run = resume_pretraining(tmp_path / "run", backend="reference")
    run.train()
    assert run.checkpoint.step == 16
    run = resume_pretraining(tmp_path / "run", {"patience": 3}, "reference")
    bits_at_validations(run, 3.5, monkeypatch=monkeypatch)
    run.train()
    assert run.checkpoint.step == 20 and run.checkpoint.settings["patience"] == 3


def test_checkpoints_can_be_kept_by_their_step(tmp_path, text_file):
    start(tmp_path / "run", text_file, steps=20, validate_every=5, keep=2).train()
    kept = sorted((tmp_path / "run").glob("step-*"))
    assert [path.name for path in kept] == ["step-00000015.safetensors", "step-00000020.safetensors"]
    assert [Checkpoint.load(path).step for path in kept] == [15, 20]


def test_the_schedule_is_a_function_of_the_step_with_the_horizon_of_the_beginning(tmp_path, text_file, capsys):
    run = start(tmp_path / "run", text_file, schedule="linear", warmup=2, final_learning_rate=0.0)
    run.train()
    rates = [record["learning_rate"] for record in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert rates == pytest.approx([0.01 / 3, 0.02 / 3, *(0.01 * (1 - done / 10) for done in range(10))])
    capsys.readouterr()
    resume_pretraining(tmp_path / "run", {"steps": 13}, "reference").train(13)
    assert "The learning rate keeps its schedule over 12 steps." in capsys.readouterr().out
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["learning_rate"] == 0


class Watching:
    """An observer that writes down what it is told."""

    def __init__(self):
        self.seen = []

    def before_step(self, step, trainer):
        self.weight = trainer.state["wte.weight"].copy()
        self.seen.append(step)

    def after_step(self, record, trainer):
        assert not np.array_equal(trainer.state["wte.weight"], self.weight)
        self.seen.append(-record["step"])


def test_an_observer_sees_each_step(tmp_path, text_file):
    run, watching = start(tmp_path / "run", text_file, steps=3, validate_every=2), Watching()
    run.train(observers=[watching])
    assert watching.seen == [0, -1, 1, -2, 2, -3]
    assert list(run.trainer.gradient_norms) == run.trainer.parameters
    assert sum(norm**2 for norm in run.trainer.gradient_norms.values()) ** 0.5 == pytest.approx(
        read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["gradient_norm"]
    )


def test_a_second_signal_acts_at_once():
    with pytest.raises(KeyboardInterrupt), Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)


def test_a_signal_that_is_ignored_stays_so():
    """A shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.signal is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
    finally:
        signal.signal(signal.SIGINT, before)


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
