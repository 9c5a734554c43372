"""Decoding by the same GPT-2 in torch, eager, with its keys and values in memory that is there from the start."""

import numpy as np
import torch
from torch.nn import functional

from benchmarks.torch_gpt2 import GPT2


class TorchDecoder:
    """One sequence of up to `window` tokens, with the weights in the file `weights`."""

    def __init__(self, workload, weights, threads, window):
        torch.set_num_threads(threads)
        self._model = GPT2(workload)
        self._model.load(weights)
        sizes = (2, 1, workload.heads, window, workload.width // workload.heads)
        self._cache = [torch.zeros(sizes) for _ in range(workload.layers)]

    def begin(self, tokens):
        """Logits after `tokens`, from an empty cache on."""
        self._length = 0
        return self._logits(torch.from_numpy(tokens.astype(np.int64)))

    def next(self, token):
        """Logits after one `token` more."""
        return self._logits(torch.tensor([token]))

    @torch.inference_mode()
    def _logits(self, tokens):
        model, start = self._model, self._length
        self._length = end = start + len(tokens)
        x = (model.wte(tokens) + model.wpe.weight[start:end])[None]
        for block, cache in zip(model.h, self._cache, strict=True):
            x = x + block.attn["c_proj"](self._mixed(block, cache, block.ln_1(x), start, end))
            hidden = functional.gelu(block.mlp["c_fc"](block.ln_2(x)), approximate="tanh")
            x = x + block.mlp["c_proj"](hidden)
        return functional.linear(model.ln_f(x[0, -1]), model.wte.weight).numpy()

    def _mixed(self, block, cache, x, start, end):
        _, length, width = x.shape
        by_head = block.attn["c_attn"](x).view(1, length, 3, block.heads, width // block.heads)
        query, key, value = by_head.permute(2, 0, 3, 1, 4)
        cache[0, :, :, start:end], cache[1, :, :, start:end] = key, value
        # One query sees all keys so far; those of a prompt, from its beginning, each as many as stand before it.
        mixed = functional.scaled_dot_product_attention(query, *cache[:, :, :, :end], is_causal=length > 1)
        return mixed.transpose(1, 2).reshape(1, length, width)
