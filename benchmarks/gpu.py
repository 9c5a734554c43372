"""Attention and training steps on a GPU, in bf16, beside torch's in the same run.

torch's attention is SDPA held to FlashAttention, its training step runs under autocast, eager or compiled.
"""

import contextlib
import dataclasses
import importlib
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.arguments import count
from benchmarks.attention_cases import CASES
from benchmarks.devices import NOT_KNOWN, in_words, utilisation
from benchmarks.peers import BASELINE
from benchmarks.remote import PeerError, Remote, take_turns
from benchmarks.report import Table, number, spread
from benchmarks.timing import ratio, summary, timed_ms
from benchmarks.workload import Workload

PEERS = ("torch", "torch-compile")
DEFAULT_PEERS = PEERS
PARTS = ("attention", "train")
ROUNDS = 5
OPTIONS = {
    "device": {"default": "cuda", "help": "cuda, cuda:1 or cuda-emulator (default: %(default)s)"},
    "batch": {"type": count, "help": "windows of a training step, fewer where memory is small (default: 32)"},
}

TRAININGS = {"124M": Workload(layers=12, heads=12, width=768, context=1024, vocab_size=50257, batch=32, length=1024)}

CALLS, WARM_UP = 20, 3
STEPS, CHECKED_STEPS, BATCHES = 10, 3, 4
RESULT_TOLERANCE = 2e-2
"""Beside the root mean square of a result; bf16 has 8 bits."""
LOSS_TOLERANCE = 1e-2

_STEPS = {
    BASELINE: ("benchmarks.euler_cuda", "CudaEulerStep"),
    "torch": ("benchmarks.torch_cuda", "CudaTorchStep"),
    "torch-compile": ("benchmarks.torch_cuda", "CompiledCudaTorchStep"),
}
_ATTENTIONS = {
    BASELINE: ("benchmarks.euler_cuda", "CudaEulerAttention"),
    "torch": ("benchmarks.torch_cuda", "CudaTorchAttention"),
}


def _made(places, peer, *arguments):
    """An object of the peer's class: a process holds its own framework alone."""
    module, name = places[peer]
    return getattr(importlib.import_module(module), name)(*arguments)


class DeviceName:
    """What a peer calls the device, in its own process."""

    def __init__(self, peer, device):
        self._found = importlib.import_module(_STEPS[peer][0]).device_name(device)

    def name(self):
        """The name and None, or None and why the peer cannot use the device."""
        return self._found


class Attention:
    """Attention by one peer, in its own process."""

    def __init__(self, peer, case, device):
        self._attention = _made(_ATTENTIONS, peer, case, device)

    def begin(self):
        """Some elements of each result, and the root mean square of it, after WARM_UP calls."""
        for _ in range(WARM_UP):
            self._attention.run()
        self._attention.wait()
        return [_some(array) for array in self._attention.results()]

    def run(self):
        """Milliseconds of a call, of CALLS in one row, in a list."""
        return [milliseconds / CALLS for milliseconds in timed_ms(self._row, 1)]

    def _row(self):
        for _ in range(CALLS):
            self._attention.run()
        self._attention.wait()


def _some(array):
    flat = array.reshape(-1)
    return flat[:: max(flat.size // 1000, 1)], float(np.sqrt(np.mean(np.square(flat, dtype=np.float64))))


class Training:
    """Training by one peer, in its own process. euler_ir writes the weights, the others read them."""

    def __init__(self, peer, workload, weights, device):
        self._step = _made(_STEPS, peer, workload, weights, device)
        self._inputs = [self._step.prepare(*batch) for batch in workload.batches(BATCHES)]
        self._losses = []

    def begin(self):
        """The losses of the first steps."""
        timed_ms(self._one, CHECKED_STEPS)
        return self._losses[:CHECKED_STEPS]

    def run(self):
        """Milliseconds of each of the next steps, reading of the loss included."""
        return timed_ms(self._one, STEPS)

    def device_mib(self):
        return self._step.device_mib()

    def _one(self):
        self._losses.append(self._step.step(self._inputs[len(self._losses) % BATCHES]))


def check_results(peer, found, expected):
    """Raise PeerError unless the results ``found`` are those ``expected``, up to the rounding of bf16."""
    for position, ((mine, _), (wanted, scale)) in enumerate(zip(found, expected, strict=True)):
        if not np.all(np.abs(mine - wanted) <= RESULT_TOLERANCE * (scale + np.abs(wanted))):
            raise PeerError(f"{peer} computes something else: result {position} of attention is not euler_ir's.")


def check_losses(peer, losses, expected):
    """Raise PeerError unless `losses` are `expected` up to the rounding of bf16."""
    for step, (loss, wanted) in enumerate(zip(losses, expected, strict=True), start=1):
        if not abs(loss - wanted) <= LOSS_TOLERANCE * abs(wanted):
            raise PeerError(f"{peer} computes something else: its loss of step {step} is {loss}, not {wanted}.")


def measure(parts, peers, threads, rounds, device, batch=None):
    """One result for each case of attention and each training, with the times of each peer, and the device's name.

    Raises PeerError, before anything is measured, when a peer cannot use the device.
    """
    name = [_name(peer, device) for peer in (BASELINE, *peers)][0]
    trainings = {
        name: workload if batch is None else dataclasses.replace(workload, batch=batch)
        for name, workload in TRAININGS.items()
    }
    results = []
    for part in parts:
        cases = CASES if part == "attention" else trainings.items()
        measure_one = _measure_attention if part == "attention" else _measure_training
        results += [{"part": part, "device": name, **measure_one(case, peers, rounds, device)} for case in cases]
    return results


def _name(peer, device):
    with Remote(peer, DeviceName, peer, device) as remote:
        name, absence = remote.call("name")
    if absence:
        raise PeerError(absence)
    return name


def _measure_attention(case, peers, rounds, device):
    with contextlib.ExitStack() as stack:
        remotes, expected = [], None
        for peer in (BASELINE, *(peer for peer in peers if peer in _ATTENTIONS)):
            remotes.append(stack.enter_context(Remote(peer, Attention, peer, case, device)))
            found = remotes[-1].call("begin")
            expected = expected or found
            check_results(peer, found, expected)
        times = take_turns(remotes, rounds, "run")
    return {"case": {"name": case.name, "gflop": case.gflop}, "peers": _measured(times)}


def _measure_training(named, peers, rounds, device):
    name, workload = named
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        weights, remotes, expected = Path(folder) / "weights.npz", [], None
        for peer in (BASELINE, *peers):
            remotes.append(stack.enter_context(Remote(peer, Training, peer, workload, weights, device)))
            found = remotes[-1].call("begin")
            expected = expected or found
            check_losses(peer, found, expected)
        measured = _measured(take_turns(remotes, rounds, "run"))
        for remote in remotes:
            measured[remote.name]["device_mib"] = remote.call("device_mib")
    sizes = {**dataclasses.asdict(workload), "name": name, "tokens": workload.tokens, "gflop": workload.gflop}
    return {"case": sizes, "losses": expected, "peers": measured}


def _measured(times):
    return {
        name: {"ms": summary(of_name), "time_ratio": ratio(of_name, times[BASELINE])} for name, of_name in times.items()
    }


def tables(results, ceilings):
    """One table of attention, and one for each training; the part of the device's peak is n/a where it is not known."""
    attention = [result for result in results if result["part"] == "attention"]
    return [
        *([_attention_table(attention)] if attention else []),
        *(_training_table(result) for result in results if result["part"] == "train"),
    ]


def _attention_table(results):
    rows = []
    for result in results:
        case = result["case"]
        for peer, one in result["peers"].items():
            tflops = case["gflop"] / one["ms"]["median"]
            used = in_words(utilisation(case["gflop"], one["ms"]["median"], result["device"]))
            ratio_to_ours = f"{one['time_ratio']:.2f}"
            rows.append((f"{case['name']}, {peer}", spread(one["ms"]), ratio_to_ours, number(tflops), used))
    columns = ("attention, causal, bf16", "ms", "times euler_ir's", "TFLOP/s", "of peak")
    title, note = f"Attention on {results[0]['device']}", "Operations are those that no mask hides."
    return Table(title, columns, tuple(rows), note)


def _training_table(result):
    case = result["case"]
    rows = []
    for peer, one in result["peers"].items():
        median, memory = one["ms"]["median"], one["device_mib"]
        rows.append(
            (
                peer,
                spread(one["ms"]),
                f"{one['time_ratio']:.2f}",
                number(1e3 * case["tokens"] / median),
                in_words(utilisation(case["gflop"], median, result["device"])),
                NOT_KNOWN if memory is None else number(memory, 4),
            )
        )
    columns = ("peer", "ms a step", "times euler_ir's", "tokens/s", "MFU", "MiB of the device")
    title = f"GPT-2 {case['name']} in bf16 on {result['device']}: {case['batch']} x {case['length']} tokens"
    losses = result["losses"]
    note = (
        "MFU counts all pairs of tokens, those that the mask hides too, as is usual. "
        f"Losses of steps 1 to {len(losses)} agree; the last is {losses[-1]:.4f}."
    )
    return Table(title, columns, tuple(rows), note)
