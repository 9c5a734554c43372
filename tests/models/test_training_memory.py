"""The memory of a run: known before it begins, below a budget, with steps that do not depend on how they are split."""

import re
from dataclasses import replace

import numpy as np
import pytest
from training_runs import TINY, program, settings, trainer

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.widen import in_f64
from models.data.batches import IGNORED_LABEL
from models.language_model import accumulation_graphs
from models.training.memory import fitting, free_memory, parse_size
from models.training.metrics import read_metrics
from models.training.pretraining import Pretraining, resume_pretraining, start_pretraining
from models.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("tiny_preset")


def test_the_mean_gradient_is_that_of_all_tokens_however_they_are_split():
    """In f64, with rows of very different numbers of targets, where means of means are far off."""
    random = np.random.default_rng(0)
    tokens, targets = random.integers(0, TINY.vocab_size, (2, 8, 8)).astype(np.int32)
    for row in range(8):
        targets[row, row + 1 :] = IGNORED_LABEL
    gradients = {}
    for batch in (8, 4, 1):
        accumulate, _ = (in_f64(graph) for graph in accumulation_graphs(TINY, batch, 8))
        state = ei.initial_state(accumulate)
        leaves = {name: array.copy() for name, array in state.items()}
        for rows in np.split(np.arange(8), 8 // batch):
            _, updates = interpreter.run(accumulate, {**leaves, "tokens": tokens[rows], "targets": targets[rows]})
            leaves |= updates
        assert leaves["accumulator.count"] == sum(range(1, 9))
        sums = {name: array for name, array in leaves.items() if name.startswith("accumulator.")}
        gradients[batch] = {name: array / leaves["accumulator.count"] for name, array in sums.items()}
    for batch in (4, 1):
        for name, expected in gradients[8].items():
            np.testing.assert_allclose(gradients[batch][name], expected, rtol=1e-9, atol=1e-15, err_msg=name)


def task_maker(corpus, batch_size, config=TINY):
    """A function that makes a task of settings, and the task of those of ``batch_size``."""
    (trained, *_) = trainer(corpus[:4000], batch_size=batch_size, context=config.context)
    task = trained.task
    config = replace(config, vocab_size=task.config.vocab_size)

    def make(options):
        return Pretraining(options, config, task.tokenizer, task._training, [], "reference")

    return make, make(task.settings)


def test_a_budget_splits_a_step_and_keeps_its_windows(corpus):
    make, task = task_maker(corpus, 4)
    halves = make(replace(task.settings, batch_size=2, accumulate=2)).needs().total
    ones = make(replace(task.settings, batch_size=1, accumulate=4)).needs().total
    for budget, batch_size in ((task.needs().total, 4), (halves, 2), (halves - 1, 1)):
        found = fitting(make, task.settings, budget)
        assert (found.settings.batch_size, found.settings.accumulate) == (batch_size, 4 // batch_size)
        assert found.needs().total <= budget
    with pytest.raises(ValueError, match=r"One window of 8 tokens at a time needs .* largest tensor of a step is %"):
        fitting(make, task.settings, ones // 2)


def test_below_a_batch_of_one_values_are_computed_again(corpus):
    make, task = task_maker(corpus, 1, replace(TINY, context=64, layers=4))
    plain = task.needs().total
    found = fitting(make, task.settings, plain - 20_000)
    assert found.settings.memory_budget > 0 and found.needs().total <= plain - 20_000
    first, second = Trainer(task), Trainer(found)
    for step in range(2):
        assert first.step(step)["loss"] == second.step(step)["loss"], "to the bit"


def test_what_is_known_beforehand_is_counted_right(corpus):
    _, task = task_maker(corpus, 2)
    needs = task.needs()
    parameters = task.config.build().parameter_count() * 4
    assert needs.state == 3 * parameters + 8, "parameters, two moments and the counter"
    assert needs.saving == 2 * needs.state
    assert needs.total == needs.state + needs.saving + needs.tensors
    assert needs.tensors >= max(size for _, size in needs.largest)


def test_a_run_on_a_budget_goes_on_as_without(tmp_path, text_file):
    options = settings(text_file, batch_size=4, steps=4, validate_every=2)
    whole = start_pretraining(tmp_path / "whole", options, "reference")
    whole.train()
    budget = whole.task.needs().total - 1
    start_pretraining(tmp_path / "split", options, "reference", memory_budget=budget).train(2)
    run = resume_pretraining(tmp_path / "split", backend="reference")
    assert (run.settings.batch_size, run.settings.accumulate) == (2, 2), "the split is the run's from then on"
    assert "4 windows of 8, 2 at a time\nMemory: " in run.task.description()
    run.train(4)
    for expected, found in zip(*(read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "split"))):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2e9), ("1.5 MiB", 1.5 * 2**20), ("512kb", 512e3), ("1000", 1000), ("3B", 3), ("0.5GiB", 2**29)],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


def test_what_is_free_is_found_out():
    assert free_memory() is None or 0 < parse_size("auto") <= free_memory() * 1.5


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "0GB", "2 XB", "GB", "1e9"])
def test_what_is_no_size_is_said(tmp_path, text, text_file):
    with pytest.raises(ValueError, match=re.escape(f"{text!r} is no amount of memory")):
        parse_size(text)


def test_what_does_not_fit_is_one_line_and_no_run(tmp_path, text_file):
    process = program("--corpus", text_file, "--vocab-size", 280, "--out", tmp_path / "run", "--memory-budget", "20KB")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and output == "" and errors.count("\n") == 1
    assert "One window of 8 tokens at a time needs" in errors and not (tmp_path / "run").exists()
