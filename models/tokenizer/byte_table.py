"""From many ids to bytes at once."""

import numpy as np

BLOCK_IDS = 1 << 14
REPLACEMENT = "\ufffd".encode()
UNKNOWN = {"error": b"", "ignore": b"", "replace": REPLACEMENT}


def row_of_ids(ids):
    """Ids, a sequence or a 1-D integer array, as an array. Raises ValueError for what is no row of integers."""
    ids = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ValueError(f"Token ids must be integers in one row, not {ids.dtype}{list(ids.shape)}.")
    return ids


class ByteTable:
    """The bytes of all tokens end to end, with where each begins and how long it is."""

    def __init__(self, bytes_from_id):
        """Build from {id: bytes}. An id below the highest that is not there is unknown."""
        size = max(bytes_from_id, default=-1) + 1
        self._known = np.zeros(size + 1, bool)
        self._known[list(bytes_from_id)] = True
        self._lengths = np.zeros(size + 1, np.int32)
        self._lengths[list(bytes_from_id)] = [len(token) for token in bytes_from_id.values()]
        self._starts = np.cumsum(self._lengths, dtype=np.int64) - self._lengths
        self._bytes = b"".join(bytes_from_id[token_id] for token_id in sorted(bytes_from_id))

    @property
    def lengths(self):
        """Bytes of each id, int32[vocab_size]; 0 for an id that is not there."""
        return self._lengths[:-1]

    def join(self, ids, unknown="error"):
        """The bytes of integer[tokens] ids.

        An id that is not there raises ValueError, is left out (`unknown` "ignore") or becomes U+FFFD ("replace").
        """
        if unknown not in UNKNOWN:
            raise ValueError(f"unknown={unknown!r} should be one of {', '.join(map(repr, UNKNOWN))}.")
        blocks = [ids[start : start + BLOCK_IDS] for start in range(0, len(ids), BLOCK_IDS)]
        return b"".join(self._join_block(block, unknown) for block in blocks)

    def _join_block(self, ids, unknown):
        size = len(self._lengths) - 1
        # The last row of the tables is that of every id which is not there; a negative index would count from the end.
        rows = np.where((ids >= 0) & (ids < size), ids, size).astype(np.int64)
        known = self._known[rows]
        if known.all():
            return self._gather(rows)
        if unknown == "error":
            first = int(ids[np.argmin(known)])
            raise ValueError(f"Token id {first} is not in this vocabulary of {size} ids.")
        # Each run but the first begins with an unknown id, whose row has no bytes.
        return UNKNOWN[unknown].join(map(self._gather, np.split(rows, np.flatnonzero(~known))))

    def _gather(self, rows):
        lengths = self._lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.repeat(self._starts[rows] - ends + lengths, lengths)
        places += np.arange(len(places))
        return np.frombuffer(self._bytes, np.uint8)[places].tobytes()
