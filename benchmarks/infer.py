"""Greedy decoding with a GPT-2, one sequence, keys and values cached: the time of a token after a prompt.

Each token is one call from Python, the choice of the likeliest included. What a token must read at least is every
parameter but the position embedding, once. Peers compute in f32; euler_ir also from narrower weights. `texts` is the
whole way to text, with sampling, a repetition penalty and the decoding of tokens, for one text and for several at once.
"""

import contextlib
import importlib
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.kernels import some_elements
from benchmarks.peers import BASELINE
from benchmarks.remote import PeerError, Remote, take_turns
from benchmarks.report import Table, number, percent, spread
from benchmarks.timing import ratio, summary, timed_ms
from benchmarks.workload import WORKLOADS

PEERS = ("torch", "jax")
DEFAULT_PEERS = ("torch",)
PARTS = ("small", "124M", "texts")
ROUNDS = 5

_SIZES = {"small": WORKLOADS["small"], "124M": WORKLOADS["124M-T256"]}
PROMPT, WINDOW, TOKENS = 128, 256, 64
_TEXTS_OF, BATCHES = "124M", (1, 4, 16)
FORCED = 4
# In units of the root mean square of the logits.
TOLERANCE = 1e-3

# By name: where the decoder is, and the bytes of a weight.
_DECODERS = {
    BASELINE: ("benchmarks.euler_decode", "EulerDecoder", 4),
    "euler_ir, bf16 weights": ("benchmarks.euler_decode", "HalfEulerDecoder", 2),
    "euler_ir, i8 weights": ("benchmarks.euler_decode", "ByteEulerDecoder", 1),
    "torch": ("benchmarks.torch_decode", "TorchDecoder", 4),
    "jax": ("benchmarks.jax_decode", "JaxDecoder", 4),
}
OWN = tuple(name for name in _DECODERS if name.startswith(BASELINE))


class Decoding:
    """Decoding by one peer, in its own process. euler_ir writes the weights, the others read them."""

    def __init__(self, peer, workload, weights, threads):
        module, name, _ = _DECODERS[peer]
        self._decoder = getattr(importlib.import_module(module), name)(workload, weights, threads, WINDOW)
        self._text = np.random.default_rng(0).integers(0, workload.vocab_size, PROMPT + FORCED).astype(np.int32)

    def begin(self):
        """Elements of the logits after the prompt, and after each of FORCED tokens that follow it."""
        logits = [self._prompt(), *map(self._decoder.next, self._text[PROMPT:].tolist())]
        return [some_elements(each) for each in logits]

    def prompt(self):
        """Milliseconds of a reading of the prompt."""
        return timed_ms(self._prompt, 1)

    def run(self):
        """Milliseconds of each of TOKENS tokens after the prompt."""
        self._token = int(np.argmax(self._prompt()))
        return timed_ms(self._next, TOKENS)

    def text(self, batch):
        """Milliseconds of a step in which `batch` texts are drawn together, in a list."""
        return [self._decoder.text_ms(batch, PROMPT, TOKENS)]

    def _prompt(self):
        return self._decoder.begin(self._text[:PROMPT])

    def _next(self):
        self._token = int(np.argmax(self._decoder.next(self._token)))


def check_logits(peer, found, expected):
    """Raise PeerError unless the logits ``found`` are those ``expected``, up to the rounding of f32."""
    for position, ((mine, _), (wanted, scale)) in enumerate(zip(found, expected, strict=True)):
        if not np.all(np.abs(mine - wanted) <= TOLERANCE * scale):
            raise PeerError(f"{peer} computes something else: logits {position} after the prompt are not euler_ir's.")


def measure(parts, peers, threads, rounds):
    """One result a size: for each peer, and for each kind of weights, the times of a token and of the prompt.

    For the part `texts`: for each kind of weights the times of a step by the number of texts.
    """
    results = []
    for part in parts:
        if part == "texts":
            results.append({"part": part, "peers": _measure_texts(_SIZES[_TEXTS_OF], threads, rounds)})
            continue
        workload = _SIZES[part]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            weights = Path(folder) / "weights.npz"
            remotes, begun = [], {}
            for peer in (*OWN, *peers):
                remotes.append(stack.enter_context(Remote(peer, Decoding, peer, workload, weights, threads)))
                begun[peer] = remotes[-1].call("begin")
                # Rounded weights are other weights.
                if peer not in OWN:
                    check_logits(peer, begun[peer], begun[BASELINE])
            tokens, prompts = take_turns(remotes, rounds, "run"), take_turns(remotes, rounds, "prompt")
        measured = {
            name: {
                "token_ms": summary(of_name),
                "time_ratio": ratio(of_name, tokens[BASELINE]),
                "prompt_ms": summary(prompts[name]),
                "weight_bytes": _DECODERS[name][2] * workload.parameters,
            }
            for name, of_name in tokens.items()
        }
        results.append({"part": part, "peers": measured})
    return results


def _measure_texts(workload, threads, rounds):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        weights = Path(folder) / "weights.npz"
        remotes = [stack.enter_context(Remote(peer, Decoding, peer, workload, weights, threads)) for peer in OWN]
        measured = {name: {"weight_bytes": _DECODERS[name][2] * workload.parameters, "step_ms": {}} for name in OWN}
        for batch in BATCHES:
            take_turns(remotes, 1, "text", batch)
            for name, of_name in take_turns(remotes, rounds, "text", batch).items():
                measured[name]["step_ms"][str(batch)] = summary(of_name)
    return measured


def tables(results, ceilings):
    """One table a size, and one of texts."""
    return [(_texts_table if result["part"] == "texts" else _table)(result, ceilings) for result in results]


def _texts_table(result, ceilings):
    rows = []
    for peer, one in result["peers"].items():
        for batch, times in one["step_ms"].items():
            rate = one["weight_bytes"] / times["median"] / 1e6
            tokens = number(int(batch) * 1e3 / times["median"])
            rows.append((peer, batch, spread(times), tokens, number(rate), percent(rate / ceilings["read"])))
    columns = ("weights", "texts", "ms a step", "tokens/s", "GB/s of weights", "of read ceiling")
    note = "Repetition penalty, top_k 50, top_p 0.95, streaming of whole characters; after prompts of 128 tokens."
    return Table(f"{_TEXTS_OF}: texts drawn together, each by a token a step", columns, tuple(rows), note)


def _table(result, ceilings):
    rows = []
    for peer, one in result["peers"].items():
        rate = one["weight_bytes"] / one["token_ms"]["median"] / 1e6
        cells = (spread(one["token_ms"]), f"{one['time_ratio']:.2f}", number(rate), percent(rate / ceilings["read"]))
        rows.append((peer, number(one["weight_bytes"] / 1e6), *cells, spread(one["prompt_ms"])))
    columns = (
        "peer",
        "weights MB",
        "ms a token",
        "times euler_ir's",
        "GB/s",
        "of read ceiling",
        f"prompt of {PROMPT} tokens, ms",
    )
    note = f"In f32 the logits of {FORCED + 1} positions agree. Scales of i8 weights are not counted in MB."
    return Table(f"{result['part']}: greedy decoding after {PROMPT} tokens", columns, tuple(rows), note)
