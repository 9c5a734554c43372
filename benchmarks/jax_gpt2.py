"""The training step of the same GPT-2 in jax: one jitted function that takes and gives back its buffers."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import workload as settings


def layer_norm(x, parameters, name):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def linear(x, parameters, name):
    return x @ parameters[f"{name}.weight"] + parameters[f"{name}.bias"]


def _loss(parameters, tokens, targets, workload):
    x = parameters["wte.weight"][tokens] + parameters["wpe.weight"][: tokens.shape[1]]
    for layer in range(workload.layers):
        name = f"h.{layer}"
        qkv = linear(layer_norm(x, parameters, f"{name}.ln_1"), parameters, f"{name}.attn.c_attn")
        by_head = qkv.reshape(*tokens.shape, 3, workload.heads, workload.width // workload.heads)
        mixed = jax.nn.dot_product_attention(by_head[:, :, 0], by_head[:, :, 1], by_head[:, :, 2], is_causal=True)
        x = x + linear(mixed.reshape(x.shape), parameters, f"{name}.attn.c_proj")
        hidden = linear(layer_norm(x, parameters, f"{name}.ln_2"), parameters, f"{name}.mlp.c_fc")
        x = x + linear(jax.nn.gelu(hidden, approximate=True), parameters, f"{name}.mlp.c_proj")
    scores = jax.nn.log_softmax(layer_norm(x, parameters, "ln_f") @ parameters["wte.weight"].T)
    return -jnp.take_along_axis(scores, targets[..., None], axis=-1).mean()


def _step(parameters, first, second, time, tokens, targets, workload):
    loss, gradients = jax.value_and_grad(_loss)(parameters, tokens, targets, workload)
    norm = jnp.sqrt(sum(jnp.sum(gradient**2) for gradient in gradients.values()))
    scale = jnp.minimum(1.0, settings.MAX_NORM / (norm + 1e-6))
    beta1, beta2 = settings.BETAS
    moved = ({}, {}, {})
    for name, parameter in parameters.items():
        gradient = gradients[name] * scale
        m = beta1 * first[name] + (1 - beta1) * gradient
        v = beta2 * second[name] + (1 - beta2) * gradient**2
        decay = settings.WEIGHT_DECAY if parameter.ndim >= 2 else 0.0
        denominator = jnp.sqrt(v / (1 - beta2**time)) + settings.EPSILON
        parameter = parameter * (1 - settings.LEARNING_RATE * decay)
        for kept, new in zip(moved, (parameter - settings.LEARNING_RATE * m / (1 - beta1**time) / denominator, m, v)):
            kept[name] = new
    return loss, *moved


class JaxStep:
    """The step of a Workload, which begins with the weights in the file `weights`."""

    def __init__(self, workload, weights, threads):
        # XLA takes the cores that the process may use.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        with np.load(weights) as arrays:
            self._parameters = {name: jnp.array(arrays[name]) for name in arrays}
        self._first, self._second = ({n: jnp.zeros_like(p) for n, p in self._parameters.items()} for _ in range(2))
        self._time = 0
        self._run = jax.jit(functools.partial(_step, workload=workload), donate_argnums=(0, 1, 2))

    def prepare(self, tokens, targets):
        """The inputs of a step."""
        return jnp.array(tokens), jnp.array(targets)

    def step(self, inputs):
        """Train on one batch and return its loss."""
        self._time += 1
        loss, self._parameters, self._first, self._second = self._run(
            self._parameters, self._first, self._second, float(self._time), *inputs
        )
        jax.block_until_ready(self._parameters)
        return float(loss)
