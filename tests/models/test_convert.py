"""A model goes from Hugging Face's folder to a checkpoint, is used, and a GPT-2 goes back."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import euler_ir as ei
from examples import gpt2_convert
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.gpt2 import GPT2Config
from models.language_model import train_graph
from models.tokenizer.characters import CharacterTokenizer
from models.training.checkpoint import Checkpoint

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "gpt2_shakespeare"


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120, cwd=ROOT)


def convert(*arguments):
    return run("examples/gpt2_convert.py", *arguments)


@pytest.fixture(scope="module")
def checkpoint_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "shakespeare.safetensors"
    finished = convert("import", FOLDER, path)
    assert finished.returncode == 0, finished.stderr
    assert "GPT-2 of 940,800 parameters, tokenizer of 1,024 ids" in finished.stdout
    assert "begins with the optimiser's moments at zero" in finished.stdout
    return path


def test_from_text_to_text_as_in_transformers(checkpoint_file):
    reference = json.loads((FOLDER / "reference.json").read_text())
    ids = np.load(FOLDER / "reference.npz")
    tokenizer = Checkpoint.load(checkpoint_file).tokenizer
    prompt = "KING RICHARD:\nWhat is"
    assert tokenizer.encode(prompt) == ids["greedy_prompt"].tolist()
    options = ["--prompt", prompt, "--temperature", 0, "--tokens", 60]
    finished = run("examples/gpt2_sample.py", checkpoint_file, *options)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.removesuffix("\n") == reference["greedy_text"]


def test_training_begins_from_it(checkpoint_file, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text((ROOT / "models" / "corpora" / "shakespeare.txt").read_text()[:20_000])
    options = ["--corpus", corpus, "--init-from", checkpoint_file, "--steps", 1, "--batch-size", 4, "--out", tmp_path / "run"]
    finished = run("examples/gpt2_train.py", *options)
    assert finished.returncode == 0, finished.stderr
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    # The loss of the trained model; one that knows nothing would begin at ln 1024, 6.93.
    assert 3.5 < first["loss"] < 4.7


def test_there_and_back(checkpoint_file, tmp_path):
    finished = convert("export", checkpoint_file, tmp_path / "model")
    assert finished.returncode == 0, finished.stderr
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    original = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    arrays, expected = model.state_dict(), original.state_dict()
    assert arrays.keys() == expected.keys() and all(bool((arrays[name] == expected[name]).all()) for name in arrays)
    text = "First, né <|endoftext|>\n\n  x"
    assert tokenizer(text)["input_ids"] == Checkpoint.load(checkpoint_file).tokenizer.encode(text, allowed_special="all")
    assert (tokenizer.eos_token_id, model.generation_config.eos_token_id, tokenizer.model_max_length) == (0, 0, 128)


def test_a_llama_becomes_a_nanoeuler_that_goes_on_as_transformers_does(tmp_path):
    torch.manual_seed(0)
    sizes = dict(vocab_size=1024, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4)
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=32)
    theirs = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path / "llama")
    path = tmp_path / "llama.safetensors"
    assert gpt2_convert.main(["import", str(tmp_path / "llama"), str(path)]) == 2, "it has no tokenizer"
    finished = convert("import", tmp_path / "llama", path, "--tokenizer", FOLDER)
    assert finished.returncode == 0, finished.stderr
    assert f"NanoEuler of {theirs.num_parameters():,} parameters, tokenizer of 1,024 ids" in finished.stdout
    checkpoint = Checkpoint.load(path)
    prompt = checkpoint.tokenizer.encode("KING RICHARD:")
    greedy = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    expected = theirs.generate(torch.tensor([prompt]), **greedy)[0, len(prompt) :].tolist()
    sampler = Sampler.of_checkpoint(checkpoint)
    assert list(sampler.tokens(prompt, 12, Sampling(temperature=0), stop_ids=())) == expected
    assert gpt2_convert.main(["export", str(path), str(tmp_path / "back")]) == 2


def test_what_cannot_be_converted_is_one_line(checkpoint_file, tmp_path, capsys):
    of_characters = tmp_path / "characters.safetensors"
    config = GPT2Config(3, 8, 1, 2, 8)
    weights = dict(ei.initial_state(train_graph(config, 1, 8)))
    Checkpoint(weights, config, CharacterTokenizer.train("abc"), 1, {}, {}).save(of_characters)
    micro = FOLDER.with_name("gpt2_micro")
    for arguments, message in (
        (["import", tmp_path / "nowhere", tmp_path / "a"], "There is no "),
        (["import", FOLDER, checkpoint_file], "is there already"),
        (["import", micro, tmp_path / "a"], "the one that belongs to the model: --tokenizer."),
        (["import", micro, tmp_path / "a", "--tokenizer", FOLDER], "1024 ids, the model in"),
        (["export", FOLDER / "tokenizer.json", tmp_path / "a"], "is not a checkpoint"),
        (["export", of_characters, tmp_path / "b"], "Leave it out: --without-tokenizer."),
        (["export", checkpoint_file, FOLDER], "not empty"),
    ):
        assert gpt2_convert.main(list(map(str, arguments))) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1, (arguments, error)
    assert not (tmp_path / "b").exists()
    assert gpt2_convert.main(["export", str(of_characters), str(tmp_path / "b"), "--without-tokenizer"]) == 0
    with pytest.raises(SystemExit) as stopped:
        gpt2_convert.main([])
    assert stopped.value.code == 2
