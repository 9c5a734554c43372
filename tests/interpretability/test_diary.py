"""A diary says what a training was like and changes nothing of it."""

import json
from collections import Counter

import numpy as np
import numpy_gpt2
import pytest

from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.interpretability.diary import Diary
from models.interpretability.ngrams import NGrams
from models.training import run as training_run
from models.training.checkpoint import Checkpoint
from models.training.metrics import read_metrics
from models.training.pretraining import resume_pretraining, start_pretraining
from models.training.settings import PRESET_SETTINGS, PretrainingSettings

pytestmark = pytest.mark.usefixtures("compiled_once")

TINY = GPT2Config(300, 8, layers=1, heads=2, width=8)
TEXT = "To be, or not to be: that is the question.\n" * 60


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Begins a run of 6 steps, which validates after 3, in a folder of that name."""
    return beginning(tmp_path, monkeypatch)


def beginning(folder, patches):
    patches.setitem(PRESETS, "tiny", TINY)
    patches.setitem(PRESET_SETTINGS, "tiny", {"learning_rate": 1e-2})
    patches.setattr(training_run, "draw_loss_curves", lambda *_: None)
    corpus = folder / "corpus.txt"
    corpus.write_text(TEXT)
    sizes = {"steps": 6, "batch_size": 2, "vocab_size": 280, "validate_every": 3}
    settings = PretrainingSettings.for_preset(str(corpus), "tiny", **sizes)
    return lambda name: start_pretraining(folder / name, settings, backend="reference")


def diary(run, path, wanted, resumed_at=0):
    tokens = np.array(run.task.tokenizer.encode_ordinary(TEXT))
    return Diary(path, wanted, run.task, tokens[100:], tokens[:100], ("To ",), 5, resumed_at)


class Watcher:
    """Keeps all weights before and after each step."""

    def __init__(self):
        self.seen = []

    def before_step(self, step, trainer):
        self.seen.append({name: trainer.state[name].copy() for name in trainer.parameters})

    def after_step(self, record, trainer):
        self.before_step(record["step"], trainer)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """(folder, what a Watcher saw) of a run `plain` and one `watched`, whose diary is about steps 1 and 4."""
    folder, watcher = tmp_path_factory.mktemp("runs"), Watcher()
    with pytest.MonkeyPatch.context() as patches:
        begin = beginning(folder, patches)
        begin("plain").train()
        run = begin("watched")
        run.train(observers=[diary(run, folder / "diary.jsonl", {1, 4}.__contains__), watcher])
    return folder, watcher.seen


def test_the_training_is_the_same_with_a_diary(watched):
    folder, _ = watched
    records = [read_metrics(folder / name / "metrics.jsonl") for name in ("plain", "watched")]
    losses = [[record["loss"] for record in each] for each in records]
    assert len(losses[0]) == 6 and losses[0] == losses[1]
    one, other = (Checkpoint.load(folder / name / "latest.safetensors").arrays for name in ("plain", "watched"))
    assert one.keys() == other.keys() and all((one[name] == other[name]).all() for name in one)


def test_what_is_written(watched):
    folder, seen = watched
    entries = [json.loads(line) for line in (folder / "diary.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [1, 4]
    metrics = {record["step"]: record for record in read_metrics(folder / "watched" / "metrics.jsonl")}
    for entry in entries:
        before, after = seen[2 * (entry["step"] - 1) : 2 * entry["step"]]
        assert entry["weights"].keys() == entry["gradients"].keys() == before.keys()
        for name in before:
            norm = np.linalg.norm(before[name].astype(np.float64))
            assert entry["weights"][name] == pytest.approx(norm)
            change = np.linalg.norm(after[name].astype(np.float64) - before[name])
            assert entry["updates"][name] == (pytest.approx(change / norm) if norm else None)
        record = metrics[entry["step"]]
        together = np.sqrt(sum(norm**2 for norm in entry["gradients"].values()))
        assert together == pytest.approx(record["gradient_norm"]) and entry["loss"] == record["loss"]
        assert list(entry["samples"]) == ["To "] and entry["samples"]["To "]
        checkpoint = Checkpoint.load(folder / "watched" / "latest.safetensors")
        tokens = np.array(checkpoint.tokenizer.encode_ordinary(TEXT))
        counted = np.log(NGrams(tokens[100:], 280).predictions(tokens[:8]))
        predicted = numpy_gpt2.forward(after, tokens[:8], 2)["log_probabilities"][1:]
        expected = (np.exp(predicted) * (predicted - counted)).sum(-1).mean(-1)
        assert list(entry["divergence"]) == ["unigram", "bigram", "trigram"]
        assert list(entry["divergence"].values()) == pytest.approx(expected, rel=1e-4)


def test_a_resumed_diary_has_each_step_once(run, tmp_path):
    first = run("run")
    first.train(3, observers=[diary(first, tmp_path / "diary.jsonl", lambda step: True)])
    again = resume_pretraining(tmp_path / "run", backend="reference")
    again.train(observers=[diary(again, tmp_path / "diary.jsonl", lambda step: True, again.checkpoint.step)])
    assert [entry["step"] for entry in read_metrics(tmp_path / "diary.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_an_observer_that_fails_ends_the_run_and_the_checkpoint_is_safe(run, tmp_path):
    class Failing:
        def before_step(self, step, trainer):
            pass

        def after_step(self, record, trainer):
            if record["step"] == 4:
                raise OSError("No space left on device")

    watched = run("watched")
    with pytest.raises(OSError, match="No space left"):
        watched.train(observers=[Failing()])
    assert Checkpoint.load(tmp_path / "watched" / "latest.safetensors").step == 3


def test_ngrams_lean_on_shorter_ones():
    tokens, strength = [0, 1, 2, 0, 1, 3, 4, 1, 0, 1, 2], 5.0
    found = NGrams(np.array(tokens), 6, strength).predictions([0, 1, 5])
    assert found.shape == (3, 2, 6)
    np.testing.assert_allclose(found.sum(-1), 1)

    def counted(following, lower):
        counts = Counter(following)
        return np.array([(counts[i] + strength * lower[i]) / (len(following) + strength) for i in range(6)])

    unigram = counted(tokens, np.full(6, 1 / 6))
    bigram = counted([2, 3, 0, 2], unigram)  # what follows a 1
    np.testing.assert_allclose(found[:, 0], [unigram, bigram, counted([2, 3, 2], bigram)])
    # Nothing follows a 5, which is not there; after a 1 neither.
    np.testing.assert_allclose(found[:, 1], [unigram] * 3)
