"""A process that imports one peer, compiles, calls once, and says on stdout when: `python -m benchmarks.first_call`.

What it is given: the peer, what to call (a Workload's name, 'chain' or 'passes'), and the number of threads. What it
prints: the monotonic clock in nanoseconds when the imports were done and when the first result was there.
"""

import json
import sys
import time

from benchmarks.peers import BASELINE, training_step
from benchmarks.workload import WORKLOADS

CHAIN_OPERATIONS = 1000
CHAIN_LENGTH = 1024

_TRAINERS = (BASELINE, "torch", "torch-compile")


def _now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def _chain(x, tanh):
    """CHAIN_OPERATIONS elementwise operators, one after the other, none of which undoes or repeats another."""
    for number in range(CHAIN_OPERATIONS // 4):
        x = tanh(x * (1.5 + number / CHAIN_OPERATIONS)) + 0.25 - x
    return x


def _euler_chain(threads):
    import numpy as np

    import euler_ir as ei

    imported = _now()
    with ei.Graph("chain") as graph:
        ei.output(y=_chain(ei.input("x", (CHAIN_LENGTH,)), ei.tanh))
    ei.compile(graph, threads=threads)(x=np.linspace(0, 1, CHAIN_LENGTH, dtype=np.float32))
    return imported


def _compiled_torch_chain(threads):
    import torch

    torch.set_num_threads(threads)
    imported = _now()
    torch.compile(lambda x: _chain(x, torch.tanh))(torch.linspace(0, 1, CHAIN_LENGTH))
    return imported


def _jax_chain(threads):
    import jax
    import jax.numpy as jnp

    imported = _now()
    jax.block_until_ready(jax.jit(lambda x: _chain(x, jnp.tanh))(jnp.linspace(0, 1, CHAIN_LENGTH)))
    return imported


_CHAINS = {BASELINE: _euler_chain, "torch-compile": _compiled_torch_chain, "jax": _jax_chain}


def _passes(threads):
    """From the graph of GPT-2's step to its plan: no code generation."""
    from benchmarks.euler_gpt2 import step_graph
    from euler_ir.compiler import lower

    graph = step_graph(WORKLOADS["124M-T256"])
    imported = _now()
    lower(graph)
    return imported


def has(peer, what):
    """Whether ``peer`` can do ``what``."""
    return peer in ({"chain": _CHAINS, "passes": {BASELINE: _passes}}.get(what, _TRAINERS))


def main(peer, what, threads):
    """Do it, and print the times."""
    if what in WORKLOADS:
        workload = WORKLOADS[what]
        step = training_step(peer)(workload, None, int(threads))
        imported = _now()
        step.step(step.prepare(*workload.batches(1)[0]))
    elif what == "chain":
        imported = _CHAINS[peer](int(threads))
    else:
        imported = {"passes": _passes}[what](int(threads))
    print(json.dumps({"imported": imported, "finished": _now()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
