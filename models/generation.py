"""Continuing text with a GPT-2: prefill reads a prompt, decode one token more, by way of a cache of keys and values.

The cache is state beside the parameters: `cache.<layer>.key` and `.value`, f32[batch, heads, context, head width]. What
stands in it behind the position of a call has no influence on that call.
"""

import math

import numpy as np

import euler_ir as ei
from euler_ir.quantization import quantize_weights, quantized_state
from models.gpt2 import GPT2

SMALLEST_ROOM = 64
"""Positions that a graph has room for at least; from there on rooms double up to the context."""


class Prompt:
    """A cache that is begun: tokens at positions 0, 1, ... see each other alone."""

    def __init__(self, config, length):
        self.context, self.positions = config.context, ei.arange(length)

    def attention(self, path, query, key, value):
        """Causal attention; keys and values, [batch, heads, length, head width], are kept for `Continuation`."""
        for name, new in (("key", key), ("value", value)):
            _extended(f"cache.{path}.{name}", new, 0, self.context)
        return ei.attention(query, key, value, causal=True)


class Continuation:
    """A cache that goes on: one token at `position`, 0-d, sees the first `window` positions as far as its own."""

    def __init__(self, config, position, window):
        self.context, self.positions, self.window = config.context, position.reshape(1), window

    def attention(self, path, query, key, value):
        """Attention of one query, key and value, [batch, heads, 1, head width], and all keys before it."""
        position = self.positions[0]
        keys, values = (
            _extended(f"cache.{path}.{name}", new, position, self.context)[:, :, : self.window]
            for name, new in (("key", key), ("value", value))
        )
        scores = ei.matmul(query, keys, transpose_right=True) * (1 / math.sqrt(query.shape[-1]))
        seen = ei.arange(self.window) <= position
        return ei.softmax(ei.where(seen, scores, float("-inf")), axis=-1) @ values


def _extended(name, new, start, context):
    """The state `name` with `new`, [batch, heads, count, head width], at positions `start`, `start + 1`, ..."""
    batch, heads, _, width = new.shape
    kept = ei.state(name, (batch, heads, context, width))
    extended = ei.dynamic_update_slice(kept, new, start, axis=2)
    ei.update(kept, extended)
    return extended


def prefill_graph(config, batch, length):
    """Reads prompts of up to `length` tokens and fills the cache.

    Inputs: `tokens`, i32[batch, length], and `position`, i64[]. Output: `logits`, f32[batch, vocab_size], of the token
    after `position`. What stands in `tokens` behind that position has no influence, so one graph serves all lengths.
    """
    if length > config.context:
        raise ValueError(f"A prompt of {length} tokens is more than the {config.context} positions of the model.")
    with ei.Graph("prefill") as graph:
        tokens = ei.input("tokens", (batch, length), ei.i32)
        position = ei.input("position", (), ei.i64)
        model = GPT2(config)
        features = model(tokens, cache=Prompt(config, length))
        ei.output(logits=model.logits(ei.take(features, position, axis=1)))
    return graph


def decode_graph(config, batch, window):
    """Reads one token more, at a position below `window`, after prefill or decode have read all before it.

    Inputs: `tokens`, i32[batch], and `position`, i64[]. Output: `logits`, f32[batch, vocab_size], of the token after
    it. The cost grows with `window`.
    """
    if window > config.context:
        raise ValueError(f"A window of {window} tokens is more than the {config.context} positions of the model.")
    with ei.Graph("decode") as graph:
        tokens = ei.input("tokens", (batch,), ei.i32)
        position = ei.input("position", (), ei.i64)
        model = GPT2(config)
        features = model(tokens.reshape(batch, 1), cache=Continuation(config, position, window))
        ei.output(logits=model.logits(features[:, 0]))
    return graph


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
