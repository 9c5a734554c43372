"""Single kernels at GPT-2's sizes in f32: products, attention, rows, loss, AdamW, embedding."""

import contextlib
import dataclasses
import importlib
import time

import numpy as np

from benchmarks import kernel_cases
from benchmarks.peers import BASELINE
from benchmarks.remote import PeerError, Remote, take_turns
from benchmarks.report import Table, number, percent, spread
from benchmarks.timing import ratio, summary, timed_ms

PEERS = ("torch", "torch-compile", "jax", "numpy")
DEFAULT_PEERS = ("torch", "numpy")
PARTS = kernel_cases.PARTS
ROUNDS = 5

# A turn is as many calls as take about this long, within bounds.
TURN_SECONDS = 0.1
MOST_CALLS = 200
# Of each result so many elements are compared, in units of its root mean square.
COMPARED = 1000
TOLERANCE = 1e-3

# Not a peer: what fusing gains.
IN_TWO = "euler_ir in two"

_MODULES = {
    BASELINE: ("benchmarks.euler_kernels", "prepare"),
    IN_TWO: ("benchmarks.euler_kernels", "prepare_in_two"),
    "torch": ("benchmarks.torch_kernels", "prepare"),
    "torch-compile": ("benchmarks.torch_kernels", "prepare_compiled"),
    "jax": ("benchmarks.jax_kernels", "prepare"),
    "numpy": ("benchmarks.numpy_kernels", "prepare"),
}
_TITLES = {
    "gemm": "Matrix products: rows x inner x columns; N and T say how the operands lie",
    "epilogue": "Product, bias and GELU: in one graph, and in two with the product stored between them",
    "attention": "Causal attention: batch x heads x tokens x width of a head",
    "rows": "Layer norm, softmax and GELU (tanh): rows x columns",
    "loss": "Mean cross-entropy: rows x classes; both ways with the gradient of the logits",
    "adamw": "AdamW over one tensor",
    "embedding": "Embedding: rows x table x width; scatter-add is its gradient, into zeros",
}


class Kernels:
    """The kernels of one peer, one at a time, in its own process."""

    def __init__(self, peer, threads):
        module, function = _MODULES[peer]
        self._prepare = getattr(importlib.import_module(module), function)
        self._threads = threads
        self._run = None

    def prepare(self, case):
        """Make ``case`` ready: elements of its results and the seconds of a call; None for what the peer has not."""
        self._run = None  # the memory of the case before
        prepared = self._prepare(case, self._threads)
        if prepared is None:
            return None
        self._run, results = prepared
        self._run()
        elements = [some_elements(array) for array in results()]
        self._run()
        start = time.perf_counter()
        self._run()
        return elements, time.perf_counter() - start

    def run(self, times):
        """Milliseconds of each of so many calls."""
        return timed_ms(self._run, times)


def some_elements(array):
    """About COMPARED elements, spread over all of ``array``, in f64, and the root mean square of all."""
    flat = np.ravel(array)
    scale = float(np.sqrt(np.mean(np.square(flat, dtype=np.float64))))
    return flat[:: max(1, flat.size // COMPARED)].astype(np.float64), scale


def check_results(peer, case, found, expected):
    """Raise PeerError unless the elements ``found`` are those ``expected``, up to the rounding of f32."""
    for number_, ((mine, _), (wanted, scale)) in enumerate(zip(found, expected, strict=True)):
        if mine.shape != wanted.shape or not np.all(np.abs(mine - wanted) <= TOLERANCE * scale):
            raise PeerError(f"{peer} computes something else: result {number_} of {case.name} is not euler_ir's.")


def measure(parts, peers, threads, rounds):
    """One result a kernel: for each peer that has it its times."""
    results = []
    with contextlib.ExitStack() as stack:
        remotes = [stack.enter_context(Remote(peer, Kernels, peer, threads)) for peer in (BASELINE, IN_TWO, *peers)]
        for part in parts:
            results += [_measure(case, remotes, rounds) for case in kernel_cases.cases(part)]
    return results


def _measure(case, remotes, rounds):
    prepared = {remote.name: remote.call("prepare", case) for remote in remotes}
    present = [remote for remote in remotes if prepared[remote.name] is not None]
    expected, _ = prepared[BASELINE]
    for remote in present:
        check_results(remote.name, case, prepared[remote.name][0], expected)
    slowest = max(prepared[remote.name][1] for remote in present)
    calls = min(MOST_CALLS, max(1, round(TURN_SECONDS / slowest)))
    rounds_of = take_turns(present, rounds, "run", calls)
    peers = {
        name: {"ms": summary(rounds), "time_ratio": ratio(rounds, rounds_of[BASELINE])}
        for name, rounds in rounds_of.items()
    }
    return {"part": case.part, "case": {**dataclasses.asdict(case), "name": case.name}, "peers": peers}


def tables(results, ceilings):
    """One table a part: products by their operations, the others by the bytes that they must move."""
    parts = dict.fromkeys(result["part"] for result in results)
    return [_table(part, [result for result in results if result["part"] == part], ceilings) for part in parts]


def _table(part, results, ceilings):
    counted = results[0]["case"]["flops"] > 0
    unit, ceiling = ("GFLOP/s", ceilings["fma"]) if counted else ("GB/s", ceilings["bandwidth"])
    peers = [peer for peer in dict.fromkeys(name for result in results for name in result["peers"]) if peer != BASELINE]
    rows = []
    for result in results:
        case, mine = result["case"], result["peers"][BASELINE]
        rate = case["flops" if counted else "nbytes"] / mine["ms"]["median"] / 1e6
        cells = [case["name"], spread(mine["ms"]), number(rate), percent(rate / ceiling)]
        for peer in peers:
            other = result["peers"].get(peer)
            cells += [spread(other["ms"]), f"{other['time_ratio']:.2f}"] if other else ["", ""]
        others = [other["time_ratio"] for name, other in result["peers"].items() if name not in (BASELINE, IN_TWO)]
        rows.append((*cells, f"{min(others):.2f}" if others else ""))
    columns = ["kernel", "euler_ir ms", unit, "of ceiling"]
    for peer in peers:
        columns += [f"{peer} ms", "times euler_ir's"]
    columns.append("best peer, times euler_ir's")
    return Table(_TITLES[part], tuple(columns), tuple(rows))
