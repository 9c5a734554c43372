"""Conversations to learn from: cut to fit, packed into rows, and the objective that learns what is trained in them.

Several conversations share a row, each as if it were alone: it sees itself only, its positions begin at 0, and none
predicts the first token of the next.
"""

import math

import numpy as np

import euler_ir as ei
from models.data.batches import IGNORED_LABEL
from models.language_model import dropout_inputs, model_for

# Keeps these random numbers apart from any others drawn from the user's seed.
_ORDER_STREAM = 0x6F72646572


def shifted(rendered):
    """(tokens, targets), i32[n - 1], of n ids `Rendered`: each target is the next id, or IGNORED_LABEL if untrained.

    This is the one place where anything is shifted.
    """
    ids = np.array(rendered.ids, np.int32)
    return ids[:-1], np.where(rendered.trained[1:], ids[1:], IGNORED_LABEL).astype(np.int32)


def fitting(rendered, context):
    """`shifted` of as many whole turns as `context` tokens hold, up to the last that is trained; None if there is none.

    An answer that is cut would teach never to end, so it is left out whole.
    """
    trained = rendered.trained
    ends = [place for place in range(len(trained)) if trained[place] and not any(trained[place + 1 : place + 2])]
    within = [end for end in ends if end <= context]
    if not within:
        return None
    tokens, targets = shifted(rendered)
    return tokens[: within[-1]], targets[: within[-1]]


def pack(texts, context):
    """Rows of as many `texts`, pairs (tokens, targets) of up to `context` each, as fit: lists of indices of texts.

    The longest come first, each into the fullest row that has room (best-fit decreasing). What shares a row has no
    influence on what is learned, so the rows may be the same in every pass.
    """
    lengths = [len(tokens) for tokens, _ in texts]
    rows, with_room = [], [[] for _ in range(context + 1)]
    for index in sorted(range(len(texts)), key=lambda index: -lengths[index]):
        room = next((room for room in range(lengths[index], context + 1) if with_room[room]), None)
        if room is None:
            room = context
            rows.append([])
            with_room[room].append(rows[-1])
        row = with_room[room].pop()
        row.append(index)
        with_room[room - lengths[index]].append(row)
    return rows


def filled(texts, rows, batch_size, context):
    """Inputs of `next_trained_token` for up to `batch_size` rows of indices of texts; what is left stays empty."""
    tokens = np.zeros((batch_size, context), np.int32)
    targets = np.full_like(tokens, IGNORED_LABEL)
    positions = np.zeros_like(tokens)
    for row, indices in enumerate(rows):
        start = 0
        for index in indices:
            end = start + len(texts[index][0])
            tokens[row, start:end], targets[row, start:end] = texts[index]
            positions[row, start:end] = np.arange(end - start)
            start = end
    return {"tokens": tokens, "targets": targets, "positions": positions}


class PackedBatches:
    """Batches of packed `texts`, pairs (tokens, targets), as a pure function of (seed, step, micro step).

    A pass takes every row once, in an order of its own. Where the last step of a pass has too few rows, the others are
    empty and count for nothing.
    """

    def __init__(self, texts, batch_size, accumulate, context, seed):
        if not texts:
            raise ValueError(f"No conversation fits into {context} tokens. Use a longer context or shorter ones.")
        self._texts, self._rows = texts, pack(texts, context)
        self._batch_size, self._accumulate, self._context, self._seed = batch_size, accumulate, context, seed

    @property
    def row_count(self):
        """Rows of a pass."""
        return len(self._rows)

    @property
    def steps_per_pass(self):
        """Steps in which each conversation is learned from once."""
        return math.ceil(len(self._rows) / (self._batch_size * self._accumulate))

    def batch(self, step, micro_step=0):
        """Inputs of `next_trained_token`: `tokens`, `targets` and `positions`, i32[batch_size, context]."""
        number, step_of_pass = divmod(step, self.steps_per_pass)
        key = np.random.SeedSequence(self._seed, spawn_key=(_ORDER_STREAM, number))
        order = np.random.Generator(np.random.PCG64(key)).permutation(len(self._rows))
        start = (step_of_pass * self._accumulate + micro_step) * self._batch_size
        rows = [self._rows[place] for place in order[start : start + self._batch_size]]
        return filled(self._texts, rows, self._batch_size, self._context)


class Packed:
    """Rows of several texts each (see `WholeTexts`): `positions`, i32[batch, T], are 0, 1, ... in each text."""

    def __init__(self, positions):
        self.positions = positions

    def at_positions(self, table):
        """Rows of `table` [context, ...] at each token's position: [batch, T, ...]."""
        return ei.take(table, self.positions, axis=0)

    def attention(self, path, query, key, value):
        """Each token's attention to its own text as far as itself.

        The scores of all pairs are kept, [batch, heads, T, T], as attention without a mask of its own is not.
        """
        batch, heads, length, width = query.shape
        groups = key.shape[1]
        places = ei.arange(length)
        first = places - self.positions
        seen = ei.logical_and(places <= places.reshape(length, 1), places >= first.reshape(batch, 1, 1, length, 1))
        # Queries that share a key are side by side, as if they were further queries.
        scores = ei.matmul(query.reshape(batch, groups, -1, width), key, transpose_right=True) / math.sqrt(width)
        scores = ei.where(seen, scores.reshape(batch, groups, heads // groups, length, length), float("-inf"))
        weights = ei.softmax(scores, axis=-1).reshape(batch, groups, -1, length)
        return (weights @ value).reshape(batch, heads, length, value.shape[-1])


def next_trained_token(config, batch, context, training):
    """The objective (see `next_token`) of fine-tuning: the trained tokens of packed conversations."""
    tokens, targets, positions = (
        ei.input(name, (batch, context), ei.i32) for name in ("tokens", "targets", "positions")
    )
    model = model_for(config, context)
    # The losses of the head that chats: others may look past the end of a text, into its neighbour.
    losses = model.losses(model(tokens, Packed(positions), dropout_inputs(config, training)), targets)
    return ei.sum(losses), ei.sum(ei.not_equal(targets, IGNORED_LABEL)), {}
