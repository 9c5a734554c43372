"""The kernels as graphs of euler_ir, called as a user calls them.

Operands and results are state, so that nothing is allocated in a call. What a call costs in Python is in the time.
"""

import numpy as np

import euler_ir as ei
from benchmarks import kernel_cases as settings
from euler_ir import optim


def prepare(case, threads):
    """A function that runs the kernel once, and one that gives its results as arrays."""
    return _ready(case.arrays(), [_BUILDS[case.kind]], threads)


def prepare_in_two(case, threads):
    """The same with the product in a graph of its own; None for what is no product with an epilogue."""
    if case.kind != "linear+gelu":
        return None
    arrays = case.arrays()
    arrays["h"] = np.zeros((len(arrays["x"]), len(arrays["b"])), np.float32)
    return _ready(arrays, [lambda o: {"h": o.x @ o.w}, lambda o: {"y": _gelu(o.h + o.b)}], threads)


def _ready(arrays, builds, threads):
    """The graphs of ``builds`` run one after the other; what the last one keeps are the results."""
    graphs = [_graph(build, arrays) for build in builds]
    state = ei.initial_state(*graphs)
    for name, array in arrays.items():
        state[name] = array
    steps = [ei.compile(graph, threads=threads) for graph in graphs]
    results = [name for name in graphs[-1].updates if not name.startswith("optim.")]

    def run():
        for step in steps:
            step(state)

    return run, lambda: [np.array(state[name]) for name in results]


def _graph(build, arrays):
    """The graph in which ``build`` makes what is kept, by name, of leaves that it is given by name."""
    with ei.Graph("kernel") as graph:
        leaves = _Leaves(arrays)
        for name, value in build(leaves).items():
            ei.update(ei.state(name, value.shape, dtype=value.dtype), value)
    return graph


class _Leaves:
    """Operands as leaves of the current graph, made when they are asked for."""

    def __init__(self, arrays):
        self._arrays = arrays

    def __getattr__(self, name):
        array = self._arrays[name]
        return ei.state(name, array.shape, dtype=array.dtype)


def _product(transpose_left, transpose_right):
    return lambda o: {"y": ei.matmul(o.a, o.b, transpose_left=transpose_left, transpose_right=transpose_right)}


def _gelu(x):
    return ei.gelu(x, approximate="tanh")


def _attention_both_ways(o):
    q, k, v = o.q, o.k, o.v
    mixed = ei.attention(q, k, v, causal=True)
    return dict(zip(("y", "dq", "dk", "dv"), (mixed, *ei.gradient(mixed, [q, k, v], o.g))))


def _cross_entropy_both_ways(o):
    x = o.x
    loss = ei.mean(ei.cross_entropy(x, o.t))
    return {"y": loss, "dx": ei.gradient(loss, [x])[0]}


def _adamw(o):
    gradient = o.g
    parameter = ei.parameter("p", gradient.shape, ei.initializers.Zeros())
    optimizer = optim.AdamW(settings.LEARNING_RATE, settings.BETAS, settings.EPSILON, settings.WEIGHT_DECAY)
    optimizer.step({parameter: gradient})
    return {}


# By kind: a function of the operands to what is kept, by name.
_BUILDS = {
    "matmul NN": _product(False, False),
    "matmul NT": _product(False, True),
    "matmul TN": _product(True, False),
    "linear+gelu": lambda o: {"y": _gelu(o.x @ o.w + o.b)},
    "attention": lambda o: {"y": ei.attention(o.q, o.k, o.v, causal=True)},
    "attention, both ways": _attention_both_ways,
    "layer norm": lambda o: {"y": ei.layer_norm(o.x, o.w, o.b)},
    "softmax": lambda o: {"y": ei.softmax(o.x)},
    "gelu": lambda o: {"y": _gelu(o.x)},
    "cross-entropy": lambda o: {"y": ei.mean(ei.cross_entropy(o.x, o.t))},
    "cross-entropy, both ways": _cross_entropy_both_ways,
    "adamw": _adamw,
    "gather": lambda o: {"y": ei.take(o.x, o.t)},
    "scatter-add": lambda o: {"y": ei.scatter_add(o.t, o.x, settings.TABLE[0])},
}
