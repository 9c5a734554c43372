"""The examples run as their first lines say."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from models.gpt2 import GPT2Config
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint

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


def test_sampling_several_texts(checkpoint_file):
    """One after the other, each as it is by itself with the seed that falls to it."""
    flags = ["--tokens", 9, "--repetition-penalty", "1.2", "--stop", "\\n", "--stop", "e"]
    finished = run("gpt2_sample.py", checkpoint_file, "--prompt", "né ", "--prompt", "a", "--count", 2, *flags)
    assert finished.returncode == 0, finished.stderr
    alone = run("gpt2_sample.py", checkpoint_file, "--prompt", "a", "--seed", 3, *flags).stdout
    texts = finished.stdout.removesuffix("\n").split("\n---\n")
    assert [text[:1] for text in texts] == ["n", "n", "a", "a"]
    assert f"{texts[3]}\n" == alone
    assert run("gpt2_sample.py", checkpoint_file, "--count", 0).returncode == 2


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


def test_a_reader_that_is_gone_ends_a_program_quietly(checkpoint_file):
    """As `head` does: the status is that of SIGPIPE in a shell, whether a program prints by itself or through rich."""
    sampling = "gpt2_sample.py", checkpoint_file, "--tokens", "9"
    looking = "gpt2_look.py", checkpoint_file, "lens", "--text", "abc"
    for name, *arguments in (sampling, looking, ("tokenize_text.py", "abc")):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
        finished = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, encoding="utf-8", timeout=120)
        os.close(write)
        assert (finished.returncode, finished.stderr) == (141, "")


@pytest.mark.parametrize("name", ["gpt2_sample.py", "gpt2_look.py", "gpt2_compare.py", "gpt2_convert.py"])
def test_ctrl_c_says_nothing(name, checkpoint_file, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "load", interrupted)
    arguments = {
        "gpt2_look.py": [checkpoint_file, "lens"],
        "gpt2_compare.py": [checkpoint_file] * 2,
        "gpt2_convert.py": ["export", checkpoint_file, tmp_path / "folder"],
    }.get(name, [checkpoint_file])
    module = runpy.run_path(EXAMPLES / name)
    assert module["main"](list(map(str, arguments))) == 130


def test_a_pass_of_ones_own():
    finished = run("write_a_pass.py")
    assert finished.returncode == 0, finished.stderr
    assert '{approximate = "tanh"}' in finished.stdout


def test_what_fewer_bits_cost(checkpoint_file, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("one fish, two fish, red fish, blue fish\n" * 60)
    finished = run("gpt2_evaluate.py", checkpoint_file, text)
    assert finished.returncode == 0, finished.stderr
    rows = [line.split() for line in finished.stdout.splitlines()]
    assert [row[0] for row in rows] == ["f32", "bf16", "i8"]
    sizes, losses = ([float(row[place].rstrip(",")) for row in rows] for place in (1, 4))
    assert sizes[0] >= sizes[1] >= sizes[2]
    assert max(losses) - min(losses) < 0.01 * losses[0]
    text.write_text("a")
    finished = run("gpt2_evaluate.py", checkpoint_file, text)
    assert finished.returncode == 2 and "too short" in finished.stderr


def test_sampling_from_weights_in_fewer_bits(checkpoint_file):
    finished = run("gpt2_sample.py", checkpoint_file, "--prompt", "a", "--tokens", 5, "--weights", "i8")
    assert finished.returncode == 0 and finished.stdout.startswith("a"), finished.stderr
