"""How long one waits: from the start of Python to the first finished training step, and for compilation alone.

Cold is with an empty cache of compiled code, cached is a second process with the cache that the first one left.
"""

import os
import tempfile
import time

from benchmarks import first_call
from benchmarks.peers import BASELINE
from benchmarks.remote import run_alone
from benchmarks.report import Table, spread
from benchmarks.timing import summary

PEERS = ("torch", "torch-compile", "jax")
DEFAULT_PEERS = ("torch",)
PARTS = ("nano", "124M-T256", "chain", "passes")
ROUNDS = 3

# The variables that say where compiled code is kept.
CACHES = ("EULER_IR_CACHE", "TORCHINDUCTOR_CACHE_DIR")
# Without code that is kept, a second process is like the first.
_KEEPS_NOTHING = ("torch", "jax")

_TITLES = {
    "nano": "nano: start of Python to the end of the first training step, s",
    "124M-T256": "124M-T256: start of Python to the end of the first training step, s",
    "chain": f"{first_call.CHAIN_OPERATIONS} elementwise operators in a chain: built, compiled and called once, s",
    "passes": "124M-T256: all passes, fusion, lowering and memory planning of the training step, no code, s",
}


def measure(parts, peers, threads, rounds):
    """One result a part: for each peer that can do it the seconds, cold and cached."""
    results = []
    for part in parts:
        able = [peer for peer in (BASELINE, *peers) if first_call.has(peer, part)]
        seconds = {peer: {"cold": [], "cached": []} for peer in able}
        for _ in range(rounds):
            for peer in able:
                with tempfile.TemporaryDirectory() as cache:
                    for state in ("cold",) if part == "passes" or peer in _KEEPS_NOTHING else ("cold", "cached"):
                        seconds[peer][state].append(_seconds(peer, part, threads, cache))
        peers_ = {
            peer: {state: summary([numbers]) for state, numbers in of_peer.items() if numbers}
            for peer, of_peer in seconds.items()
        }
        results.append({"part": part, "peers": peers_})
    return results


def _seconds(peer, part, threads, cache):
    """Those from the start of the process, or for what is no training step from the end of its imports."""
    environment = {**os.environ, **dict.fromkeys(CACHES, cache)}
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    times = run_alone(peer, "first_call", peer, part, threads, environment=environment)
    since = times["imported"] if part in ("chain", "passes") else start
    return (times["finished"] - since) / 1e9


def tables(results, ceilings):
    """One table a part."""
    return [_table(result) for result in results]


def _table(result):
    rows = [
        (peer, spread(one["cold"]), spread(one["cached"]) if "cached" in one else "")
        for peer, one in result["peers"].items()
    ]
    return Table(_TITLES[result["part"]], ("peer", "cold", "cached"), tuple(rows))
