"""Folders of Hugging Face GPT-2s: what transformers writes is read, and what is written transformers loads.

The oracle is transformers' own GPT2LMHeadModel, in torch.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

import euler_ir as ei
from euler_ir import optim
from models.gpt2 import PRESETS, GPT2Config
from models.huggingface import read_gpt2, write_gpt2
from models.language_model import WholeTexts

TINY = {"vocab_size": 41, "n_positions": 12, "n_layer": 3, "n_head": 2, "n_embd": 10}
SHAKESPEARE = Path(__file__).parents[1] / "data" / "gpt2_shakespeare"


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def random_model(scale=0.3, **settings):
    """A GPT2LMHeadModel none of whose numbers is at a place where a mistake could hide, such as a bias of 0."""
    torch.manual_seed(3)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**TINY, **settings})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(1 + 0.2 * noise if name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight")) else scale * noise)
    return model


@pytest.fixture
def folder(tmp_path):
    """A folder that transformers wrote."""
    random_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    path = folder / "config.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not ...}))


def edit_tensors(folder, edit, file="model.safetensors"):
    tensors = safetensors.torch.load_file(folder / file)
    edited = {name: tensor.contiguous().clone() for name, tensor in edit(tensors).items()}
    safetensors.torch.save_file(edited, folder / file, {"format": "pt"})


def batch(vocab_size, rows, length):
    random = np.random.default_rng(1)
    tokens, targets = random.integers(vocab_size, size=(2, rows, length)).astype(np.int32)
    targets[0, 1] = -100
    return tokens, targets


def expected(model, tokens, targets):
    """transformers' logits and loss, and the gradient of every parameter, named as in `models.gpt2`."""
    model.zero_grad()
    logits = model(torch.from_numpy(tokens).long()).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).long().flatten())
    loss.backward()
    gradients = {name.removeprefix("transformer."): p.grad.numpy() for name, p in model.named_parameters()}
    return {"logits": logits.detach().numpy(), "loss": loss.detach().numpy(), **gradients}


def found(config, arrays, tokens, targets, backend="cpu"):
    """The same by `models.gpt2`."""
    with ei.Graph() as graph:
        model = config.build()
        ids, labels = ei.input("tokens", tokens.shape, ei.i32), ei.input("targets", tokens.shape, ei.i32)
        features = model(ids, WholeTexts(tokens.shape[1]))
        loss = model.losses(features, labels).sum() / ei.not_equal(labels, -100).sum().cast(ei.f32)
        gradients = {key.op.attributes["name"]: value for key, value in optim.gradients(loss).items()}
        ei.output(logits=model.logits(features), loss=loss, **gradients)
    state = ei.initial_state(graph)
    assert state.keys() == arrays.keys()
    for name, array in arrays.items():
        state[name] = array
    return ei.compile(graph, backend=backend)(state, tokens=tokens, targets=targets)


def assert_equal_up_to_rounding(results, wanted, tolerance=2e-5):
    """All of the same names, and differences within `tolerance` of the largest magnitude of an array."""
    assert results.keys() == wanted.keys()
    for name, array in wanted.items():
        assert results[name].shape == array.shape, name
        error = np.abs(results[name] - array).max() / np.abs(array).max()
        assert error < tolerance, f"{name} is off by {error:.1e} of its largest value"


def without_bias_of_keys(arrays, width):
    """Softmax ignores what is added to all scores of a row: the gradient of a key's bias is rounding alone."""
    cut = {name: np.delete(a, np.s_[width : 2 * width]) for name, a in arrays.items() if name.endswith("c_attn.bias")}
    return arrays | cut


KINDS = [
    {},
    {"tie_word_embeddings": False},
    {"n_inner": 7, "layer_norm_epsilon": 0.1},
    {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
    {"n_head": 1, "n_embd": 1, "n_layer": 1, "vocab_size": 2, "n_positions": 9},
    *({"activation_function": name} for name in ("gelu", "relu", "silu", "swish", "tanh", "gelu_pytorch_tanh")),
]


@pytest.mark.parametrize(
    ("settings", "backend"), [*((kind, "cpu") for kind in KINDS), ({}, "reference"), (KINDS[3], "reference")], ids=str
)
def test_every_kind_of_gpt2_computes_what_transformers_computes(settings, tmp_path, backend):
    model = random_model(**settings)
    model.save_pretrained(tmp_path)
    config, arrays, notices = read_gpt2(tmp_path)
    assert notices == [] and config.build().parameter_count() == model.num_parameters()
    tokens, targets = batch(config.vocab_size, 2, 9)
    wanted = expected(model, tokens, targets)
    results = found(config, arrays, tokens, targets, backend)
    results, wanted = (without_bias_of_keys(each, config.width) for each in (results, wanted))
    if settings.get("n_embd") == 1:
        # A layer norm over one feature gives 0, whatever comes in.
        wanted = {name: array for name, array in wanted.items() if np.abs(array).max() > 1e-7}
        results = {name: results[name] for name in wanted}
    assert_equal_up_to_rounding(results, wanted)


def check_real_widths(config, tmp_path):
    """A model of the sizes of `config`, with random weights, on 32 tokens."""
    sizes = {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.width}
    model = random_model(0.02, vocab_size=config.vocab_size, n_positions=config.context, **sizes)
    model.save_pretrained(tmp_path)
    tokens, targets = batch(config.vocab_size, 2, 16)
    wanted = expected(model, tokens, targets)
    del model
    read, arrays, _ = read_gpt2(tmp_path)
    assert read == replace(config, dropout=0.1)
    results = without_bias_of_keys(found(read, arrays, tokens, targets), config.width)
    assert_equal_up_to_rounding(results, without_bias_of_keys(wanted, config.width))


def test_the_widths_of_the_real_gpt2(tmp_path):
    check_real_widths(replace(PRESETS["124M"], layers=2, vocab_size=5003), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["124M", "355M", "774M", "1558M"])
def test_gpt2s_in_their_real_sizes(preset, tmp_path):
    """All layers, but for the largest, which with its gradients in both programs would need more than 24 GB."""
    layers = 4 if preset == "1558M" else PRESETS[preset].layers
    check_real_widths(replace(PRESETS[preset], layers=layers), tmp_path)


def test_a_trained_model_predicts_what_it_predicts_in_transformers():
    reference = np.load(SHAKESPEARE / "reference.npz")
    config, arrays, _ = read_gpt2(SHAKESPEARE)
    with ei.Graph() as graph:
        model = config.build()
        tokens = ei.input("tokens", (2, 128), ei.i32)
        ei.output(logits=model.logits(model(tokens, WholeTexts(128))))
    state = ei.initial_state(graph)
    for name, array in arrays.items():
        state[name] = array
    run = ei.compile(graph)
    logits = run(state, tokens=reference["val_x"])["logits"]
    assert np.abs(logits - reference["val_logits"]).max() < 2e-5 * np.abs(logits).max()
    ids = np.zeros((2, 128), np.int32)
    prompt, wanted = reference["greedy_prompt"], reference["greedy_ids"]
    ids[:, : len(prompt)] = prompt
    for position in range(len(prompt), len(wanted)):
        ids[:, position] = run(state, tokens=ids)["logits"][:, position - 1].argmax(axis=-1)
    assert ids[0, : len(wanted)].tolist() == wanted.tolist()


# -- how the same weights may lie in files -----------------------------------------------------------------------------


def prefixed(prefix):
    return lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}


def turned(tensors):
    """As torch's Linear keeps projections."""
    return {name: t.T if name.endswith("weight") and ".c_" in name else t for name, t in tensors.items()}


def with_buffers(tensors):
    buffers = {}
    for layer in range(3):
        buffers[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 12, 12, dtype=torch.bool).tril()
        buffers[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return tensors | buffers


def embedding_under_the_name_of_the_head(tensors):
    renamed = {"transformer.wte.weight": "lm_head.weight"}
    return {renamed.get(name, name): tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    "edit",
    [
        lambda tensors: {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()},
        prefixed("_orig_mod."),
        prefixed("module."),
        prefixed("module._orig_mod."),
        lambda tensors: {name.replace("h.1.", "h.1._orig_mod."): tensor for name, tensor in tensors.items()},
        turned,
        with_buffers,
        lambda tensors: tensors | {"lm_head.weight": tensors["transformer.wte.weight"]},
        embedding_under_the_name_of_the_head,
    ],
    ids="bare compiled distributed both one-block linear buffers head-repeated head-only".split(),
)
def test_the_same_weights_in_another_guise(folder, edit):
    config, arrays, _ = read_gpt2(folder)
    edit_tensors(folder, edit)
    same_config, same, notices = read_gpt2(folder)
    assert same_config == config and notices == [] and same.keys() == arrays.keys()
    for name, array in arrays.items():
        assert same[name].flags.c_contiguous and np.array_equal(same[name], array), name


def test_a_head_of_its_own_is_kept_although_the_config_ties_it(folder):
    head = torch.full((41, 10), 0.5)
    edit_tensors(folder, lambda tensors: tensors | {"lm_head.weight": head})
    config, arrays, notices = read_gpt2(folder)
    assert not config.tied_head and (arrays["lm_head.weight"] == 0.5).all()
    (notice,) = notices
    assert "config.json says that the head is the embedding, but the file has another lm_head.weight" in notice
    # transformers reads such a folder likewise.
    tokens, targets = batch(41, 1, 5)
    wanted = expected(transformers.GPT2LMHeadModel.from_pretrained(folder), tokens, targets)
    assert np.allclose(found(config, arrays, tokens, targets)["logits"], wanted["logits"], atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_become_f32(folder, dtype):
    original = safetensors.torch.load_file(folder / "model.safetensors")
    edit_tensors(folder, lambda tensors: {name: tensor.to(dtype) for name, tensor in tensors.items()})
    _, arrays, _ = read_gpt2(folder)
    for name, tensor in original.items():
        array = arrays[name.removeprefix("transformer.")]
        assert array.dtype == np.float32
        assert np.array_equal(array, tensor.to(dtype).float().numpy()), name


def test_shards_and_a_single_file_are_the_same(tmp_path):
    model = random_model()
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="3KB")
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 2
    (_, one, _), (_, many, _) = (read_gpt2(tmp_path / name) for name in ("one", "many"))
    assert one.keys() == many.keys() and all(np.array_equal(one[name], many[name]) for name in one)
    # A file may be named in place of its folder.
    _, alone, _ = read_gpt2(tmp_path / "one" / "model.safetensors")
    assert alone.keys() == one.keys()


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_bytes", [10**9, 3000])
@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(41, 12, 2, 2, 10, dropout=0.2),
        GPT2Config(41, 12, 2, 2, 10, tied_head=False, mlp_width=7, activation="relu", epsilon=0.1, scores_by_layer=True),
        GPT2Config(41, 12, 2, 2, 10, biases=False),
    ],
    ids=["plain", "other", "without-biases"],
)
def test_transformers_loads_what_is_written(config, shard_bytes, tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        name: random.standard_normal(parameter.shape).astype(np.float32) / 3
        for name, parameter in config.build().named_parameters()
    }
    moments = {"optim.step": np.int64(3)}
    write_gpt2(tmp_path / "model", config, arrays | moments, shard_bytes=shard_bytes)
    assert (tmp_path / "model" / "model.safetensors.index.json").exists() == (shard_bytes == 3000)
    model, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens, targets = batch(41, 2, 9)
    results, wanted = found(config, arrays, tokens, targets), expected(model.eval(), tokens, targets)
    wanted = {name: wanted[name] for name in results}
    assert_equal_up_to_rounding(*(without_bias_of_keys(each, 10) for each in (results, wanted)))
    again, read, _ = read_gpt2(tmp_path / "model")
    assert again == replace(config, biases=True)
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())


def test_nothing_is_written_over(tmp_path, folder):
    config, arrays, _ = read_gpt2(folder)
    before = (folder / "model.safetensors").read_bytes()
    for place in (folder, folder / "config.json"):
        with pytest.raises(FileExistsError, match="Choose another folder"):
            write_gpt2(place, config, arrays)
    assert (folder / "model.safetensors").read_bytes() == before
    (tmp_path / "empty").mkdir()
    write_gpt2(tmp_path / "empty", config, arrays)


def test_a_folder_half_written_is_not_taken_for_a_model(tmp_path, folder, monkeypatch):
    config, arrays, _ = read_gpt2(folder)

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("models.tensor_files.save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_gpt2(tmp_path / "half", config, arrays)
    with pytest.raises(FileNotFoundError, match="There is no .*config.json"):
        read_gpt2(tmp_path / "half")


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_missing_unexpected_and_misshaped_tensors_are_listed(folder):
    def edit(tensors):
        del tensors["transformer.ln_f.bias"]
        return tensors | {"score.weight": torch.ones(2, 10), "transformer.wpe.weight": torch.ones(11, 10)}

    edit_tensors(folder, edit)
    with pytest.raises(ValueError) as caught:
        read_gpt2(folder)
    assert str(caught.value).endswith(
        "model does not fit the model: 1 missing: ln_f.bias; 1 unexpected: score.weight; "
        "1 misshaped: wpe.weight (is [11, 10], should be [12, 10])."
    )


def test_a_mixture_of_layouts_is_refused_by_name(folder):
    edit_tensors(folder, lambda tensors: turned(tensors) | {"transformer.h.1.mlp.c_fc.weight": torch.ones(10, 40)})
    with pytest.raises(ValueError, match=r"misshaped: h\.1\.mlp\.c_fc\.weight \(is \[40, 10\], should be \[10, 40\]\)"):
        read_gpt2(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "model of the type 'llama', not a GPT-2"),
        ({"scale_attn_weights": False}, "sets scale_attn_weights to False, which is not supported"),
        ({"add_cross_attention": True}, "sets add_cross_attention to True"),
        ({"quantization_config": {"bits": 4}}, "sets quantization_config"),
        ({"activation_function": "quick_gelu"}, "no activation 'quick_gelu' here. There are gelu_new, gelu"),
        ({"n_layer": ...}, "does not give n_layer"),
        ({"n_head": "2"}, "sets n_head to '2'"),
        ({"n_layer": True}, "sets n_layer to True"),
        ({"n_head": 3}, "config.json: A width of 10 does not divide into 3 heads"),
        ({"tie_word_embeddings": False}, "1 missing: lm_head.weight"),
        ({"n_layer": 2}, r"12 unexpected: h\.2\.attn\.c_attn\.bias, .*, and 4 more\.$"),
        ({"n_layer": 4}, r"12 missing: h\.3\."),
        ({"n_layer": 10**12}, "40 tensors, too few for the 1000000000000 layers"),
        ({"n_inner": 0}, "Every size of a GPT-2 must be at least 1"),
        ({"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon to nan, which is no number to compute with"),
        ({"layer_norm_epsilon": -1e-5}, "epsilon of layer norms must be at least 0 and finite"),
        ({"vocab_size": 50257}, r"misshaped: wte\.weight \(is \[41, 10\], should be \[50257, 10\]\)"),
    ],
    ids=str,
)
def test_configs_that_do_not_fit_are_refused_in_words(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(ValueError, match=message):
        read_gpt2(folder)


def test_files_that_are_not_there_or_something_else(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no .*nowhere. Give a folder"):
        read_gpt2(tmp_path / "nowhere")
    (folder / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="config.json should hold an object"):
        read_gpt2(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is not JSON"):
        read_gpt2(folder)


def test_damaged_weights_are_refused(folder):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for content in (b"", whole[:-1], whole[:50], b"\x80\x04pickle" * 100):
        weights.write_bytes(content)
        with pytest.raises(ValueError, match="is not a safetensors file, or is damaged"):
            read_gpt2(folder)
    edit = {"transformer.ln_f.bias": torch.ones(10, dtype=torch.int8)}
    weights.write_bytes(whole)
    edit_tensors(folder, lambda tensors: tensors | edit)
    with pytest.raises(ValueError, match="transformer.ln_f.bias is of type I8; weights are read from F16"):
        read_gpt2(folder)
    edit_tensors(folder, lambda tensors: {"transformer.wte.weight": torch.ones(1), "module.wte.weight": torch.ones(1)})
    with pytest.raises(ValueError, match="holds wte.weight twice"):
        read_gpt2(folder)
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="pytorch_model.bin, a pickle, .* save_pretrained"):
        read_gpt2(folder)


def test_shards_that_are_lost_or_elsewhere(tmp_path):
    random_model().save_pretrained(tmp_path, max_shard_size="3KB")
    index = tmp_path / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    shards = sorted(tmp_path.glob("model-*.safetensors"))

    def map_to(place, name="transformer.wte.weight"):
        index.write_text(json.dumps(document | {"weight_map": document["weight_map"] | {name: place}}))

    for place in ("../model.safetensors", "/etc/passwd", 3):
        map_to(place)
        with pytest.raises(ValueError, match="is not the name of a file beside it"):
            read_gpt2(tmp_path)
    map_to("..")
    with pytest.raises(FileNotFoundError, match=r"lacks \.\., which"):
        read_gpt2(tmp_path)
    map_to(shards[0].name, "transformer.h.9.bias")
    with pytest.raises(ValueError, match=r"lists 1 tensors that no shard holds, such as transformer\.h\.9\.bias"):
        read_gpt2(tmp_path)
    index.write_text('{"weight_map": {}}')
    with pytest.raises(ValueError, match="has no weight_map"):
        read_gpt2(tmp_path)
    index.write_text(json.dumps(document))
    shutil.copy(shards[0], tmp_path / "spare")
    shards[0].unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {shards[0].name}, which model.safetensors.index.json lists"):
        read_gpt2(tmp_path)
    (tmp_path / "spare").rename(shards[0])
    read_gpt2(tmp_path)
