"""Decoding by the same GPT-2 in jax: one jitted function a call, which takes and gives back its cache."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_gpt2 import layer_norm, linear


def _logits(parameters, cache, tokens, start, workload):
    """Logits after the last of `tokens`, which stand at `start` and the positions after it, and the cache with them."""
    positions = start + jnp.arange(len(tokens))
    x = parameters["wte.weight"][tokens] + parameters["wpe.weight"][positions]
    seen = jnp.arange(cache.shape[-2]) <= positions[:, None]
    sizes = (len(tokens), 3, workload.heads, workload.width // workload.heads)
    for layer in range(workload.layers):
        name = f"h.{layer}"
        qkv = linear(layer_norm(x, parameters, f"{name}.ln_1"), parameters, f"{name}.attn.c_attn").reshape(sizes)
        query, new = qkv[:, 0].swapaxes(0, 1), qkv[:, 1:].transpose(1, 2, 0, 3)
        cache = jax.lax.dynamic_update_slice(cache, new[None], (layer, 0, 0, start, 0))
        keys, values = cache[layer]
        scores = jnp.where(seen, query @ keys.swapaxes(1, 2) * query.shape[-1] ** -0.5, -jnp.inf)
        mixed = (jax.nn.softmax(scores) @ values).swapaxes(0, 1).reshape(x.shape)
        x = x + linear(mixed, parameters, f"{name}.attn.c_proj")
        hidden = linear(layer_norm(x, parameters, f"{name}.ln_2"), parameters, f"{name}.mlp.c_fc")
        x = x + linear(jax.nn.gelu(hidden, approximate=True), parameters, f"{name}.mlp.c_proj")
    return parameters["wte.weight"] @ layer_norm(x[-1], parameters, "ln_f"), cache


class JaxDecoder:
    """One sequence of up to `window` tokens, with the weights in the file `weights`."""

    def __init__(self, workload, weights, threads, window):
        # XLA takes the cores that the process may use.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        with np.load(weights) as arrays:
            self._parameters = {name: jnp.array(arrays[name]) for name in arrays}
        head = workload.width // workload.heads
        self._cache = jnp.zeros((workload.layers, 2, workload.heads, window, head))
        self._run = jax.jit(functools.partial(_logits, workload=workload), donate_argnums=1)

    def begin(self, tokens):
        """Logits after `tokens`, from an empty cache on."""
        self._length = 0
        return self._read(tokens)

    def next(self, token):
        """Logits after one `token` more."""
        return self._read(np.array([token], np.int32))

    def _read(self, tokens):
        logits, self._cache = self._run(self._parameters, self._cache, tokens, self._length)
        self._length += len(tokens)
        return np.asarray(logits)
