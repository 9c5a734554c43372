"""Corpora of several sources: what is read, in which shares, and what is noticed when files change."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from training_runs import ROOT, assert_same_run, program, settings

from models.data.batches import IGNORED_LABEL, Batches
from models.data.sources import Source, SourceFiles
from models.data.token_files import token_file_writer, write_token_file
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import save_tokenizer
from models.training.checkpoint import Checkpoint
from models.training.metrics import read_metrics
from models.training.pretraining import resume_pretraining, start_pretraining

pytestmark = pytest.mark.usefixtures("tiny_preset")


def counting(start, count):
    return np.arange(start, start + count, dtype=np.uint16)


# --- Shares ---


@pytest.mark.parametrize("split", [(10, 1), (5, 2), (1, 10)])
def test_a_weight_is_the_share_of_windows(split):
    batch_size, accumulate = split
    weights = {"a": 3.0, "b": 1.0, "c": 0.25}
    sources = [Source(name, [counting(1000 * n, 500)], weight) for n, (name, weight) in enumerate(weights.items())]
    batches = Batches(sources, batch_size, 8, seed=5, accumulate=accumulate)
    counts = np.zeros(3, int)
    for step in range(40):
        windows = np.concatenate([batches.batch(step, micro)[0] for micro in range(accumulate)])
        chosen = windows[:, 0] // 1000
        assert (windows // 1000 == chosen[:, None]).all(), "no window crosses from one source to the next"
        of_step = np.bincount(chosen, minlength=3)
        expected = 10 * np.array(list(weights.values())) / sum(weights.values())
        assert (np.abs(of_step - expected) < 1).all(), "each step has the shares, up to a window"
        counts += of_step
    np.testing.assert_allclose(counts / 400, expected / 10, atol=0.02)


def test_a_step_has_the_same_windows_however_it_is_split():
    sources = [Source("a", [counting(0, 500)], 3), Source("b", [counting(1000, 70), counting(2000, 90)], 1)]
    whole = Batches(sources, 12, 8, seed=2).batch(3)
    for batch_size, accumulate in ((6, 2), (4, 3), (1, 12)):
        parts = Batches(sources, batch_size, 8, seed=2, accumulate=accumulate)
        for expected, found in zip(whole, zip(*(parts.batch(3, micro) for micro in range(accumulate)))):
            assert np.array_equal(np.concatenate(found), expected)


def test_every_window_of_every_piece_and_none_across():
    pieces = [counting(0, 12), counting(100, 3), counting(200, 9), counting(300, 10)]
    source = Source("shards", pieces)
    assert source.window_count(8) == 4 + 0 + 1 + 2
    found = source.windows(range(7), 8)
    assert found[:, 0].tolist() == [0, 1, 2, 3, 200, 300, 301]
    assert (np.diff(found, axis=1) == 1).all()
    drawn = {int(w[0]) for step in range(20) for w in Batches([source], 16, 8, seed=0).batch(step)[0]}
    assert drawn == set(found[:, 0].tolist())


# --- Documents ---


def test_a_window_ends_with_its_document_unless_asked_otherwise():
    tokens = np.array([7, 1, 2, 3, 7, 4, 5, 7, 6] * 30, np.uint16)
    apart, across = (Batches([Source("t", [tokens])], 64, 6, seed=1, document_end=end) for end in (7, None))
    (inputs, targets), (same, following) = apart.batch(0), across.batch(0)
    assert np.array_equal(inputs, same) and (following != IGNORED_LABEL).all()
    for row in range(64):
        first = next((n for n in range(1, 6) if inputs[row, n] == 7), 6)
        assert np.array_equal(targets[row, :first], following[row, :first]), "the end itself is learned"
        assert (targets[row, first:] == IGNORED_LABEL).all()
    assert (targets[:, 0] != IGNORED_LABEL).all(), "every window teaches something"


# --- What the user names ---


def test_words_are_files_patterns_and_weights(tmp_path, monkeypatch, small_tokenizer):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "odd:2"):
        (tmp_path / name).write_text("text")
    (tmp_path / "shards").mkdir()
    for number in (1, 0):
        write_token_file(tmp_path / "shards" / f"{number}.tokens", counting(0, 99), small_tokenizer)
    (tmp_path / "shards" / "notes.txt").write_text("not tokens")

    def read(*words):
        found = SourceFiles.of(words)
        return found.name, found.weight, [str(path) for path in found.paths]

    assert read("a.txt") == ("a.txt", 1, ["a.txt"])
    assert read("a.txt:2.5") == ("a.txt", 2.5, ["a.txt"])
    assert read("odd:2") == ("odd:2", 1, ["odd:2"])
    assert read("odd:2:3") == ("odd:2", 3, ["odd:2"])
    assert read("*.txt:3") == ("*.txt", 3, ["a.txt", "b.txt"])
    assert read("b.txt", "a.txt:4") == ("b.txt and 1 more", 4, ["b.txt", "a.txt"])
    assert read("shards")[2] == ["shards/0.tokens", "shards/1.tokens"]
    assert SourceFiles.of(["b.txt", "a.txt"]).text("|") == "text|text"
    for words, error, message in (
        (["a.txt:0"], ValueError, "weight of a.txt must be above 0 and at most .*, not 0"),
        (["a.txt:-1"], ValueError, "weight"),
        (["a.txt:inf"], ValueError, "weight"),
        (["a.txt:nan"], ValueError, "weight"),
        (["none.txt:2"], FileNotFoundError, "no file none.txt"),
        (["*.tokens"], FileNotFoundError, "no file"),
        ([str(tmp_path)], IsADirectoryError, "without token files"),
        (["a.txt", "shards/0.tokens"], ValueError, "texts and token files are two sources"),
    ):
        with pytest.raises(error, match=message):
            SourceFiles.of(words)


# --- Runs ---


@pytest.fixture
def mixed(tmp_path, corpus):
    """Words for a text of weight 3, and for two shards with the file of their tokenizer."""
    tokenizer = Tokenizer.train(corpus[:4000], 280)
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    (tmp_path / "play.txt").write_text(corpus[:3000])
    for number, text in enumerate((corpus[10_000:13_000], corpus[50_000:53_000])):
        write_token_file(tmp_path / f"{number}.tokens", tokenizer.encode_to_numpy(text), tokenizer)
    words = ((f"{tmp_path / 'play.txt'}:3",), (str(tmp_path / "*.tokens"),))
    return words, str(tmp_path / "tokenizer.json")


def test_a_mixed_run_reports_each_source_and_resumes_bit_for_bit(tmp_path, mixed):
    words, tokenizer = mixed
    options = settings(words, tokenizer=tokenizer, accumulate=2)
    run = start_pretraining(tmp_path / "whole", options, "reference")
    assert "play.txt: " in run.task.description() and "75% of the windows" in run.task.description()
    run.train()
    record = read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]
    losses = [record[f"validation_loss/{name}"] for name in ("play.txt", "*.tokens")]
    assert record["validation_loss"] == pytest.approx(0.75 * losses[0] + 0.25 * losses[1])
    assert "*.tokens" in run.summary()
    for steps in (4, 9, 12):
        if steps == 4:
            run = start_pretraining(tmp_path / "parts", options, "reference")
        else:
            run = resume_pretraining(tmp_path / "parts", {"corpus": words}, "reference")
        stop_after(run, steps)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def stop_after(run, steps):
    """Train as if a signal had come in step ``steps``, which leaves a checkpoint outside of the validations."""
    step = run.trainer.step

    def stopping(number):
        record = step(number)
        if record["step"] == steps < 12:
            os.kill(os.getpid(), 15)
        return record

    run.trainer.step = stopping
    run.train()


def test_a_corpus_that_changed_is_noticed_and_named(tmp_path, mixed):
    words, tokenizer = mixed
    run = start_pretraining(tmp_path / "run", settings(words, tokenizer=tokenizer), "reference")
    stop_after(run, 3)
    shard = tmp_path / "1.tokens"
    sound = shard.read_bytes()
    os.utime(shard, (0, 0))
    resume_pretraining(tmp_path / "run", backend="reference").folder.release()
    shard.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(ValueError, match="1.tokens is not what it was when the run began"):
        resume_pretraining(tmp_path / "run", backend="reference")
    shard.unlink()
    with pytest.raises(FileNotFoundError, match="1.tokens is gone"):
        resume_pretraining(tmp_path / "run", backend="reference")
    shard.write_bytes(sound)
    (tmp_path / "play.txt").unlink()  # its tokens are in the run's folder
    resume_pretraining(tmp_path / "run", backend="reference").folder.release()
    with pytest.raises(ValueError, match=r"has --corpus \S+play.txt:3 \S+tokens, not \S+play.txt:3\. Leave"):
        resume_pretraining(tmp_path / "run", {"corpus": words[:1]}, "reference")
    # Two runs in a row were refused: neither holds the folder.
    resume_pretraining(tmp_path / "run", backend="reference").train()


def test_token_files_need_their_tokenizer(tmp_path, mixed, small_tokenizer):
    words, tokenizer = mixed
    with pytest.raises(ValueError, match=r"\*.tokens holds token ids. Give the tokenizer .*--tokenizer FILE"):
        start_pretraining(tmp_path / "run", settings(words), "reference")
    save_tokenizer(small_tokenizer, tmp_path / "other.json")
    with pytest.raises(ValueError, match="0.tokens was written with another tokenizer"):
        start_pretraining(tmp_path / "run", settings(words, tokenizer=str(tmp_path / "other.json")), "reference")
    assert not (tmp_path / "run").exists()
    # One shard alone is a corpus.
    run = start_pretraining(
        tmp_path / "run", settings(str(tmp_path / "0.tokens"), tokenizer=tokenizer, steps=2), "reference"
    )
    run.train()
    assert run.checkpoint.step == 2


def test_the_example_takes_sources_and_all_settings(tmp_path, mixed):
    (play, shards), tokenizer = mixed
    corpus = ["--corpus", *play, "--corpus", *shards, "--tokenizer", tokenizer, "--across-documents"]
    steps = ["--steps", 3, "--schedule", "wsd", "--optimizer", "muon", "--warmup", 1, "--final-learning-rate", 0]
    run = ["--keep", 1, "--patience", 5, "--on-nonfinite", "skip", "--memory-budget", "auto", "--peak-gflops", 100]
    process = program(*corpus, *steps, *run, "--batch-size", 4, "--out", tmp_path / "run")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "play.txt: " in output and "*.tokens: " in output and "Memory: " in output and "% of" not in errors
    kept = Checkpoint.load(tmp_path / "run" / "step-00000003.safetensors")
    assert kept.settings["schedule"] == "wsd" and kept.settings["across_documents"]
    assert "optim.momentum.h.0.mlp.c_fc.weight" in kept.arrays


def test_characters_are_a_vocabulary(tmp_path, text_file):
    run = start_pretraining(tmp_path / "run", settings(text_file, tokenizer="characters", steps=2), "reference")
    run.train()
    tokenizer = Checkpoint.load(tmp_path / "run" / "latest.safetensors").tokenizer
    assert tokenizer.vocab_size < 80 and tokenizer.decode(tokenizer.encode("be")) == "be"


def test_a_run_may_begin_with_the_weights_of_another(tmp_path, text_file, capsys):
    first = start_pretraining(tmp_path / "first", settings(text_file, steps=6, validate_every=6), "reference")
    first.train()
    best = tmp_path / "first" / "latest.safetensors"
    options = settings(text_file, init_from=str(best), steps=3, validate_every=1)
    second = start_pretraining(tmp_path / "second", options, "reference")
    assert "the optimiser's moments begin anew" in second.task.description()
    trained = Checkpoint.load(best)
    for name, array in second.trainer.state.items():
        expected = np.zeros_like(array) if name.startswith("optim.") else trained.arrays[name]
        assert np.array_equal(array, expected), name
    second.train()
    records = read_metrics(tmp_path / "second" / "metrics.jsonl")
    assert records[0]["validation_loss"] < read_metrics(tmp_path / "first" / "metrics.jsonl")[0]["loss"]
    assert resume_pretraining(tmp_path / "second", backend="reference").checkpoint.step == 3
    # Weights alone, as other programs' are, do as well.
    weights = {name: array for name, array in trained.arrays.items() if not name.startswith("optim.")}
    Checkpoint(weights, trained.config, trained.tokenizer, 0, {}, {}).save(tmp_path / "weights.safetensors")
    options = settings(text_file, init_from=str(tmp_path / "weights.safetensors"), steps=1)
    start_pretraining(tmp_path / "third", options, "reference").train()
    del weights["ln_f.bias"]
    Checkpoint(weights, trained.config, trained.tokenizer, 0, {}, {}).save(tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="missing.*ln_f.bias"):
        start_pretraining(tmp_path / "fourth", options, "reference")


LARGE = """
import json, re, sys
from pathlib import Path
import numpy as np
from models.data.batches import Batches
from models.data.sources import Source

def resident():
    return int(re.search(r"RssFile:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

shard = np.memmap(sys.argv[1], "<u2", mode="r", offset=64)
batches = Batches([Source("shard", [shard])], 64, 512, seed=0)
batches.batch(0)
before = resident()
for step in range(150):
    batches.batch(step)
print(json.dumps(resident() - before))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux to tell its memory")
def test_a_shard_that_is_read_all_over_does_not_stay_in_memory(tmp_path, small_tokenizer):
    path = tmp_path / "large.tokens"
    with token_file_writer(path, small_tokenizer) as writer:
        for _ in range(20):
            writer.append(np.zeros(5_000_000, np.uint16))
    command = [sys.executable, "-c", LARGE, path]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) < 20, "MiB, of 190 that 9,600 windows are spread over"
