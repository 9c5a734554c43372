"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from models.bpe import Tokenizer
from models.checkpoint import Checkpoint
from models.gpt2 import GPT2Config, evaluation_graph

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120)


def test_the_first_model_is_short_and_learns():
    lines = [line for line in (EXAMPLES / "mlp.py").read_text().splitlines()[1:] if line.strip()]
    assert len(lines) < 20
    finished = run("mlp.py")
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout.split(":")[1]) < 1e-3


@pytest.fixture(scope="module")
def checkpoint_file(tmp_path_factory):
    config = GPT2Config(257, 8, 1, 2, 8)
    state = ei.initial_state(evaluation_graph(config, 1, 8))
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    Checkpoint({**state, "optim.step": np.int64(1)}, config, Tokenizer([]), 1, {}, {}).save(path)
    return path


def test_sampling_from_a_checkpoint(checkpoint_file):
    first, again, other = (
        run("gpt2_sample.py", checkpoint_file, "--prompt", "né ", "--tokens", 12, "--seed", seed) for seed in (1, 1, 2)
    )
    assert first.returncode == 0 and first.stdout.startswith("né "), first.stderr
    assert first.stdout == again.stdout != other.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--temperature", "-1"], "temperature must be 0 or above"),
        (["--prompt", ""], "prompt is empty"),
        (["--top-p", "2"], "top_p must be between 0 and 1"),
    ],
)
def test_what_cannot_be_sampled_is_one_line(checkpoint_file, flags, message):
    finished = run("gpt2_sample.py", checkpoint_file, *flags)
    assert finished.returncode == 2 and message in finished.stderr and finished.stderr.count("\n") == 1


def test_a_pass_of_ones_own():
    finished = run("write_a_pass.py")
    assert finished.returncode == 0, finished.stderr
    assert '{approximate = "tanh"}' in finished.stdout
