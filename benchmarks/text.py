"""How long the text form takes to read, to verify and to print."""

from benchmarks.peers import BASELINE
from benchmarks.remote import run_alone
from benchmarks.report import Table, spread
from benchmarks.text_run import OPERATORS
from benchmarks.timing import summary

PEERS = ("xdsl",)
DEFAULT_PEERS = PEERS
PARTS = ("chain", "gpt2")
ROUNDS = 3

_TITLES = {
    "chain": f"{OPERATORS} operators in a chain, s",
    "gpt2": "the training step of GPT-2 124M, s",
}
_STEPS = ("read", "verify", "print")


def measure(parts, peers, threads, rounds):
    """One result a part: for each peer that has it the operators, and the seconds of each step."""
    results = []
    for part in parts:
        able = (BASELINE, *peers) if part == "chain" else (BASELINE,)
        taken = {peer: [] for peer in able}
        for _ in range(rounds):
            for peer in able:
                taken[peer].append(_run(peer, part))
        peers_ = {
            peer: {
                "operators": runs[0]["operators"],
                **{step: summary([[run[step] for run in runs]]) for step in _STEPS},
            }
            for peer, runs in taken.items()
        }
        results.append({"part": part, "peers": peers_})
    return results


def _run(peer, part):
    return run_alone(peer, "text_run", peer, part)


def tables(results, ceilings):
    """One table a part."""
    return [_table(result) for result in results]


def _table(result):
    rows = [
        (peer, str(one["operators"]), *(spread(one[step]) for step in _STEPS)) for peer, one in result["peers"].items()
    ]
    return Table(_TITLES[result["part"]], ("peer", "operators", *_STEPS), tuple(rows))
