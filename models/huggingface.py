"""GPT-2 as Hugging Face's transformers keep it: a folder with `config.json` and `model.safetensors`, or its shards."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from models.config_fields import checked_fields
from models.gpt2 import GPT2Config
from models.llama import read_llama
from models.named_tensors import check_tensors
from models.tensor_files import CONFIG, check_layers, read_config, read_tensors, write_json, write_tensors
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer
from models.tokenizer.special_tokens import END_OF_TEXT
from models.training.checkpoint import Checkpoint

PREFIX = "transformer."
HEAD, EMBEDDING = "lm_head.weight", "wte.weight"
# Old files keep the causal mask and a constant beside the weights.
BUFFERS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
FIRST = "h.0.attn.c_attn.weight"
PROJECTIONS = re.compile(r"h\.\d+\.(attn|mlp)\.c_\w+\.weight")

# Other names of the same function.
SYNONYMS = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}
# Settings that change what is computed, with the one value that is known here.
SUPPORTED = {"scale_attn_weights": True, "add_cross_attention": False, "quantization_config": None}
# Field of GPT2Config, key of config.json, its types and what it is where it is left out; Ellipsis: it may not be.
FIELDS = (
    ("vocab_size", "vocab_size", int, ...),
    ("context", "n_positions", int, ...),
    ("layers", "n_layer", int, ...),
    ("heads", "n_head", int, ...),
    ("width", "n_embd", int, ...),
    ("mlp_width", "n_inner", int | None, None),
    ("activation", "activation_function", str, "gelu_new"),
    ("epsilon", "layer_norm_epsilon", int | float, 1e-5),
    ("dropout", "resid_pdrop", int | float, 0.1),
    ("tied_head", "tie_word_embeddings", bool, True),
    ("scores_by_layer", "scale_attn_by_inverse_layer_idx", bool, False),
)


def read_gpt2(path):
    """(GPT2Config, {name: f32 array}, notices) of a folder, or of a safetensors file with `config.json` beside it.

    Names may have the prefix `transformer.` or not, projections may lie as transformers' Conv1D [inputs, outputs] or as
    torch's Linear, which the shape of the first layer's `c_attn` tells of all. The head is tied where the file has none
    or repeats the embedding. `notices` are sentences on what a user should know. The config's dropout rate is that of
    `resid_pdrop`. Raises FileNotFoundError, and ValueError for what is not a GPT-2, is damaged, needs something that
    is not supported here, or lacks tensors.
    """
    config = _config_from(*read_config(path))
    arrays = read_tensors(path, PREFIX, BUFFERS)
    check_layers(config.layers, arrays, path)
    config, arrays, notices = _with_head_resolved(config, arrays, path)
    arrays = _as_conv1d(arrays)
    found = {name: array.shape for name, array in arrays.items()}
    check_tensors(found, {name: parameter.shape for name, parameter in config.build().named_parameters()}, str(path))
    return config, {name: np.ascontiguousarray(array) for name, array in arrays.items()}, notices


def read_checkpoint(path, tokenizer=None):
    """(Checkpoint, notices) of a GPT-2 or a Llama, at step 0 and with weights alone, so that training begins there.

    `tokenizer` stands in for the one in the folder. Raises as `read_gpt2`, `read_llama` and `load_tokenizer`, and
    ValueError when the tokenizer has more ids than the model.
    """
    document, _ = read_config(path)
    config, arrays, notices = (read_llama if document.get("model_type") == "llama" else read_gpt2)(path)
    if tokenizer is None:
        tokenizer = _tokenizer_in(Path(path) if Path(path).is_dir() else Path(path).parent)
    if tokenizer.vocab_size > config.vocab_size:
        raise ValueError(f"The tokenizer has {tokenizer.vocab_size} ids, the model in {path} only {config.vocab_size}.")
    return Checkpoint(arrays, config, tokenizer, step=0, settings={}, progress={}), notices


def write_gpt2(folder, config, arrays, tokenizer=None, shard_bytes=5 * 10**9):
    """Write a folder that transformers loads as GPT2LMHeadModel, and with a tokenizer its tokenizer too.

    `arrays` holds at least the parameters of `config.build()`, by name. Biases that the model does not have are
    written as zeros. Raises FileExistsError when the folder has something in it, ValueError for a tokenizer that
    transformers has no file for, and OSError.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there already and not empty. Choose another folder.")
    if tokenizer and not isinstance(tokenizer, Tokenizer):
        raise ValueError("transformers reads no tokenizer but byte-level BPE. Leave it out: --without-tokenizer.")
    tensors = {}
    for name, parameter in replace(config, biases=True).build().named_parameters():
        absent = name.endswith(".bias") and not config.biases
        array = np.zeros(parameter.shape, np.float32) if absent else arrays[name]
        tensors[name if name == HEAD else PREFIX + name] = array
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer:
        save_tokenizer(tokenizer, folder / "tokenizer.json", "huggingface")
        write_json(folder / "tokenizer_config.json", _tokenizer_config(tokenizer, config.context))
    write_tensors(folder, tensors, shard_bytes)
    end = tokenizer.end_of_text_id if tokenizer else None
    ends = {"bos_token_id": end, "eos_token_id": end}
    write_json(folder / "generation_config.json", {"_from_model_config": True, **ends})
    # Last: a folder without it is not taken for a model.
    write_json(folder / CONFIG, {**_document_of(config), **ends})


def _config_from(document, path):
    kind = document.get("model_type", "gpt2")
    if kind != "gpt2":
        raise ValueError(f"{path} describes a model of the type {kind!r}, not a GPT-2.")
    fields = checked_fields(document, path, FIELDS, SUPPORTED)
    fields["activation"] = SYNONYMS.get(fields["activation"], fields["activation"])
    try:
        return GPT2Config(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _document_of(config):
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{key: getattr(config, field) for field, key, *_ in FIELDS},
        "embd_pdrop": config.dropout,
        "attn_pdrop": 0.0,
        "dtype": "float32",
    }


def _tokenizer_in(folder):
    if not any((folder / name).exists() for name in ("tokenizer.json", "vocab.json", "encoder.json")):
        raise FileNotFoundError(f"{folder} holds no tokenizer. Give the one that belongs to the model: --tokenizer.")
    return load_tokenizer(folder)


def _tokenizer_config(tokenizer, context):
    end = None if tokenizer.end_of_text_id is None else END_OF_TEXT
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return {**kind, "model_max_length": context, "bos_token": end, "eos_token": end}


def _with_head_resolved(config, arrays, path):
    """(config, arrays, notices) with a head exactly where the config has one; what stands in the file decides."""
    head, embedding = arrays.get(HEAD), arrays.get(EMBEDDING)
    if head is None or not config.tied_head:
        return config, arrays, []
    if embedding is None or np.array_equal(head, embedding, equal_nan=True):
        # Of two names of one tensor, some programs keep this one.
        return config, {name: array for name, array in (arrays | {EMBEDDING: head}).items() if name != HEAD}, []
    notice = f"{path}: {CONFIG} says that the head is the embedding, but the file has another {HEAD}, which is kept."
    return replace(config, tied_head=False), arrays, [notice]


def _as_conv1d(arrays):
    """Arrays with projections [inputs, outputs]: those of torch's Linear are turned round."""
    rows, columns = arrays[FIRST].shape if arrays.get(FIRST, np.empty(0)).ndim == 2 else (0, 0)
    if rows != 3 * columns:
        return arrays
    return {name: array.T if PROJECTIONS.fullmatch(name) else array for name, array in arrays.items()}
