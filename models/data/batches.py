"""Training batches and validation windows of token ids."""

import numpy as np

IGNORED_LABEL = -100
"""Target that carries no loss: padding after the last validation token."""

# Keeps these random numbers apart from any others drawn from the user's seed.
_BATCH_STREAM = 0x6261746368


class Batches:
    """Random training windows as a pure function of (seed, step, micro step).

    Nothing is remembered between calls, so a run resumed at any step sees the batches it would have seen.
    """

    def __init__(self, tokens, batch_size, context, seed):
        """Draw from integer[tokens]; raises ValueError when they are too few for one window and its target."""
        _check_window_shape(batch_size, context)
        if len(tokens) < context + 1:
            raise ValueError(
                f"The text has {len(tokens)} tokens, but a context of {context} needs at least {context + 1}. "
                "Use a shorter context or a longer text."
            )
        self._tokens, self._batch_size, self._context, self._seed = tokens, batch_size, context, seed

    def batch(self, step, micro_step=0):
        """(inputs, targets), both i32[batch, context]; each target is the token that follows its input."""
        key = np.random.SeedSequence(self._seed, spawn_key=(_BATCH_STREAM, step, micro_step))
        random = np.random.Generator(np.random.PCG64(key))
        starts = random.integers(len(self._tokens) - self._context, size=(self._batch_size, 1))
        windows = self._tokens[starts + np.arange(self._context + 1)].astype(np.int32)
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


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
