"""The memory of a process that trains: what the plan says before the run, and what it took."""

from benchmarks.peers import BASELINE
from benchmarks.report import Table, number
from benchmarks.train import training
from benchmarks.workload import WORKLOADS

PEERS = ("torch", "torch-compile", "jax")
DEFAULT_PEERS = ("torch",)
PARTS = tuple(WORKLOADS)
ROUNDS = 1


def measure(parts, peers, threads, rounds):
    """One result a workload: each peer's peak after its first steps and ``rounds`` more, and what euler_ir planned."""
    results = []
    for part in parts:
        with training(WORKLOADS[part], peers, threads) as (remotes, _):
            measured = {}
            for remote in remotes:
                remote.call("run", rounds)
                measured[remote.name] = remote.call("memory")
        results.append({"part": part, "peers": measured})
    return results


def tables(results, ceilings):
    """What was planned against what is possible, and what the processes took."""
    return [_planned(results), _taken(results)]


def _planned(results):
    rows = []
    for result in results:
        planned = result["peers"][BASELINE]["planned"]
        total, arena, least = (planned[name] / 2**20 for name in ("total", "arena", "least_arena"))
        peak = result["peers"][BASELINE]["peak_mib"]
        excess = f"{arena / least if least else 1:.3f}"
        rows.append((result["part"], number(arena), number(least), excess, *map(number, (total, peak, peak - total))))
    columns = (
        "workload",
        "arena MiB",
        "lower bound MiB",
        "arena / bound",
        "known before the run MiB",
        "peak of the process MiB",
        "beyond it MiB",
    )
    note = (
        "Known before the run: parameters, moments, inputs, outputs, the arena of all intermediate tensors, and the "
        "threads' scratch memory. Beyond it: Python, numpy, LLVM and the compiler's data; the peak includes compiling."
    )
    return Table("Memory of euler_ir, planned and taken", columns, tuple(rows), note)


def _taken(results):
    peers = list(dict.fromkeys(peer for result in results for peer in result["peers"]))
    rows = []
    for result in results:
        mine = result["peers"][BASELINE]["peak_mib"]
        cells = [result["part"], number(mine)]
        for peer in peers[1:]:
            peak = result["peers"][peer]["peak_mib"]
            cells += [number(peak), f"{mine / peak:.2f}"]
        rows.append(tuple(cells))
    columns = ["workload", "euler_ir MiB"]
    for peer in peers[1:]:
        columns += [f"{peer} MiB", f"euler_ir / {peer}"]
    return Table("Peak memory of the process", tuple(columns), tuple(rows))
