"""Fuzzing: random graphs through the chain for as long as one likes; each new kind of failure becomes a small file."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample

from euler_ir.errors import EulerError
from euler_ir.testing.case import Case, write_case
from euler_ir.testing.chain import BrokenLink, check_chain
from euler_ir.testing.limits import tight_limits
from euler_ir.testing.strategies import graphs

ROUND = 100
"""Graphs between two looks at the clock, but for those by which one that fails is made smaller."""
_SETTINGS = settings(
    max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)  # fmt: skip


def fuzz(rounds: Iterable[int], seed: int, folder: Path, most_ops: int = 20) -> Iterator[str]:
    """Try ROUND random graphs a round; write what breaks to ``folder``, made small, and give a line about each.

    Odd rounds run at tight limits. Of failures that break one link in the same way the first alone is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known: set[str] = set()
    tried = 0
    for number in rounds:
        wanted: list[str] = []
        failure = ""

        def is_new(case: Case) -> bool:
            nonlocal tried, failure
            tried += not wanted
            found = failure_of(case)
            if found is None or found[0] in known or (wanted and found[0] != wanted[0]):
                return False
            wanted[:] = found[:1]
            failure = found[1]
            return True

        with tight_limits() if number % 2 else contextlib.nullcontext():
            try:
                case = find(graphs(most_ops), is_new, settings=_SETTINGS, random=random.Random(f"{seed} {number}"))
            except NoSuchExample:
                case = None
            if case is not None:
                is_new(case)  # the last that was tried need not be the smallest
        if case is not None:
            known.update(wanted)
            path = folder / f"found_{hashlib.sha256(str(case.graph).encode()).hexdigest()[:8]}.eir"
            write_case(path, case, f"Found by fuzzing{', at tight limits' if number % 2 else ''}.\n{failure}")
            yield f"{path}: {failure}"
    yield f"{tried} graphs, {len(known)} kinds of failures"


def _until(seconds: float) -> Iterator[int]:
    """Numbers of rounds for about so long."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield number
        number += 1


def failure_of(case: Case) -> tuple[str, str] | None:
    """What kind of failure ``case`` is, and its message; None when the chain holds."""
    try:
        check_chain(case.graph, case.leaves)
    except BrokenLink as error:
        cause = type(error.__cause__).__name__ if error.__cause__ else "another result"
        return f"{error.link}: {cause}", str(error)
    except EulerError as error:
        return f"interpreter: {type(error).__name__}", str(error)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m euler_ir.testing.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="for how long")
    parser.add_argument("--seed", type=int, default=None, help="where to begin; by default the clock says")
    parser.add_argument("--save", type=Path, default=Path("tests/corpus"), metavar="FOLDER", help="where failures go")
    options = parser.parse_args(arguments)
    seed = int(time.time()) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    lines = []
    for line in fuzz(_until(60 * options.minutes), seed, options.save):
        print(line, flush=True)
        lines.append(line)
    return 1 if len(lines) > 1 else 0


if __name__ == "__main__":
    raise SystemExit(main())
