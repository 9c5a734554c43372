"""A full training step of GPT-2 in f32: forward, backward, clipping, AdamW; the same weights and tokens for all."""

import contextlib
import dataclasses
import tempfile
import time
from pathlib import Path

from benchmarks.peers import BASELINE, training_step
from benchmarks.remote import PeerError, Remote, resident_mib, take_turns
from benchmarks.report import Table, number, percent, spread
from benchmarks.timing import ratio, summary, timed_ms
from benchmarks.workload import WORKLOADS

PEERS = ("torch", "torch-compile", "jax")
DEFAULT_PEERS = ("torch",)
PARTS = tuple(WORKLOADS)
ROUNDS = 5

CHECKED_STEPS = 3
BATCHES = 4
# Sums in another order move a loss near 6 by some units in the last of its 24 bits; what is wrong moves it by far more.
LOSS_TOLERANCE = 1e-5
# A turn is as many steps as make about this much work, and at least one.
GFLOP_A_TURN = 300


class Training:
    """The training of a Workload by one peer, in its own process. euler_ir writes the weights, the others read them."""

    def __init__(self, peer, workload, weights, threads):
        self._begun_mib = resident_mib("VmRSS")
        start = time.perf_counter()
        self._trainer = training_step(peer)(workload, weights, threads)
        self._build_seconds = time.perf_counter() - start
        self._inputs = [self._trainer.prepare(*batch) for batch in workload.batches(BATCHES)]
        self._number = 0
        self._losses = []

    def begin(self):
        """Take the first steps: the seconds to build the step and for the first one, and their losses."""
        milliseconds = timed_ms(self._step, CHECKED_STEPS)
        return {
            "build_seconds": self._build_seconds,
            "first_step_seconds": milliseconds[0] / 1e3,
            "losses": self._losses[:CHECKED_STEPS],
        }

    def run(self, steps):
        """Milliseconds of each of the next steps."""
        return timed_ms(self._step, steps)

    def memory(self):
        """Mebibytes of this process, before it imported its framework and at most, and the plan where there is one."""
        planned = self._trainer.planned() if hasattr(self._trainer, "planned") else None
        return {"begun_mib": self._begun_mib, "peak_mib": resident_mib("VmHWM"), "planned": planned}

    def _step(self):
        self._losses.append(self._trainer.step(self._inputs[self._number % BATCHES]))
        self._number += 1


@contextlib.contextmanager
def training(workload, peers, threads):
    """A Remote Training of euler_ir and of each of ``peers``, with what its first steps gave.

    Raises PeerError when one fails, or when its first losses are not euler_ir's.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        weights = Path(folder) / "weights.npz"
        remotes, begun = [], {}
        for peer in (BASELINE, *peers):
            remotes.append(stack.enter_context(Remote(peer, Training, peer, workload, weights, threads)))
            begun[peer] = remotes[-1].call("begin")
            check_losses(peer, begun[peer]["losses"], begun[BASELINE]["losses"])
        yield remotes, begun


def check_losses(peer, losses, expected):
    """Raise PeerError unless `losses` are `expected` up to the rounding of f32."""
    for step, (loss, wanted) in enumerate(zip(losses, expected, strict=True), start=1):
        if not abs(loss - wanted) <= LOSS_TOLERANCE * abs(wanted):
            raise PeerError(f"{peer} computes something else: its loss of step {step} is {loss}, not {wanted}.")


def measure(parts, peers, threads, rounds):
    """One result a workload: for each peer its times, its first losses and its peak memory."""
    results = []
    for part in parts:
        workload = WORKLOADS[part]
        steps = max(1, round(GFLOP_A_TURN / workload.gflop))
        with training(workload, peers, threads) as (remotes, begun):
            rounds_of = take_turns(remotes, rounds, "run", steps)
            measured = {
                remote.name: {
                    "step_ms": summary(rounds_of[remote.name]),
                    "time_ratio": ratio(rounds_of[remote.name], rounds_of[BASELINE]),
                    "peak_mib": remote.call("memory")["peak_mib"],
                    **begun[remote.name],
                }
                for remote in remotes
            }
        sizes = {
            **dataclasses.asdict(workload),
            "tokens": workload.tokens,
            "gflop": workload.gflop,
            "causal_gflop": workload.causal_gflop,
        }
        results.append({"part": part, "workload": sizes, "peers": measured})
    return results


def tables(results, ceilings):
    """One table a workload."""
    return [_table(result, ceilings) for result in results]


def _table(result, ceilings):
    sizes = result["workload"]
    rows = []
    for peer, one in result["peers"].items():
        per_ms = 1 / one["step_ms"]["median"]
        rows.append(
            (
                peer,
                spread(one["step_ms"]),
                f"{one['time_ratio']:.2f}",
                number(1e3 * sizes["tokens"] * per_ms),
                number(1e3 * sizes["gflop"] * per_ms),
                number(1e3 * sizes["causal_gflop"] * per_ms),
                percent(1e3 * sizes["causal_gflop"] * per_ms / ceilings["fma"]),
                number(one["peak_mib"]),
                f"{one['build_seconds']:.1f}",
                f"{one['first_step_seconds']:.1f}",
            )
        )
    columns = (
        "peer",
        "ms a step",
        "times euler_ir's",
        "tokens/s",
        "GFLOP/s",
        "causal GFLOP/s",
        "of FMA ceiling",
        "peak MiB",
        "build s",
        "first step s",
    )
    losses = result["peers"][BASELINE]["losses"]
    title = (
        f"{result['part']}: {sizes['batch']} x {sizes['length']} tokens, {sizes['gflop']:.4g} GFLOP a step, "
        f"{sizes['causal_gflop']:.4g} of causal work"
    )
    note = f"Losses of steps 1 to {len(losses)} agree; the last is {losses[-1]:.4f}."
    return Table(title, columns, tuple(rows), note)
