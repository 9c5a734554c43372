"""GPT-2 in numpy, in f64, written from the paper: what the models' graphs are compared with."""

import numpy as np


def layer_norm(x, weight, bias, scale_of=None):
    """With `scale_of`, the deviation is that of its rows instead of that of those of `x`."""
    centered = x - x.mean(-1, keepdims=True)
    spread = (x if scale_of is None else scale_of).var(-1, keepdims=True)
    return centered / np.sqrt(spread + 1e-5) * weight + bias


def softmax(x):
    grown = np.exp(x - x.max(-1, keepdims=True))
    return grown / grown.sum(-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def forward(weights, tokens, heads, edits={}, embedded=None):
    """Every value that tests ask for, by name, of one text, integer [T]; `edits` are functions of values by name."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    length, found = len(tokens), {}

    def keep(name, value):
        found[name] = edits.get(name, lambda same: same)(value)
        return found[name]

    rows = w["wte.weight"][np.asarray(tokens)] if embedded is None else embedded
    x = keep("stream", keep("embedded", rows) + w["wpe.weight"][:length])
    seen = np.tril(np.ones((length, length), bool))
    for layer in range(sum(name.endswith("ln_1.weight") for name in w)):

        def part(name):
            return w[f"h.{layer}.{name}"]

        normed = layer_norm(x, part("ln_1.weight"), part("ln_1.bias"))
        projected = normed @ part("attn.c_attn.weight") + part("attn.c_attn.bias")
        q, k, v = (
            third.reshape(length, heads, -1).transpose(1, 0, 2) for third in np.split(projected, 3, axis=-1)
        )
        scores = np.where(seen, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf)
        probabilities = keep(f"{layer}.probabilities", softmax(scores))
        mixed = keep(f"{layer}.mixed", probabilities @ v)
        joined = mixed.transpose(1, 0, 2).reshape(length, -1)
        x = x + keep(f"{layer}.attention", joined @ part("attn.c_proj.weight") + part("attn.c_proj.bias"))
        x = keep(f"{layer}.after_attention", x)
        normed = layer_norm(x, part("ln_2.weight"), part("ln_2.bias"))
        hidden = keep(f"{layer}.gelu", gelu(normed @ part("mlp.c_fc.weight") + part("mlp.c_fc.bias")))
        x = x + keep(f"{layer}.mlp", hidden @ part("mlp.c_proj.weight") + part("mlp.c_proj.bias"))
        x = keep(f"{layer}.after_mlp", x)
    found["logits"] = layer_norm(x, w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T
    found["log_probabilities"] = log_softmax(found["logits"])
    return found
