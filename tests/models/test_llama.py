"""Llama's checkpoints against transformers, which made them, and files that do not fit."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import euler_ir as ei
from models.generation.predictor import Predictor
from models.generation.reader import Reader
from models.language_model import WholeTexts, evaluation_graph
from models.llama import read_llama

SIZES = dict(
    vocab_size=29,
    hidden_size=24,
    intermediate_size=20,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
)


def written(folder, shard="5GB", **changes):
    """transformers' model of random weights, far enough from each other that a mistake shows, and its folder."""
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size=shard)
    return model, folder


def change_config(folder, **changes):
    document = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(document))


def state_of(folder):
    config, arrays, notices = read_llama(folder)
    state = ei.initial_state(evaluation_graph(config, 1, 1))
    assert set(state) == set(arrays)
    for name, array in arrays.items():
        state[name] = array
    return config, state, notices


def logits_of(config, state, tokens):
    with ei.Graph() as graph:
        model = config.build()
        ei.output(logits=model.logits(model(ei.input("tokens", tokens.shape, ei.i32), WholeTexts(tokens.shape[1]))))
    return ei.compile(graph)(state, tokens=tokens)["logits"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 4, "rms_norm_eps": 0.01},
        {"num_key_value_heads": 1, "head_dim": 10},
        {"tie_word_embeddings": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    ],
)
def test_logits_and_loss_are_those_of_transformers(tmp_path, changes):
    theirs, folder = written(tmp_path, **changes)
    config, state, notices = state_of(folder)
    assert len(notices) == bool(changes.get("tie_word_embeddings"))
    tokens = np.random.default_rng(0).integers(0, 29, (2, 32), np.int32)
    ids = torch.from_numpy(tokens).long()
    with torch.no_grad():
        expected = theirs(ids, labels=ids)
    found = logits_of(config, state, tokens)
    scale = expected.logits.abs().max().item()
    assert scale > 1
    np.testing.assert_allclose(found, expected.logits.numpy(), rtol=0, atol=1e-5 * scale)
    evaluate = evaluation_graph(config, 2, 31)
    inputs = {"tokens": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    loss = ei.compile(evaluate)(state, **inputs)
    np.testing.assert_allclose(loss["loss"] / loss["count"], expected.loss.item(), rtol=1e-5)


def test_decoding_with_a_cache_gives_the_text_of_transformers(tmp_path):
    theirs, folder = written(tmp_path, num_attention_heads=6, head_dim=8)
    config, state, _ = state_of(folder)
    prompt = [3, 1, 4, 1, 5]
    expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None)
    reader, ids = Reader(Predictor(config, state)), list(prompt)
    for _ in range(20):
        ids.append(int(np.argmax(reader.logits([ids])[0])))
    assert ids == expected[0].tolist() and len(set(ids[5:])) >= 3


def test_shards_and_half_types(tmp_path):
    _, folder = written(tmp_path / "whole")
    _, shards = written(tmp_path / "shards", shard="10KB")
    assert len(list(shards.glob("*.safetensors"))) > 1
    whole, parts = read_llama(folder)[1], read_llama(shards)[1]
    assert whole.keys() == parts.keys() and all(np.array_equal(whole[name], parts[name]) for name in whole)
    half = {name: array.astype(np.float16) for name, array in load_file(folder / "model.safetensors").items()}
    save_file(half, folder / "model.safetensors", {"format": "pt"})
    for name, array in read_llama(folder)[1].items():
        np.testing.assert_array_equal(array, whole[name].astype(np.float16).astype(np.float32))


def test_a_head_that_is_said_to_be_tied_but_is_another_is_kept(tmp_path):
    theirs, folder = written(tmp_path)
    change_config(folder, tie_word_embeddings=True)
    config, state, (notice,) = state_of(folder)
    assert "the file has another" in notice
    tokens = np.arange(8, dtype=np.int32)[None]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens).long()).logits.numpy()
    np.testing.assert_allclose(logits_of(config, state, tokens), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}}, "rope_type to llama3"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling to {'type': 'linear', 'factor': 2.0}"),
        ({"attention_bias": True}, "attention_bias to True"),
        ({"mlp_bias": True}, "mlp_bias to True"),
        ({"hidden_act": "gelu"}, "hidden_act to gelu"),
        ({"model_type": "qwen2"}, "model_type to qwen2"),
        ({"quantization_config": {"bits": 4}}, "quantization_config to"),
        ({"num_hidden_layers": None}, "num_hidden_layers to None, which is not of the right kind"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers to '2'"),
        ({"num_key_value_heads": 3}, "4 heads of queries cannot share 3 heads of keys"),
        ({"head_dim": 5}, "head_width must be even, not 5"),
        ({"num_attention_heads": 5, "head_dim": None}, "does not give head_dim"),
        ({"rope_parameters": [1]}, "rope_parameters to [1], which is not of the right kind"),
        ({"rope_parameters": None, "rope_theta": -1}, "rotary_base must be above 0"),
        ({"rms_norm_eps": float("nan")}, "no number to compute with"),
        ({"rms_norm_eps": -1}, "epsilon of RMS norms must be at least 0"),
        # Refused before anything is made for each of them.
        ({"num_hidden_layers": 10**15}, "too few for the 1000000000000000 layers"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, changes, words):
    _, folder = written(tmp_path)
    change_config(folder, **changes)
    with pytest.raises(ValueError) as raised:
        read_llama(folder)
    assert words in str(raised.value) and "config.json" in str(raised.value)


def test_old_files_without_what_may_be_left_out(tmp_path):
    _, folder = written(tmp_path, num_key_value_heads=4)
    expected, arrays, _ = read_llama(folder)
    document = json.loads((folder / "config.json").read_text())
    for name in ("num_key_value_heads", "head_dim", "rope_parameters", "model_type", "attention_bias"):
        del document[name]
    (folder / "config.json").write_text(json.dumps(document | {"rope_theta": 10000.0}))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(3, np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config, again, _ = read_llama(folder)
    assert config == expected and again.keys() == arrays.keys()


def test_tensors_that_are_missing_unexpected_or_misshaped_are_listed(tmp_path):
    _, folder = written(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = np.zeros(24, np.float32)
    tensors["model.norm.weight"] = np.zeros(23, np.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError) as raised:
        read_llama(folder)
    message = str(raised.value)
    assert "2 missing: layers.1.mlp.up_proj.weight, lm_head.weight" in message
    assert "1 unexpected: layers.0.self_attn.q_proj.bias" in message
    assert "1 misshaped: norm.weight (is [23], should be [24])" in message


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="no .*nothing"):
        read_llama(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="config.json, which says the sizes"):
        read_llama(tmp_path)
    _, folder = written(tmp_path / "cut")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="damaged"):
        read_llama(folder)
