"""The graphs that read a text by way of a cache of keys and values: its beginning, some tokens more, or one more.

The cache is state beside the parameters: `cache.<layer>.key` and `.value`, f32[batch, heads of keys, context, head
width]. What stands in it behind the position of a call has no influence on that call.
"""

import math

import euler_ir as ei
from models.language_model import WholeTexts


class Prompt(WholeTexts):
    """A cache that is begun: tokens at positions 0, 1, ... see each other alone."""

    def __init__(self, config, length):
        super().__init__(length)
        self.context = config.context

    def attention(self, path, query, key, value):
        """As that of whole texts; keys and values are kept for `Continuation`."""
        for name, new in (("key", key), ("value", value)):
            _extended(f"cache.{path}.{name}", new, 0, self.context)
        return super().attention(path, query, key, value)


class Continuation:
    """A cache that goes on: `length` tokens, from `start`, i64[batch], on, see those before them.

    They are among the first `window` positions, and no others are read.
    """

    def __init__(self, config, start, length, window):
        self.context, self.start, self.window = config.context, start, window
        self.positions = start.reshape(-1, 1) + ei.arange(length)

    def at_positions(self, table):
        """Rows of `table` [context, ...] at each token's position: [batch, length, ...]."""
        return ei.take(table, self.positions, axis=0)

    def attention(self, path, query, key, value):
        """Attention of queries [batch, heads, length, head width] to all keys as far as their own."""
        keys, values = (
            _extended(f"cache.{path}.{name}", new, self.start, self.context)[:, :, : self.window]
            for name, new in (("key", key), ("value", value))
        )
        batch, heads, length, width = query.shape
        # Queries that share a head of keys are rows of one product, so that keys are read once and never repeated.
        shared = heads // key.shape[1]
        rows = query.reshape(batch, -1, shared * length, width)
        scores = ei.matmul(rows, keys, transpose_right=True) * (1 / math.sqrt(width))
        seen = ei.arange(self.window) <= self.positions.reshape(batch, 1, 1, length, 1)
        scores = ei.where(seen, scores.reshape(batch, -1, shared, length, self.window), float("-inf"))
        weights = ei.softmax(scores, axis=-1).reshape(batch, -1, shared * length, self.window)
        return (weights @ values).reshape(batch, heads, length, values.shape[-1])


def _extended(name, new, start, context):
    """The state `name` with `new`, [batch, heads, count, head width], at positions `start`, `start + 1`, ..."""
    batch, heads, _, width = new.shape
    kept = ei.state(name, (batch, heads, context, width))
    extended = ei.dynamic_update_slice(kept, new, start, axis=2)
    ei.update(kept, extended)
    return extended


def prefill_graph(config, batch, length):
    """Reads beginnings of texts, up to `length` tokens each, and fills the cache.

    Inputs: `tokens`, i32[batch, length], and `position`, i64[batch], that of each text's last token. Output: `logits`,
    f32[batch, vocab_size], of the token after it. What stands in `tokens` behind that position has no influence, so
    one graph serves all lengths.
    """
    _check("prompt", length, config)
    with ei.Graph("prefill") as graph:
        tokens = ei.input("tokens", (batch, length), ei.i32)
        position = ei.input("position", (batch,), ei.i64)
        model = config.build()
        features = model(tokens, Prompt(config, length))
        ei.output(logits=model.logits(_at(features, position)))
    return graph


def extension_graph(config, batch, length):
    """Reads up to `length` tokens more of texts whose tokens before `start` have been read.

    Inputs: `tokens`, i32[batch, length], those at `start`, i64[batch], and behind it, which are positions of the model
    all; and `position`, i64[batch], that of each text's last token. Output: `logits`, as those of `prefill_graph`.
    """
    _check("part", length, config)
    with ei.Graph("extension") as graph:
        tokens = ei.input("tokens", (batch, length), ei.i32)
        start, position = (ei.input(name, (batch,), ei.i64) for name in ("start", "position"))
        model = config.build()
        features = model(tokens, Continuation(config, start, length, config.context))
        ei.output(logits=model.logits(_at(features, position - start)))
    return graph


def decode_graph(config, batch, window):
    """Reads one token more of each text, at a position below `window`, when all before it have been read.

    Inputs: `tokens`, i32[batch], and `position`, i64[batch]. Output: `logits`, f32[batch, vocab_size], of the token
    after it. The cost grows with `window`.
    """
    _check("window", window, config)
    with ei.Graph("decode") as graph:
        tokens = ei.input("tokens", (batch,), ei.i32)
        position = ei.input("position", (batch,), ei.i64)
        model = config.build()
        features = model(tokens.reshape(batch, 1), Continuation(config, position, 1, window))
        ei.output(logits=model.logits(features[:, 0]))
    return graph


def _check(what, length, config):
    if length > config.context:
        raise ValueError(f"A {what} of {length} tokens is more than the {config.context} positions of the model.")


def _at(features, places):
    """Row `places[i]` of `features[i]`, [batch, length, width]: [batch, width]."""
    batch, length, width = features.shape
    # A place that is out of range would be one of another text; the first `take` refuses it.
    places = ei.take(ei.arange(length), places) + ei.arange(batch) * length
    return ei.take(features.reshape(batch * length, width), places, axis=0)
