"""The graphs that continue a text: prefill reads a prompt, decode one token more, by way of a cache of keys and values.

The cache is state beside the parameters: `cache.<layer>.key` and `.value`, f32[batch, heads, context, head width]. What
stands in it behind the position of a call has no influence on that call.
"""

import math

import euler_ir as ei


class Prompt:
    """A cache that is begun: tokens at positions 0, 1, ... see each other alone."""

    def __init__(self, config, length):
        self.context, self.length = config.context, length

    def at_positions(self, table):
        """Rows of `table` [context, ...] at the positions 0, 1, ...: [length, ...]."""
        return table[: self.length]

    def attention(self, path, query, key, value):
        """Causal attention; keys and values, [batch, heads, length, head width], are kept for `Continuation`."""
        for name, new in (("key", key), ("value", value)):
            _extended(f"cache.{path}.{name}", new, 0, self.context)
        return ei.attention(query, key, value, causal=True)


class Continuation:
    """A cache that goes on: one token at `position`, 0-d, sees the first `window` positions as far as its own."""

    def __init__(self, config, position, window):
        self.context, self.position, self.window = config.context, position, window

    def at_positions(self, table):
        """The row of `table` [context, ...] at the position: [1, ...]."""
        return ei.take(table, self.position.reshape(1), axis=0)

    def attention(self, path, query, key, value):
        """Attention of one query, key and value, [batch, heads, 1, head width], and all keys before it."""
        keys, values = (
            _extended(f"cache.{path}.{name}", new, self.position, self.context)[:, :, : self.window]
            for name, new in (("key", key), ("value", value))
        )
        scores = ei.matmul(query, keys, transpose_right=True) * (1 / math.sqrt(query.shape[-1]))
        seen = ei.arange(self.window) <= self.position
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
        model = config.build()
        features = model(tokens, Prompt(config, length))
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
        model = config.build()
        features = model(tokens.reshape(batch, 1), Continuation(config, position, window))
        ei.output(logits=model.logits(features[:, 0]))
    return graph
