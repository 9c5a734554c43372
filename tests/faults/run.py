"""Plants each seeded fault in a process of its own and says which test finds it: ``python tests/faults/run.py``.

The tests that are to find it run first without any fault. The answer is 0 when each fault is killed, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from fault import ROOT, VARIABLE, Fault  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from table import FAULTS, PARTS  # noqa: E402

PROCESSES = 2
SECONDS = 120
"""A fault that takes longer to be found hangs."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: \S+)*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of a fault. ``killed_by`` is the test that failed, or how the process ended; None if none did."""

    fault: str
    imitates: str
    killed_by: str | None
    seconds: float


def run_tests(
    tests: Iterable[str], fault: Fault | None, seconds: float | None = None
) -> subprocess.CompletedProcess:
    """Run tests up to the first that fails, for ``seconds`` at most, in a process of its own with ``fault`` planted."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(HERE)))}
    environment.pop(VARIABLE, None)
    plugin: tuple[str, ...] = ()
    if fault is not None:
        environment[VARIABLE], plugin = fault.name, ("-p", "planted")
    command = (sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *plugin, *tests)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)


def try_fault(fault: Fault) -> Outcome:
    """Run the killers of ``fault`` one after the other until one fails."""
    start = time.perf_counter()
    try:
        ran = run_tests(fault.killers, fault, SECONDS)
        killed_by = _killer(ran)
    except subprocess.TimeoutExpired:
        killed_by = f"no end within {SECONDS} s"
    except RuntimeError as error:
        print(f"{fault.name}: {error}", file=sys.stderr)
        killed_by = None
    return Outcome(fault.name, fault.imitates, killed_by, time.perf_counter() - start)


def _killer(ran: subprocess.CompletedProcess) -> str | None:
    """The test that failed. A process that broke down is one that found out; one that could not begin is none."""
    if ran.returncode == 0:
        return None
    if ran.returncode < 0 or ran.returncode > 128:
        return f"signal {abs(ran.returncode)}"
    failed = _FAILED.search(ran.stdout)
    if ran.returncode != 1 or failed is None:
        raise RuntimeError(f"the tests did not run:\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}")
    return failed[1]


def check_killers(faults: Sequence[Fault]) -> None:
    """Raise RuntimeError unless all tests that are to kill a fault pass without any."""
    tests = sorted({killer for fault in faults for killer in fault.killers})
    ran = run_tests(tests, None)
    if ran.returncode:
        raise RuntimeError(f"a test fails without any fault:\n{ran.stdout[-4000:]}{ran.stderr[-2000:]}")


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """The outcomes for a terminal, survivors in red."""
    table = Table(box=None, header_style="bold")
    for name in ("fault", "what it imitates", "killed by", "seconds"):
        table.add_column(name, no_wrap=name == "fault", overflow="fold")
    for outcome in outcomes:
        style = "" if outcome.killed_by else "bold red"
        table.add_row(
            outcome.fault, outcome.imitates, outcome.killed_by or "SURVIVES", f"{outcome.seconds:.1f}", style=style
        )
    return table


def _parts(text: str) -> list[str]:
    for part in text.split(","):
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"there is no part {part!r}: choose of {', '.join(PARTS)}")
    return text.split(",")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="which faults (default: all)")
    parser.add_argument("--of", metavar="A,B", type=_parts, help="only faults of these parts, such as cuda")
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of a table")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many at once")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        parser.error(f"there is no fault {unknown[0]!r}")
    wanted = options.names or [fault.name for part in options.of or PARTS for fault in PARTS[part]]
    faults = [FAULTS[name] for name in wanted]
    start = time.perf_counter()
    check_killers(faults)
    with ThreadPoolExecutor(options.processes) as pool:
        outcomes = list(pool.map(try_fault, faults))
    survivors = [outcome.fault for outcome in outcomes if outcome.killed_by is None]
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
        return 1 if survivors else 0
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 240)
    console.print(table_of(outcomes))
    seconds = time.perf_counter() - start
    console.print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} faults killed in {seconds:.0f} s", style="bold")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
