"""Times one workload on several peers, each in a process of its own, in turns."""

import contextlib
import importlib.util
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

BASELINE = "euler_ir"
PEERS = ("torch", "torch-compile")
BATCHES = 4
CHECKED_STEPS = 3
# Sums in another order move a loss near 6 by some units in the last of its 24 bits; what is wrong moves it by far more.
LOSS_TOLERANCE = 1e-5
# Peers' idle threads spin for a while before they sleep.
PAUSE_SECONDS = 0.05


class PeerError(RuntimeError):
    """A peer is not installed, died, or computes something else than euler_ir."""


@dataclass(frozen=True)
class Measurement:
    """What one peer took. `step_ms` holds the milliseconds of each step, by round; the rest was taken once.

    `build_seconds` is the time until the step could be called, imports included, `first_step_seconds` that of the first
    call; `losses` are those of the first steps. `peak_rss_mb` is in units of 2^20 bytes.
    """

    peer: str
    step_ms: list[list[float]]
    build_seconds: float
    first_step_seconds: float
    losses: list[float]
    peak_rss_mb: float

    @property
    def median_ms(self):
        return statistics.median(self._all_ms())

    @property
    def fastest_ms(self):
        return min(self._all_ms())

    @property
    def slowest_ms(self):
        return max(self._all_ms())

    def ratio_to(self, other):
        """Median over the rounds of this peer's time by the other's, so that a slow round slows both."""
        rounds = zip(self.step_ms, other.step_ms, strict=True)
        return statistics.median(statistics.median(mine) / statistics.median(theirs) for mine, theirs in rounds)

    def _all_ms(self):
        return [ms for of_round in self.step_ms for ms in of_round]


def measure(workload, peers=(), threads=1, rounds=10, steps_per_round=3):
    """A Measurement of euler_ir and of each of `peers`, in this order.

    Raises PeerError when a peer is missing or fails, or when its first losses are not euler_ir's.
    """
    check_installed(peers)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        weights = Path(folder) / "weights.npz"
        processes = [stack.enter_context(_Process(peer, workload, weights, threads)) for peer in (BASELINE, *peers)]
        for process in processes[1:]:
            check_losses(process.peer, process.started["losses"], processes[0].started["losses"])
        step_ms = {process.peer: [] for process in processes}
        for turn in range(rounds):
            first = turn % len(processes)
            for process in processes[first:] + processes[:first]:
                time.sleep(PAUSE_SECONDS)
                step_ms[process.peer].append(process.run(steps_per_round))
        return [
            Measurement(process.peer, step_ms[process.peer], **process.started, peak_rss_mb=process.finish())
            for process in processes
        ]


def check_installed(peers):
    """Raise PeerError unless `peers` are known and what they import is there."""
    for peer in peers:
        if peer not in PEERS:
            raise PeerError(f"There is no peer {peer!r}. Choose of {', '.join(PEERS)}.")
        if importlib.util.find_spec("torch") is None:
            raise PeerError(f"The peer {peer!r} needs torch, which is not installed: pip install torch")


def check_losses(peer, losses, expected):
    """Raise PeerError unless `losses` are `expected` up to the rounding of f32."""
    for step, (loss, wanted) in enumerate(zip(losses, expected, strict=True), start=1):
        if not abs(loss - wanted) <= LOSS_TOLERANCE * abs(wanted):
            raise PeerError(f"{peer} computes something else: its loss of step {step} is {loss}, not {wanted}.")


class _Process:
    """A peer in its process: a context manager that ends it."""

    def __init__(self, peer, workload, weights, threads):
        self.peer = peer
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, peer, workload, weights, threads), daemon=True)
        self._process.start()
        theirs.close()
        self.started = self._receive()

    def run(self, steps):
        """Milliseconds of each of the next `steps` steps."""
        self._connection.send(steps)
        return self._receive()

    def finish(self):
        """End the steps; the peak resident memory, in MiB."""
        self._connection.send(None)
        return self._receive()

    def _receive(self):
        try:
            return self._connection.recv()
        except EOFError:
            self._process.join()
            raise PeerError(f"{self.peer} died with exit code {self._process.exitcode}; see its error above.") from None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._connection.close()
        self._process.join(timeout=0 if any(error) else 10)
        self._process.kill()
        self._process.join()


def _serve(connection, peer, workload, weights, threads):
    """The main function of a peer's process."""
    start = time.perf_counter()
    trainer = _trainer(peer, workload, weights, threads)
    build_seconds = time.perf_counter() - start
    inputs = [trainer.prepare(*batch) for batch in workload.batches(BATCHES)]
    losses, seconds = [], []
    for number in range(CHECKED_STEPS):
        start = time.perf_counter()
        losses.append(trainer.step(inputs[number % BATCHES]))
        seconds.append(time.perf_counter() - start)
    connection.send({"build_seconds": build_seconds, "first_step_seconds": seconds[0], "losses": losses})
    while (steps := connection.recv()) is not None:
        milliseconds = []
        for number in range(steps):
            start = time.perf_counter()
            trainer.step(inputs[number % BATCHES])
            milliseconds.append((time.perf_counter() - start) * 1e3)
        connection.send(milliseconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    connection.send(peak / 2**20 if sys.platform == "darwin" else peak / 2**10)


def _trainer(peer, workload, weights, threads):
    # Imported here, so that a process holds its own framework alone.
    if peer == BASELINE:
        from benchmarks.euler_gpt2 import EulerStep

        return EulerStep(workload, weights, threads)
    from benchmarks.torch_gpt2 import TorchStep

    return TorchStep(workload, weights, threads, compiled=peer == "torch-compile")
