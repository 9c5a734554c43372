"""Byte-level BPE tokenizers: learning 32,000 ids from a text, encoding with them, and encoding whole files.

All peers cut text by GPT-2's rule and learn the same merges, and they give the same ids. They get the text in documents
of about 64 KB, cut where no piece crosses; euler_ir gets it in one.
"""

import contextlib
import tempfile
from pathlib import Path

from benchmarks.arguments import count
from benchmarks.peers import BASELINE
from benchmarks.remote import PeerError, Remote, take_turns
from benchmarks.report import Table, number, spread
from benchmarks.timing import ratio, summary
from benchmarks.tokenizer_corpus import corpus_of
from benchmarks.tokenizer_peers import ENCODED, VOCABULARY, TokenizerPeer

PEERS = ("tiktoken", "tokenizers", "rustbpe")
DEFAULT_PEERS = PEERS
PARTS = ("train", "encode", "files")
ROUNDS = 3
OPTIONS = {
    "corpus": {"type": Path, "metavar": "FILE", "help": "a UTF-8 text (default: Shakespeare, then Python's sources)"},
    "megabytes": {"type": count, "default": 100, "help": "to learn from, and to encode as a file (default: 100)"},
}

_ABLE = {"train": ("tokenizers", "rustbpe"), "encode": ("tiktoken", "tokenizers"), "files": ()}


def measure(parts, peers, threads, rounds, corpus=None, megabytes=100):
    """One result a part: for each peer that can do it the milliseconds, and for learning the peak memory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        text, description = corpus_of(corpus, megabytes * 1_000_000)
        source = Path(folder) / "corpus.txt"
        source.write_bytes(text)
        vocabulary = Path(folder) / "tokenizer.json"

        def start(peer, threads):
            return stack.enter_context(Remote(peer, TokenizerPeer, peer, source, vocabulary, threads))

        start(BASELINE, threads).call("write_vocabulary")
        results = []
        for part in parts:
            able = (BASELINE, *(peer for peer in peers if peer in _ABLE[part]))
            # Encoding is compared on one thread, and files with all of them.
            remotes = [start(peer, 1 if part == "encode" else threads) for peer in able]
            measured = _MEASURES[part](remotes, rounds)
            size = len(text) // (ENCODED if part == "encode" else 1)
            results.append({"part": part, "corpus": description, "bytes": size, "peers": measured})
        return results


def _measure_training(remotes, rounds):
    idle = {remote.name: remote.call("resident", "VmRSS") for remote in remotes}
    taken = take_turns(remotes, rounds, "train")
    peak = {remote.name: remote.call("resident", "VmHWM") for remote in remotes}
    ours, *others = remotes
    for other in others:
        if other.call("learned") != ours.call("learned", other.name):
            raise PeerError(f"{other.name} computes something else: its merges are not euler_ir's.")
    return {
        remote.name: _row(taken, remote.name) | {"peak_mib": peak[remote.name], "idle_mib": idle[remote.name]}
        for remote in remotes
    }


def _measure_encoding(remotes, rounds):
    ours, *others = remotes
    expected = ours.call("digest")
    for other in others:
        if other.call("digest") != expected:
            raise PeerError(f"{other.name} computes something else: its ids are not euler_ir's.")
    cold, warm = take_turns(remotes, rounds, "encode", True), take_turns(remotes, rounds, "encode", False)
    return {remote.name: _row(cold, remote.name) | {"again": _row(warm, remote.name)} for remote in remotes}


def _measure_files(remotes, rounds):
    (ours,) = remotes
    return {
        name: {"ms": summary([ours.call("encode_file", threads) for _ in range(rounds)])}
        for name, threads in (("one thread", 1), ("all threads", None))
    }


_MEASURES = {"train": _measure_training, "encode": _measure_encoding, "files": _measure_files}


def _row(taken, name):
    return {"ms": summary(taken[name]), "time_ratio": ratio(taken[name], taken[BASELINE])}


def tables(results, ceilings):
    """One table a part."""
    return [_TABLES[result["part"]](result) for result in results]


def _rate(result, one):
    return number(result["bytes"] / one["ms"]["median"] / 1e3)


def _training_table(result):
    rows = [
        (
            peer,
            spread(_in_seconds(one["ms"])),
            f"{one['time_ratio']:.2f}",
            _rate(result, one),
            number(one["peak_mib"]),
            number(one["idle_mib"]),
        )
        for peer, one in result["peers"].items()
    ]
    columns = ("peer", "s", "times euler_ir's", "MB/s", "peak MiB", "of it before, with the text, MiB")
    title = f"Learning {VOCABULARY} ids from {result['bytes'] / 1e6:.3g} MB"
    return Table(title, columns, tuple(rows), f"The same merges. The text: {result['corpus']}.")


def _encoding_table(result):
    rows = [
        (
            peer,
            spread(one["ms"]),
            f"{one['time_ratio']:.2f}",
            _rate(result, one),
            _rate(result, one["again"]),
            f"{one['again']['time_ratio']:.2f}",
        )
        for peer, one in result["peers"].items()
    ]
    columns = ("peer", "ms", "times euler_ir's", "MB/s", "again MB/s", "again, times euler_ir's")
    title = f"Encoding {result['bytes'] / 1e6:.3g} MB on one thread, with {VOCABULARY} ids"
    note = "The same ids. Again: with what the tokenizer remembers of the first time."
    return Table(title, columns, tuple(rows), note)


def _files_table(result):
    rows = [(name, spread(one["ms"]), _rate(result, one)) for name, one in result["peers"].items()]
    return Table(f"A file of {result['bytes'] / 1e6:.3g} MB to a token file", ("euler_ir", "ms", "MB/s"), tuple(rows))


_TABLES = {"train": _training_table, "encode": _encoding_table, "files": _files_table}


def _in_seconds(times):
    return {key: value / 1e3 if key != "samples" else value for key, value in times.items()}
