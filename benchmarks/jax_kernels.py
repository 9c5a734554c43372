"""The kernels in jax, each one jitted function. It allocates its results; AdamW is given its operands to reuse."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import kernel_cases as settings


def prepare(case, threads):
    """A function that runs the kernel once, and one that gives its results; None for a kind that is not here."""
    # XLA takes the cores that the process may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    operands = {name: jnp.array(array) for name, array in case.arrays().items()}
    if case.kind == "adamw":
        return _adamw(**operands)
    if case.kind not in _KINDS:
        return None
    function, kept = jax.jit(_KINDS[case.kind]), []

    def run():
        made = jax.block_until_ready(function(**operands))
        kept[:] = made if isinstance(made, tuple) else [made]

    return run, lambda: [np.asarray(array) for array in kept]


def _adamw(p, g):
    beta1, beta2 = settings.BETAS

    def step(time, p, m, v):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p * (1 - settings.LEARNING_RATE * settings.WEIGHT_DECAY)
        denominator = jnp.sqrt(v / (1 - beta2**time)) + settings.EPSILON
        return p - settings.LEARNING_RATE * m / (1 - beta1**time) / denominator, m, v

    function, kept = jax.jit(step, donate_argnums=(1, 2, 3)), [0.0, p, jnp.zeros_like(p), jnp.zeros_like(p)]

    def run():
        kept[0] += 1.0
        kept[1:] = jax.block_until_ready(function(*kept))

    return run, lambda: [np.asarray(kept[1])]


def _gelu(x):
    return jax.nn.gelu(x, approximate=True)


def _attention(q, k, v):
    # Here heads come before positions, in jax after them.
    turned = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
    return jnp.swapaxes(jax.nn.dot_product_attention(*turned, is_causal=True), 1, 2)


def _attention_both_ways(q, k, v, g):
    mixed, backward = jax.vjp(_attention, q, k, v)
    return mixed, *backward(g)


def _layer_norm(x, w, b):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b


def _cross_entropy(x, t):
    return -jnp.take_along_axis(jax.nn.log_softmax(x), t[:, None], axis=1).mean()


_KINDS = {
    "matmul NN": lambda a, b: a @ b,
    "matmul NT": lambda a, b: a @ b.T,
    "matmul TN": lambda a, b: a.T @ b,
    "linear+gelu": lambda x, w, b: _gelu(x @ w + b),
    "attention": _attention,
    "attention, both ways": _attention_both_ways,
    "layer norm": _layer_norm,
    "softmax": lambda x: jax.nn.softmax(x),
    "gelu": _gelu,
    "cross-entropy": _cross_entropy,
    "cross-entropy, both ways": lambda x, t: jax.value_and_grad(_cross_entropy)(x, t),
    "gather": lambda x, t: x[t],
    "scatter-add": lambda x, t: jnp.zeros(settings.TABLE).at[t].add(x),
}
