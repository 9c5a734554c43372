"""Conversations to learn from: cut to fit, packed into rows, and the objective that learns what is trained in them.

Several conversations share a row, each as if it were alone: it sees itself only, its positions begin at 0, and none
predicts the first token of the next.
"""

import numpy as np

import euler_ir as ei
from models.data.batches import IGNORED_LABEL
from models.data.passes import Passes
from models.language_model import dropout_inputs, model_for


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


def all_filled(texts, batch_size, context):
    """Inputs of `next_trained_token` that hold each of `texts` once, a list."""
    rows = pack(texts, context)
    starts = range(0, len(rows), batch_size)
    return [filled(texts, rows[start : start + batch_size], batch_size, context) for start in starts]


class PackedBatches:
    """Batches of packed `texts`, pairs (tokens, targets), in the order of `passes` over their rows.

    Where the last step of a pass has too few rows, the others are empty and count for nothing.
    """

    def __init__(self, texts, batch_size, accumulate, context, seed):
        if not texts:
            raise ValueError(f"No conversation fits into {context} tokens. Use a longer context or shorter ones.")
        self._texts, self._rows = texts, pack(texts, context)
        self._batch_size, self._context = batch_size, context
        self.passes = Passes(len(self._rows), batch_size, accumulate, seed)

    def batch(self, step, micro_step=0):
        """Inputs of `next_trained_token`: `tokens`, `targets` and `positions`, i32[batch_size, context]."""
        rows = [self._rows[place] for place in self.passes.indices(step, micro_step)]
        return filled(self._texts, rows, self._batch_size, self._context)


class Packed:
    """Rows of several texts each (see `WholeTexts`): `positions`, i32[batch, T], are 0, 1, ... in each text."""

    def __init__(self, positions):
        self.positions = positions

    def at_positions(self, table):
        """Rows of `table` [context, ...] at each token's position: [batch, T, ...]."""
        return ei.take(table, self.positions, axis=0)

    def attention(self, path, query, key, value):
        """Each token's attention to its own text as far as itself."""
        batch, length = self.positions.shape
        starts = ei.arange(length) - self.positions
        return ei.attention(query, key, value, visible_from=starts.reshape(batch, 1, length))


def next_trained_token(config, batch, context, training):
    """The objective (see `next_token`) of fine-tuning: the trained tokens of packed conversations."""
    tokens, targets, positions = (
        ei.input(name, (batch, context), ei.i32) for name in ("tokens", "targets", "positions")
    )
    model = model_for(config, context)
    # The losses of the head that chats: others may look past the end of a text, into its neighbour.
    losses = model.losses(model(tokens, Packed(positions), dropout_inputs(config, training)), targets)
    return ei.sum(losses), ei.sum(ei.not_equal(targets, IGNORED_LABEL)), {}
