import errno
import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import euler_ir as ei
from models.files import remove_stale_temporaries
from models.gpt2 import GPT2, GPT2Config
from models.language_model import evaluation_graph, train_graph
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint

CONFIG = GPT2Config(vocab_size=300, context=8, layers=1, heads=2, width=8)


@pytest.fixture(scope="module")
def checkpoint(corpus):
    state = ei.initial_state(train_graph(CONFIG, 2, 8), seed=3)
    state["optim.step"] = np.int64(17)
    state["optim.v.wte.weight"] = np.full((300, 8), 1e-12, np.float32)
    settings = {"seed": 3, "betas": [0.9, 0.99], "learning_rate": 0.1}
    return Checkpoint(dict(state), CONFIG, Tokenizer.train(corpus[:20_000], 300), 17, settings, {"best": None})


def test_everything_comes_back_bit_for_bit(checkpoint, tmp_path):
    path = tmp_path / "latest.safetensors"
    checkpoint.save(path)
    loaded = Checkpoint.load(path)
    assert (loaded.config, loaded.step, loaded.settings, loaded.progress) == (
        CONFIG,
        17,
        checkpoint.settings,
        checkpoint.progress,
    )
    assert loaded.tokenizer.fingerprint == checkpoint.tokenizer.fingerprint
    assert loaded.arrays.keys() == checkpoint.arrays.keys()
    state = ei.initial_state(train_graph(CONFIG, 2, 8))
    loaded.restore(state)
    for name, array in checkpoint.arrays.items():
        assert state[name].dtype == array.dtype and state[name].tobytes() == array.tobytes(), name


def test_the_file_is_plain_safetensors_with_a_tied_head_stored_once(checkpoint, tmp_path):
    path = tmp_path / "latest.safetensors"
    checkpoint.save(path)
    arrays = load_file(path)
    weights = [name for name in arrays if not name.startswith("optim.")]
    assert sum(arrays[name].size for name in weights) == GPT2(CONFIG).parameter_count()
    assert not [name for name in arrays if "lm_head" in name or name.startswith("accumulator.")]


def test_weights_alone_can_be_taken(checkpoint, tmp_path):
    checkpoint.save(tmp_path / "c")
    state = ei.initial_state(evaluation_graph(CONFIG, 1, 8))
    Checkpoint.load(tmp_path / "c").restore_parameters(state)
    assert not any(name.startswith("optim.") for name in state)
    np.testing.assert_array_equal(state["wte.weight"], checkpoint.arrays["wte.weight"])


@pytest.mark.parametrize("position", [9, 200, -1, -5000])
def test_a_flipped_bit_is_noticed(checkpoint, tmp_path, position):
    path = tmp_path / "latest.safetensors"
    checkpoint.save(path)
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged|not a checkpoint"):
        Checkpoint.load(path)


@pytest.mark.parametrize("size", [0, 7, 100, -10])
def test_a_file_cut_short_is_noticed(checkpoint, tmp_path, size):
    path = tmp_path / "latest.safetensors"
    checkpoint.save(path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="damaged"):
        Checkpoint.load(path)


def test_other_files_are_refused(checkpoint, tmp_path):
    save_file({"x": np.zeros(2, np.float32)}, tmp_path / "weights")
    with pytest.raises(ValueError, match="not a checkpoint of a training run: gpt2_convert.py import"):
        Checkpoint.load(tmp_path / "weights")
    with pytest.raises(IsADirectoryError, match="Give the path of a checkpoint: gpt2_convert.py import"):
        Checkpoint.load(tmp_path)
    checkpoint.save(tmp_path / "latest.safetensors")
    with pytest.raises(IsADirectoryError, match="Give the path of a checkpoint, such as .*/latest.safetensors.$"):
        Checkpoint.load(tmp_path)
    document = {"format": "euler_ir training checkpoint", "version": 9}
    save_file({}, tmp_path / "newer", {"checkpoint": json.dumps(document)})
    with pytest.raises(ValueError, match="version 9, this program reads version 2"):
        Checkpoint.load(tmp_path / "newer")
    with pytest.raises(FileNotFoundError):
        Checkpoint.load(tmp_path / "nothing")


def test_a_model_of_another_shape_is_refused_by_name(checkpoint):
    wider = ei.initial_state(train_graph(GPT2Config(300, 8, 2, 2, 16), 2, 8))
    with pytest.raises(ValueError, match=r"36 missing: h\.1\.attn\.c_attn\.bias, .* 48 misshaped: .* more\.$"):
        checkpoint.restore(wider)
    longer = ei.initial_state(train_graph(GPT2Config(300, 9, 1, 2, 8), 2, 8))
    with pytest.raises(ValueError, match=r"wpe.weight \(is float32\[8, 8\], should be float32\[9, 8\]\)"):
        checkpoint.restore(longer)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(checkpoint, tmp_path, monkeypatch, failing):
    path = tmp_path / "latest.safetensors"
    checkpoint.save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["latest.safetensors"]


def test_what_a_killed_writer_left_is_removed(checkpoint, tmp_path):
    checkpoint.save(tmp_path / "latest.safetensors")
    (tmp_path / ".latest.safetensors.4711.tmp").write_bytes(b"half")
    (tmp_path / "notes.tmp").write_bytes(b"the user's own")
    remove_stale_temporaries(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest.safetensors", "notes.tmp"]
