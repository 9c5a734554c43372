"""Runs: the stretches of a text between special tokens, and how they are shared out among threads.

Runs are rows of i64[runs, 3]: where a run starts and ends in the text, and the id of the special token behind it or -1.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from euler_ir.native import default_threads
from models.tokenizer.compiled.scanner import safe_cut
from models.tokenizer.special_tokens import pattern_of
from models.tokenizer.unicode_classes import class_table

SHARD_BYTES = 1 << 22
NO_TOKEN = -1


def find_runs(text, id_from_token):
    """The runs of text u8[bytes] between the special tokens {text: id}."""
    pattern = pattern_of(id_from_token, bytes)
    found = list(pattern.finditer(text)) if pattern else []
    ids = {token.encode("utf-8"): token_id for token, token_id in id_from_token.items()}
    runs = np.empty((len(found) + 1, 3), np.int64)
    runs[:, 0] = [0, *(match.end() for match in found)]
    runs[:, 1] = [*(match.start() for match in found), len(text)]
    runs[:, 2] = [*(ids[match[0]] for match in found), NO_TOKEN]
    return runs


def shards(text, runs):
    """The runs in groups of about SHARD_BYTES; a long run is cut where no piece crosses, so results stay the same."""
    is_long = runs[:, 1] - runs[:, 0] > SHARD_BYTES
    behind = np.flatnonzero(is_long | np.roll(is_long, 1))
    parts = np.split(runs, behind[behind > 0])
    runs = np.concatenate([_cut(text, *part[0].tolist()) if len(part) == 1 else part for part in parts])
    group = np.cumsum(runs[:, 1] - runs[:, 0]) // SHARD_BYTES
    return np.split(runs, np.flatnonzero(np.diff(group)) + 1)


def _cut(text, start, end, token_id):
    """One run as several of about SHARD_BYTES."""
    cuts = [start]
    while end - cuts[-1] > SHARD_BYTES:
        cuts.append(safe_cut(text, cuts[-1] + SHARD_BYTES, end, class_table()))
    if cuts[-1] < end or len(cuts) == 1:
        cuts.append(end)
    return np.array([[*bounds, NO_TOKEN] for bounds in pairwise(cuts)][:-1] + [[*cuts[-2:], token_id]])


def in_threads(work, parts):
    """[work(part), ...], with as many threads as EULER_IR_THREADS says or there are cores."""
    threads = min(default_threads(), len(parts))
    if threads == 1:
        return list(map(work, parts))
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(work, parts))
    finally:
        pool.shutdown(cancel_futures=True)
