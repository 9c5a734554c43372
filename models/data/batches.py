"""Training batches and validation windows of token ids."""

import numpy as np

from models.random_streams import random_stream

IGNORED_LABEL = -100
"""Target that carries no loss: padding after the last validation token."""

_BATCH_STREAM = 0x6261746368
_SOURCE_STREAM = 0x736F75726365


class Batches:
    """Random training windows as a pure function of (seed, step, micro step).

    A step has `batch_size * accumulate` windows, whatever the two are. Each is of the source that its weight gives it;
    of any number of windows in turn, each source gets its share up to one. Nothing is remembered between calls, so a
    run resumed at any step sees the batches it would have seen.
    """

    def __init__(self, sources, batch_size, context, seed, accumulate=1, document_end=None):
        """Draw from a list of `Source`.

        With `document_end`, the id that ends documents, a window ends with the document that it begins in: what
        follows is no target. Raises ValueError when a source is too short for one window and its target.
        """
        _check_window_shape(batch_size, context)
        self._sources, self._counts = sources, [source.window_count(context) for source in sources]
        for source, count in zip(sources, self._counts, strict=True):
            if not count:
                longest = max(map(len, source.pieces), default=0)
                raise ValueError(
                    f"{source.name} is too short: {longest} tokens to train on, but a context of {context} needs at "
                    f"least {context + 1}. Use a longer text or a smaller --context."
                )
        weights = np.array([source.weight for source in sources], np.float64)
        self._bounds = np.cumsum(weights / weights.sum())[:-1]
        self._batch_size, self._context, self._seed = batch_size, context, seed
        self._accumulate, self._document_end = accumulate, document_end

    def batch(self, step, micro_step=0):
        """(inputs, targets), both i32[batch, context]; each target is the token that follows its input."""
        if not 0 <= micro_step < self._accumulate:
            raise ValueError(f"Micro step {micro_step} is not one of the {self._accumulate} of a step.")
        part = slice(micro_step * self._batch_size, (micro_step + 1) * self._batch_size)
        chosen, numbers = self._draw(step)
        windows = np.empty((self._batch_size, self._context + 1), np.int32)
        for index, source in enumerate(self._sources):
            rows = chosen[part] == index
            if rows.any():
                windows[rows] = source.windows(numbers[part][rows], self._context)
        inputs, targets = np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])
        if self._document_end is not None:
            # The mark at the very beginning of a window opens the document after it.
            ended = np.cumsum(inputs[:, 1:] == self._document_end, axis=1) > 0
            targets[:, 1:][ended] = IGNORED_LABEL
        return inputs, targets

    def _draw(self, step):
        """For each window of the step: the index of its source, and its number there."""
        count = self._batch_size * self._accumulate
        # One random offset, then equal distances: systematic sampling keeps the shares exact.
        offset = random_stream(self._seed, _SOURCE_STREAM, step).random()
        chosen = np.searchsorted(self._bounds, (np.arange(count) + offset) / count, side="right")
        random = random_stream(self._seed, _BATCH_STREAM, step, 0)
        numbers = np.empty(count, np.int64)
        for index, windows in enumerate(self._counts):
            rows = chosen == index
            numbers[rows] = random.integers(windows, size=rows.sum())
        return chosen, numbers


def validation_windows(tokens, context, batch_size):
    """Consecutive windows over all tokens, a list of (inputs, targets), each i32[batch, context].

    Every token but the first is a target exactly once. The last batch is filled up with input 0 and target
    IGNORED_LABEL, so that all batches have one shape. Raises ValueError for fewer than 2 tokens.
    """
    _check_window_shape(batch_size, context)
    if len(tokens) < 2:
        raise ValueError(
            f"Validation needs at least 2 tokens, but the text has {len(tokens)}. "
            "Use a longer text or a larger validation fraction."
        )
    scored = len(tokens) - 1
    batches = -(-scored // (batch_size * context))
    inputs = np.zeros((batches, batch_size, context), np.int32)
    targets = np.full_like(inputs, IGNORED_LABEL)
    inputs.reshape(-1)[:scored] = tokens[:-1]
    targets.reshape(-1)[:scored] = tokens[1:]
    return list(zip(inputs, targets, strict=True))


def _check_window_shape(batch_size, context):
    if batch_size < 1 or context < 1:
        raise ValueError(f"Batch size {batch_size} and context {context} must both be at least 1.")
