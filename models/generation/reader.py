"""Texts that a model reads while they grow, each with a row of one cache of keys and values."""

import numpy as np

from models.generation.cache import decode_graph, extension_graph, prefill_graph

SMALLEST_ROOM = 64
"""Tokens that a graph has room for at least; from there on rooms double up to the context."""


def visible(ids, context):
    """The end of `ids` that a model of `context` positions sees: all of them, as long as they fit.

    A text that has outgrown the context loses half of it at a time. Positions are counted from the first id that is
    seen, so that to lose one means to read all others again: this is done once for half a context of new ids. What is
    seen depends on the number of ids alone, not on what has been read before, or how.
    """
    step = max(1, context // 2)
    return ids[-(-max(0, len(ids) - context) // step) * step :]


class Reader:
    """Reads `count` texts. What one shares with what its row has read before is not read again."""

    def __init__(self, predictor, count=1):
        self._predictor = predictor
        self._read = [[] for _ in range(count)]  # the ids whose keys and values stand in the cache
        self._begin(count)

    def logits(self, texts):
        """Logits, f32[texts, vocab_size], of the token after each of `texts`, non-empty lists of ids, one a row.

        Rows whose text has grown by one id are read together, others one after the other. See `visible`.
        """
        windows = [visible(ids, self._predictor.context) for ids in texts]
        result = np.empty((len(windows), self._predictor.vocab_size), np.float32)
        growing = []
        for row, (window, read) in enumerate(zip(windows, self._read, strict=True)):
            # The last id is read in any case: the logits are its.
            known = min(_shared(window, read), len(window) - 1)
            # Until the rest is read it counts as unread, should Ctrl-C or an error come in between.
            self._read[row] = window[:known]
            if known == len(window) - 1:
                growing.append(row)
            else:
                result[row] = self._read_alone(self._places[row], window, known)
                self._read[row] = window
        if growing:
            result[growing] = self._read_last(windows)[[self._places[row] for row in growing]]
            self._read = windows
        return result

    def keep(self, rows):
        """Go on with these rows alone, in this order. The cache shrinks with them, by halves."""
        self._read, self._places = ([each[row] for row in rows] for each in (self._read, self._places))
        if _power_of_two(len(rows)) < self._batch:
            cache, places = self._cache, self._places
            self._begin(len(rows))
            for row, place in enumerate(places):
                self._copy(cache, place, self._cache, row, len(self._read[row]))

    def _begin(self, count):
        self._places, self._batch = list(range(count)), _power_of_two(count)
        self._cache = self._predictor.empty_cache(self._batch)
        # A text that is read by itself is read here.
        self._alone = self._cache if self._batch == 1 else self._predictor.empty_cache(1)

    def _copy(self, source, place, target, new_place, count):
        """Copy what has been read at the first `count` positions."""
        if source is not target:
            for name in self._predictor.cache_names:
                target[name][new_place, :, :count] = source[name][place, :, :count]

    def _read_alone(self, place, ids, known):
        """Logits, f32[1, vocab_size], after `ids`, of which the first `known` stand in the cache."""
        room = self._room(len(ids) - known)
        if known and room < self._predictor.context:
            self._copy(self._cache, place, self._alone, 0, known)
            # The room must end within the context: if need be it begins earlier, with ids that are known.
            start = min(known, self._predictor.context - room)
            build, inputs = extension_graph, {"start": np.array([start])}
        else:
            start, room, build, inputs = 0, self._room(len(ids)), prefill_graph, {}
        tokens = np.zeros((1, room), np.int32)
        tokens[0, : len(ids) - start] = ids[start:]
        position = np.array([len(ids) - 1])
        logits = self._predictor.run(build, 1, room, self._alone, tokens=tokens, position=position, **inputs)
        self._copy(self._alone, 0, self._cache, place, len(ids))
        return logits

    def _read_last(self, windows):
        """Logits, f32[batch, vocab_size], after the last id of every row, which may stand in the cache already."""
        tokens, position = np.zeros(self._batch, np.int32), np.zeros(self._batch, np.int64)
        for place, ids in zip(self._places, windows):
            tokens[place], position[place] = ids[-1], len(ids) - 1
        room = self._room(int(position.max()) + 1)
        return self._predictor.run(decode_graph, self._batch, room, self._cache, tokens=tokens, position=position)

    def _room(self, count):
        return min(max(SMALLEST_ROOM, _power_of_two(count)), self._predictor.context)


def _power_of_two(count):
    """The smallest that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def _shared(one, other):
    """How many ids two lists have in common at their beginning."""
    if one[: len(other)] == other:  # at almost every call
        return len(other)
    differing = (place for place, (left, right) in enumerate(zip(one, other)) if left != right)
    return next(differing, len(one))
