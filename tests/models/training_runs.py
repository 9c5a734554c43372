"""Runs of a model small enough to train in a test, and the example that makes them, as a process of its own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from models.data.sources import Source
from models.gpt2 import GPT2Config
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.metrics import read_metrics
from models.training.pretraining import Pretraining, start_pretraining
from models.training.settings import PretrainingSettings
from models.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
TINY = GPT2Config(300, 8, layers=1, heads=2, width=8)

# The example, with a model small enough to train in a test.
PROGRAM = f"""
import runpy, sys
from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.training import pretraining
from models.training.settings import PRESET_SETTINGS
pretraining.SAMPLE_TOKENS = 5
PRESETS["tiny"], PRESET_SETTINGS["tiny"] = {TINY!r}, {{"learning_rate": 1e-2}}
sys.argv[0] = "gpt2_train.py"
runpy.run_path({str(ROOT / "examples" / "gpt2_train.py")!r}, run_name="__main__")
"""


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


def trainer(text, vocab_size=280, backend="reference", **given):
    tokenizer = Tokenizer.train(text, vocab_size)
    tokens = tokenizer.encode_to_numpy(text)
    options = replace(settings("corpus.txt"), **given)
    config = replace(TINY, vocab_size=tokenizer.vocab_size, dropout=options.dropout, context=options.context)
    sources = ([Source("text", [part])] for part in (tokens[:-300], tokens[-300:]))
    task = Pretraining(options, config, tokenizer, *sources, backend)
    return Trainer(task), tokenizer, tokens[-300:]


def program(*arguments, before="", **options):
    """The example as a process, which does what ``before`` says first."""
    command = [sys.executable, "-c", before + PROGRAM, "--preset", "tiny", "--device", "reference", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **pipes | options)
