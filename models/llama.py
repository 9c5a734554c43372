"""A Llama as Hugging Face's transformers keep it, read as a NanoEuler with one head."""

import re

import numpy as np

from models.config_fields import checked_fields
from models.named_tensors import check_tensors
from models.nanoeuler import NanoEulerConfig
from models.tensor_files import CONFIG, check_layers, read_config, read_tensors

PREFIX = "model."
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
# Old files keep the frequencies of the rotary embedding beside the weights.
BUFFERS = re.compile(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

# Settings that change what is computed, with the one value that is known here.
SUPPORTED = {
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_scaling": None,
    "rope_type": "default",
    "partial_rotary_factor": 1.0,
    "sliding_window": None,
    "quantization_config": None,
}
FIELDS = (
    ("vocab_size", "vocab_size", int, ...),
    ("context", "max_position_embeddings", int, 2048),
    ("layers", "num_hidden_layers", int, ...),
    ("heads", "num_attention_heads", int, ...),
    ("key_heads", "num_key_value_heads", int, ...),
    ("head_width", "head_dim", int, ...),
    ("width", "hidden_size", int, ...),
    ("mlp_width", "intermediate_size", int, ...),
    ("epsilon", "rms_norm_eps", int | float, 1e-6),
    ("rotary_base", "rope_theta", int | float, 10000.0),
    ("tied_head", "tie_word_embeddings", bool, False),
)

# A layer's tensors there and here. Those of queries, keys and values are one here.
NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
PROJECTIONS = {"self_attn.o_proj": "attention.output", **{f"mlp.{n}_proj": f"mlp.{n}" for n in ("gate", "up", "down")}}
JOINED = tuple(f"self_attn.{name}_proj" for name in "qkv")


def read_llama(path):
    """(NanoEulerConfig, {name: f32 array}, notices) of a folder, or of a safetensors file with `config.json` beside it.

    A head that is tied to the embedding becomes a copy of it, which training would move apart. `notices` are sentences
    on what a user should know. Raises FileNotFoundError, and ValueError for what is not a Llama, is damaged, needs
    something that is not supported here (named, such as rope_scaling or biases), or lacks tensors.
    """
    config, tied = _config_from(*read_config(path))
    tensors = read_tensors(path, PREFIX, BUFFERS)
    check_layers(config.layers, tensors, path)
    notices = []
    if tied and EMBEDDING in tensors:
        head = tensors.setdefault(HEAD, tensors[EMBEDDING])
        if np.array_equal(head, tensors[EMBEDDING], equal_nan=True):
            notices.append(f"{path}: the head is the embedding; here it is a copy, which training would move apart.")
        else:
            notices.append(f"{path}: {CONFIG} says that the head is the embedding, but the file has another, kept.")
    check_tensors({name: array.shape for name, array in tensors.items()}, _shapes(config), str(path))
    return config, _arrays(config, tensors), notices


def _config_from(document, path):
    """(NanoEulerConfig, whether the head is tied)."""
    # What used to stand alone; transformers from version 5 on put it together.
    rotary = document.get("rope_parameters") or {}
    if not isinstance(rotary, dict):
        raise ValueError(f"{path} sets rope_parameters to {rotary!r}, which is not of the right kind.")
    document = {**document, **rotary}
    heads, width = (document.get(key) for key in ("num_attention_heads", "hidden_size"))
    divides = isinstance(heads, int) and isinstance(width, int) and heads > 0 and width % heads == 0
    # What transformers takes where they are left out or null.
    for key, usual in (("num_key_value_heads", heads), ("head_dim", width // heads if divides else None)):
        if document.get(key) is None:
            document.pop(key, None)
            document |= {} if usual is None else {key: usual}
    fields = checked_fields(document, path, FIELDS, SUPPORTED)
    tied = fields.pop("tied_head")
    try:
        return NanoEulerConfig(**fields, predictions=1), tied
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _shapes(config):
    """The shapes of the tensors that a file of this config holds, by their names there."""
    width, queries, keys = config.width, config.heads * config.head_width, config.key_heads * config.head_width
    layer = {
        **{name: (width,) for name in NORMS},
        **dict(zip(JOINED, ((queries, width), (keys, width), (keys, width)))),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (config.mlp_width, width),
        "mlp.up_proj": (config.mlp_width, width),
        "mlp.down_proj": (width, config.mlp_width),
    }
    shapes = {EMBEDDING: (config.vocab_size, width), HEAD: (config.vocab_size, width), "norm.weight": (width,)}
    for number in range(config.layers):
        shapes |= {f"layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def _arrays(config, tensors):
    """The parameters of the model by their names here. Weights of linear layers lie as [inputs, outputs] here."""
    arrays = {"embedding.weight": tensors[EMBEDDING], "norm.weight": tensors["norm.weight"]}
    arrays["heads.0.weight"] = tensors[HEAD].T
    for number in range(config.layers):
        there, here = f"layers.{number}", f"blocks.{number}"
        for name, own in NORMS.items():
            arrays[f"{here}.{own}.weight"] = tensors[f"{there}.{name}.weight"]
        for name, own in PROJECTIONS.items():
            arrays[f"{here}.{own}.weight"] = tensors[f"{there}.{name}.weight"].T
        joined = np.concatenate([tensors[f"{there}.{name}.weight"] for name in JOINED])
        arrays[f"{here}.attention.qkv.weight"] = joined.T
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}
