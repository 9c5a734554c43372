"""How a training run fails: numbers that are not finite, disks, folders, wrong use."""

import errno
import math
import os
import resource
import runpy
import subprocess
import sys

import numpy as np
import pytest
from training_runs import ROOT, program, settings, start, trainer, without_times

import euler_ir as ei
from euler_ir import optim
from models.training.checkpoint import Checkpoint
from models.training.metrics import read_metrics
from models.training.trainer import Diverged, Trainer

pytestmark = pytest.mark.usefixtures("tiny_preset")


# --- Failing ---


def snapshot(state):
    return {name: array.tobytes() for name, array in state.items()}


def with_planted_gradient(monkeypatch, run, parameter, bad):
    """Let the gradient of ``parameter`` be ``bad`` where ``planted`` of the state, zeros at first, is not 0."""
    gradients = optim.gradients

    def planted(loss):
        found = gradients(loss)
        leaf = next(leaf for leaf in found if leaf.op.attributes["name"] == parameter)
        return found | {leaf: ei.where(ei.not_equal(ei.state("planted", leaf.shape), 0), bad, found[leaf])}

    with monkeypatch.context() as patch:
        patch.setattr(optim, "gradients", planted)
        run.task._compiled = None
        run.trainer = Trainer(run.task)


@pytest.mark.parametrize(
    ("parameter", "bad", "accumulate"),
    [("h.0.mlp.c_fc.bias", math.nan, 1), ("wte.weight", math.inf, 1), ("wte.weight", math.nan, 2)],
)
def test_a_weight_that_is_not_finite_stops_the_run_and_is_named(
    tmp_path, text_file, monkeypatch, parameter, bad, accumulate
):
    run = start(tmp_path / "run", text_file, accumulate=accumulate)
    step = run.trainer.step

    def poisoned(number):
        if number == 7:
            run.trainer.state[parameter].flat[:2] = bad
            run.before = snapshot(run.trainer.state)
        return step(number)

    monkeypatch.setattr(run.trainer, "step", poisoned)
    size = run.trainer.state[parameter].size
    message = f"Step 8: the loss is .* since {parameter} holds 2 of {size} values .* last good checkpoint: step 5"
    with pytest.raises(Diverged, match=message) as stop:
        run.train()
    assert stop.value.step == 8
    assert snapshot(run.trainer.state) == run.before, "nothing was written"
    kept = Checkpoint.load(tmp_path / "run" / "latest.safetensors")
    assert kept.step == 5 and all(np.isfinite(array).all() for array in kept.arrays.values())


@pytest.mark.parametrize(("optimizer", "bad"), [("adamw", math.nan), ("muon", -math.inf)])
def test_a_gradient_that_is_not_finite_leaves_the_state_of_the_last_good_step(
    tmp_path, text_file, monkeypatch, backend, bad, optimizer
):
    run = start(tmp_path / "run", text_file, backend, optimizer=optimizer)
    with_planted_gradient(monkeypatch, run, "h.0.attn.c_proj.weight", bad)
    step = run.trainer.step

    def watched(number):
        if number == 3:
            run.trainer.state["planted"][2, 1] = 1
        run.before = snapshot(run.trainer.state)
        return step(number)

    monkeypatch.setattr(run.trainer, "step", watched)
    message = r"Step 4: the loss is \d.* gradient norm of h.0.attn.c_proj.weight is (nan|inf)\. .*: none"
    with pytest.raises(Diverged, match=message):
        run.train()
    assert snapshot(run.trainer.state) == run.before
    assert run.before != snapshot(Trainer(run.task).state), "the steps before were taken"


def spoil(run, steps, monkeypatch):
    """Let a weight of ``run`` be NaN during ``steps``, counted from 0, and only then."""
    step, state = run.trainer.step, run.trainer.state

    def spoiled(number):
        if number not in steps:
            return step(number)
        good = state["ln_f.weight"].copy()
        state["ln_f.weight"][0] = math.nan
        try:
            return step(number)
        finally:
            state["ln_f.weight"][0] = good[0]

    monkeypatch.setattr(run.trainer, "step", spoiled)


def test_steps_that_are_not_finite_can_be_left_out(tmp_path, text_file, monkeypatch, capsys):
    run = start(tmp_path / "run", text_file, on_nonfinite="skip")
    spoil(run, {3, 6}, monkeypatch)
    assert run.train() is None
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records if record.get("skipped")] == [4, 7]
    assert records[3]["loss"] is None and records[3]["tokens"] == 4 * 2 * 8
    assert run.trainer.state["optim.step"] == 10, "of 12 steps 10 were taken"
    assert capsys.readouterr().out.count("This step is left out.") == 2
    # The others are those of a run that knows no such steps: with its own batches and learning rates.
    other = start(tmp_path / "other", text_file)
    for number in range(12):
        if number not in {3, 6}:
            assert without_times([other.trainer.step(number)])[0].items() <= records[number].items()


def test_a_step_of_two_passes_can_be_left_out(tmp_path, text_file, monkeypatch):
    """What the passes of a step that is left out have summed up is no part of the next one."""
    runs = [start(tmp_path / name, text_file, on_nonfinite="skip", accumulate=2) for name in ("run", "other")]
    spoil(runs[0], {3}, monkeypatch)
    assert runs[0].train() is None
    for number in range(12):
        if number != 3:
            runs[1].trainer.step(number)
    assert snapshot(runs[0].trainer.state) == snapshot(runs[1].trainer.state)


def test_a_run_that_leaves_out_every_step_gives_up(tmp_path, text_file, monkeypatch):
    run = start(tmp_path / "run", text_file, on_nonfinite="skip", steps=40, validate_every=40)
    spoil(run, set(range(2, 40)), monkeypatch)
    with pytest.raises(Diverged, match="Step 12: .*10 steps in a row were not taken"):
        run.train()


def test_only_steps_in_a_row_are_counted(tmp_path, text_file, monkeypatch):
    run = start(tmp_path / "run", text_file, on_nonfinite="skip", steps=22, validate_every=22)
    spoil(run, {*range(1, 10), *range(11, 20)}, monkeypatch)
    assert run.train() is None and run.trainer.state["optim.step"] == 4


def test_what_is_not_finite_is_never_saved(tmp_path, text_file, monkeypatch):
    """A moment can be spoiled without a trace in loss and gradient until the step after."""
    run = start(tmp_path / "run", text_file)
    save = run._save

    def spoiled(step, *rest):
        if step == 10:
            run.trainer.state["optim.v.wte.weight"][3, 1] = math.inf
        save(step, *rest)

    monkeypatch.setattr(run, "_save", spoiled)
    with pytest.raises(Diverged, match="Step 10: optim.v.wte.weight holds 1 of .*step 5, in"):
        run.train()
    assert Checkpoint.load(tmp_path / "run" / "latest.safetensors").step == 5


def test_one_broken_gradient_is_blamed_alone(corpus):
    trained, *_ = trainer(corpus[:4000])
    trained.gradient_norms = dict.fromkeys(trained.parameters, 1.0) | {trained.parameters[3]: math.inf}
    assert f"the gradient norm of {trained.parameters[3]} is inf." in trained._blame(2.0)


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


def test_one_process_at_a_time_trains_in_a_folder(tmp_path, text_file):
    options = ["--corpus", text_file, "--out", tmp_path / "run", "--batch-size", 2, "--vocab-size", 280]
    run = start(tmp_path / "run", text_file, steps=3)
    for flags in ([], ["--resume"]):
        run._save(0, {}, improved=False)
        other = program(*options, *flags)
        output, errors = other.communicate(timeout=60)
        assert other.returncode == 2 and output == ""
        assert errors == (
            f"gpt2_train.py: error: Another process is training in {tmp_path / 'run'}. "
            "Wait until it ends, or choose another --out.\n"
        )
    run.train()
    assert not list((tmp_path / "run").glob(".*"))
    other = program("--out", tmp_path / "run", "--resume", "--steps", 4)
    assert other.communicate(timeout=60)[1] == "" and other.returncode == 0


def test_a_second_signal_ends_with_one_line(tmp_path, text_file):
    """The first asks for a stop after the step, the second does not wait for it."""
    before = "import os, signal\nfrom models.training.trainer import Trainer\n" + (
        "def step(*_):\n    for _ in range(2):\n        os.kill(os.getpid(), signal.SIGINT)\nTrainer.step = step\n"
    )
    process = program("--corpus", text_file, "--out", tmp_path / "run", "--vocab-size", 280, before=before)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.count("\n") == 1 and "Stopped at once" in errors


def test_standard_output_that_takes_no_more_is_one_line(tmp_path, text_file):
    with open("/dev/full", "w") as full:
        options = ["--corpus", text_file, "--out", tmp_path / "run", "--vocab-size", 280, "--steps", 2]
        process = program(*options, stdout=full)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and errors.count("\n") == 1 and "No space left" in errors


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))


def test_a_file_that_may_not_grow_stops_the_run_with_one_line(tmp_path, text_file):
    """The tokens fit, the checkpoint of 50 kB does not; no half of it is taken for one."""
    options = ["--corpus", text_file, "--out", tmp_path / "run", "--batch-size", 2, "--vocab-size", 280, "--steps", 9]
    process = program(*options, "--validate-every", 3, preexec_fn=limit_file_size)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "File too large" in errors and errors.count("\n") == 1
    assert not (tmp_path / "run" / "latest.safetensors").exists()
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_is_one_line(tmp_path, text_file):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o500)
    process = program("--corpus", text_file, "--out", folder)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "Permission denied" in errors and errors.count("\n") == 1


def test_a_text_without_validation_part_trains_all_the_same(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("abcdefghij")
    run = start(tmp_path / "run", str(path), steps=2, vocab_size=257)
    assert "corpus.txt: 9 tokens to train on, 0 for validation, 3.6 passes" in run.task.description()
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
        (["--learning-rate", "1e300"], "learning_rate must be above 0 and below 3.4e+38, not 1e+300"),
        (["--seed", str(1 << 63)], "seed must be at least 0 and below 2^63"),
        (["--batch-size", str(10**12), "--device", "reference"], "There is not enough memory"),
        (["--memory-budget", "9" * 400], "is no amount of memory"),
        (["--init-from", "model"], "argument --preset: --init-from decides it"),
        (["--tokenizer", "characters", "--vocab-size", "300"], "argument --vocab-size: only for a bpe"),
        (["--peak-gflops", "nan"], "argument --peak-gflops: must be above 0, not nan"),
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


@pytest.mark.parametrize("name", ["max_norm", "weight_decay", "final_learning_rate"])
def test_settings_that_are_no_numbers_are_refused(name):
    for value in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match=f"{name} must be"):
            settings("corpus.txt", **{name: value})


def test_files_of_something_else_are_not_overwritten(tmp_path, text_file):
    """Such as a folder of data, whose files have names that those of a run have too."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("mine")
    with pytest.raises(FileExistsError, match="data holds files that are not a training run's"):
        start(folder, text_file)
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]
    (folder / "tokenizer.json").unlink()
    (folder / ".notes").touch()
    run = start(folder, text_file)
    run.folder.release()
    # It never came to a checkpoint, and may begin again.
    start(folder, text_file, steps=2).train()
    assert (folder / ".notes").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, text_file):
    (tmp_path / "file").write_text("in the way")
    process = program("--corpus", text_file, "--out", tmp_path / "file" / "run")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "file" in errors and errors.count("\n") == 1


def test_a_reader_that_is_gone_ends_training_without_a_traceback(tmp_path, text_file):
    example = str(ROOT / "examples" / "gpt2_train.py")
    arguments = ["--preset", "pico", "--corpus", text_file, "--steps", "2", "--batch-size", "1", "--device", "reference"]
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, example, *arguments, "--context", "8", "--out", str(tmp_path / "run")],
        **{"stdout": writing, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT},
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, "")


def test_a_reader_that_leaves_during_training_ends_it_without_a_traceback(tmp_path, text_file):
    run = program("--corpus", text_file, "--steps", 100_000, "--validate-every", 1, "--out", tmp_path / "run")
    assert any(line.startswith("step 1/") for line in run.stdout)
    run.stdout.close()
    _, errors = run.communicate(timeout=60)
    assert (run.returncode, errors) == (141, "")
