"""Scores of the token that follows a text, by way of a cache of keys and values that grows with the text."""

import numpy as np

import euler_ir as ei
from euler_ir.quantization import quantize_weights, quantized_state
from models.generation.cache import decode_graph, prefill_graph

SMALLEST_ROOM = 64
"""Positions that a graph has room for at least; from there on rooms double up to the context."""


class Predictor:
    """Scores of the token that follows a text. Graphs are compiled when a text first needs them, and serve all texts.

    `state` holds the parameters and is read at each call. With `weights` ('i8', 'bf16' or 'f16') the weights are those
    of now, in that type: faster, and a little off.
    """

    def __init__(self, config, state, weights=None, backend="cpu", threads=None):
        self._config, self._weights = config, weights
        self._options = dict(backend=backend, threads=threads)
        self._compiled = {}
        graph = decode_graph(config, 1, _room(1, config.context))
        self._state = quantized_state(graph, state, weights) if weights else state

    def begin(self):
        """An empty `Text`."""
        return Text(self, self._config.context, self._state.view())

    def run(self, build, room, state, **inputs):
        """Logits, f32[vocab_size], of `build`, one of the graph functions above, for texts of up to `room` tokens."""
        if (build, room) not in self._compiled:
            graph = build(self._config, 1, room)
            graph = quantize_weights(graph, self._weights) if self._weights else graph
            self._compiled[build, room] = graph, ei.compile(graph, **self._options)
        graph, run = self._compiled[build, room]
        if next(iter(graph.updates)) not in state:
            state.add(graph)
        return run(state, **inputs)["logits"][0]


class Text:
    """A text that grows, with a cache of its own. Make one with `Predictor.begin`."""

    def __init__(self, predictor, context, state):
        self._predictor, self._context, self._state = predictor, context, state
        self._ids = []

    def read(self, ids):
        """Append `ids`, one or more, and return the logits, f32[vocab_size], of the token after them.

        The model sees the last `context` ids. A single one within the context costs one token's work; any other number,
        and each one beyond the context, where all positions move, costs that of the whole window.
        """
        self._ids.extend(ids)
        count = len(self._ids)
        if len(ids) == 1 and count <= self._context:
            tokens, position, build = np.array(ids, np.int32), count - 1, decode_graph
        else:
            window = self._ids[-self._context :]
            tokens = np.zeros((1, _room(len(window), self._context)), np.int32)
            tokens[0, : len(window)] = window
            position, build = len(window) - 1, prefill_graph
        room = _room(position + 1, self._context)
        return self._predictor.run(build, room, self._state, tokens=tokens, position=np.array(position))


def _room(count, context):
    """The smallest room for `count` tokens."""
    return min(max(SMALLEST_ROOM, 1 << (count - 1).bit_length()), context)
