"""The frozen reference of preference tuning: what it thinks of each answer is computed once and kept in a file.

So there is never a second model in memory, and none whose weights a step could reach.
"""

import numpy as np
import safetensors
from safetensors.numpy import load_file, save

import euler_ir as ei
from models.chat.preferences import reference_graph
from models.files import replacing


def reference_log_probs(config, arrays, batches, batch_size, context, backend="cpu", threads=None):
    """What a model of these arrays thinks of the answers of `batches`: log-probabilities, f32[rows, 2]."""
    graph = reference_graph(config, batch_size, context)
    run, state = ei.compile(graph, backend=backend, threads=threads), ei.initial_state(graph)
    for name in state:
        state[name] = arrays[name]
    found = [run(state, tokens=each["tokens"], targets=each["targets"])["log_probs"] for each in batches]
    return np.concatenate([np.zeros((0, 2), np.float32), *found])


def write_reference(path, log_probs, weights, data):
    """Write arrays by name, with the digests of the reference's weights and of the pairs. Raises OSError."""
    with replacing(path) as file:
        file.write(save(log_probs, {"weights": weights, "data": data}))


def read_reference(path, weights, data):
    """The arrays that `write_reference` wrote for these weights and pairs.

    Raises FileNotFoundError, or ValueError for another reference, other pairs, or a damaged file.
    """
    try:
        with safetensors.safe_open(path, "numpy") as file:
            found = file.metadata() or {}
        log_probs = load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}. Begin the run anew.") from None
    if found.get("weights") != weights:
        raise ValueError(f"{path} is of another reference than this run began with. Restore it, or begin the run anew.")
    if found.get("data") != data:
        raise ValueError(f"{path} is of other pairs of answers than those beside it. Restore them, or begin anew.")
    return log_probs
