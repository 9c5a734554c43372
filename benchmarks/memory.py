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
        planned = {place: nbytes / 2**20 for place, nbytes in result["peers"][BASELINE]["planned"].items()}
        kept = sum(nbytes for place, nbytes in planned.items() if not place.startswith("arena"))
        arena, least = planned["arena"], planned["arena_at_least"]
        in_all = kept + arena
        peak = result["peers"][BASELINE]["peak_mib"]
        cells = (kept, arena, least, in_all, peak, peak - in_all)
        rows.append((result["part"], *map(number, cells[:3]), f"{arena / least if least else 1:.3f}", *map(number, cells[3:])))
    columns = (
        "workload",
        "parameters, moments, inputs and outputs MiB",
        "arena MiB",
        "lower bound MiB",
        "arena / bound",
        "planned in all MiB",
        "peak of the process MiB",
        "beyond the plan MiB",
    )
    note = "Beyond the plan are Python, numpy, LLVM, OpenBLAS and the compiler's data; compiling is within the peak."
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
