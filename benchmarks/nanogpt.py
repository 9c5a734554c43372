"""nanoGPT's setting for a CPU: a GPT-2 of characters learns Shakespeare, from the start to the end of its program.

4 layers, 4 heads, width 128, no biases, context 64, batch 12, 2,000 steps of AdamW, no dropout, f32, and every 250
steps both losses on 20 batches; once at nanoGPT's learning rate, 1e-3 to 1e-4, and once at four times that. All begin
with the same weights and see the same batches. torch's model and loop are written after nanoGPT's, with the fused AdamW
that torch has for CPUs since. The text is this repository's Shakespeare, which has the layout of nanoGPT's but holds
other plays.
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import nanogpt_run
from benchmarks.compile import CACHES
from benchmarks.peers import BASELINE
from benchmarks.remote import run_alone
from benchmarks.report import Table, number, spread
from benchmarks.timing import ratio, summary
from benchmarks.train import check_losses

PEERS = ("torch", "torch-compile")
DEFAULT_PEERS = PEERS
PARTS = tuple(nanogpt_run.PEAK_RATES)
ROUNDS = 3

CORPUS = Path(__file__).parents[1] / "models" / "corpora" / "shakespeare.txt"


def measure(parts, peers, threads, rounds):
    """One result a part: for each peer its seconds, compiling included, and the losses it reached."""
    with tempfile.TemporaryDirectory() as folder:
        tokens, weights = Path(folder) / "tokens.npz", Path(folder) / "weights.npz"
        _prepare(tokens, weights)
        return [_measured(part, (BASELINE, *peers), tokens, weights, threads, rounds) for part in parts]


def _measured(part, names, tokens, weights, threads, rounds):
    runs = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            runs[name].append(_run(name, tokens, weights, part, turn, threads))
        for name in names:
            check_losses(name, runs[name][-1]["losses"], runs[BASELINE][-1]["losses"])
    seconds = {name: [[run["seconds"]] for run in of_peer] for name, of_peer in runs.items()}
    peers = {
        name: {
            "seconds": summary(seconds[name]),
            "time_ratio": ratio(seconds[name], seconds[BASELINE]),
            "processor_seconds": summary([[run["processor_seconds"] for run in of_peer]]),
            "first_step_seconds": summary([[run["first_step_seconds"] for run in of_peer]]),
            "estimate": summary([[run["estimates"][-1]["validation"] for run in of_peer]]),
            "validation": summary([[run["validation"] for run in of_peer]]),
            "estimates": [run["estimates"] for run in of_peer],
        }
        for name, of_peer in runs.items()
    }
    return {"part": part, "tokens": nanogpt_run.STEPS * nanogpt_run.BATCH * nanogpt_run.CONTEXT, "peers": peers}


def _prepare(tokens, weights):
    """Write the ids of the text's characters and the first weights."""
    from benchmarks.euler_gpt2 import first_state, step_graph
    from models.data.corpus import read_corpus, split_corpus
    from models.tokenizer.characters import CharacterTokenizer

    text = read_corpus(CORPUS)
    tokenizer = CharacterTokenizer.train(text)
    train, validation = (tokenizer.encode_to_numpy(part) for part in split_corpus(text))
    np.savez(tokens, train=train, validation=validation, vocab_size=tokenizer.vocab_size)
    first_state(step_graph(nanogpt_run.workload(tokenizer.vocab_size)), weights)


def _run(peer, tokens, weights, rate, seed, threads):
    """What one run gives, with the seconds from the start of its process to the first step and to the end."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **dict.fromkeys(CACHES, cache)}
        start, used = time.clock_gettime_ns(time.CLOCK_MONOTONIC), _processor_seconds()
        given = peer, tokens, weights, rate, seed, threads
        found = run_alone(peer, "nanogpt_run", *given, environment=environment)
    return found | {
        "first_step_seconds": (found["first"] - start) / 1e9,
        "seconds": (found["finished"] - start) / 1e9,
        "processor_seconds": _processor_seconds() - used,
    }


def _processor_seconds():
    """Those of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tables(results, ceilings):
    """One table."""
    return [_table(result) for result in results]


def _table(result):
    rows = [
        (
            peer,
            spread(one["seconds"]),
            f"{one['time_ratio']:.2f}",
            number(result["tokens"] / one["seconds"]["median"]),
            spread(one["processor_seconds"]),
            spread(one["first_step_seconds"], 2),
            spread(one["estimate"], 4),
            spread(one["validation"], 4),
        )
        for peer, one in result["peers"].items()
    ]
    columns = (
        "peer",
        "s in all",
        "times euler_ir's",
        "tokens/s",
        "processor s",
        "s to the first step",
        "validation loss, 20 batches",
        "validation loss, all text",
    )
    rate = nanogpt_run.PEAK_RATES[result["part"]]
    steps = f"{result['tokens']:,} characters in {nanogpt_run.STEPS} steps"
    title = f"{result['part']}: {steps}, at a rate of up to {rate:g}"
    note = (
        "Seconds are from the start of Python to the last estimate of the loss, compiling without a cache included; "
        "those of processors, of all threads, count neither what waits nor other programs. "
        "nanoGPT's documentation gives 1.88 and about 3 minutes for this setting, on Tiny Shakespeare and a laptop."
    )
    return Table(title, columns, tuple(rows), note)
