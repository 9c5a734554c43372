"""One whole run of nanoGPT's small setting, in a process of its own: `python -m benchmarks.nanogpt_run PEER ...`.

What it is given: the peer, a file of token ids, a file of weights to begin from, one of PEAK_RATES, the seed of the
batches, the number of threads. What it prints, as JSON: the monotonic clock in nanoseconds after the first step and at
the end, the first losses, and all estimates of the loss.
"""

import json
import math
import sys
import time

import numpy as np

from benchmarks.peers import BASELINE, training_step
from benchmarks.workload import Workload
from models.data.batches import Batches, validation_windows
from models.data.sources import Source

BATCH, CONTEXT = 12, 64
STEPS, WARMUP = 2000, 100
PEAK_RATES = {"nanogpt-rate": 1e-3, "higher-rate": 4e-3}
BETAS = (0.9, 0.99)
EVALUATE_EVERY, EVALUATION_BATCHES = 250, 20
CHECKED_STEPS = 3


def workload(vocab_size):
    """The model of 0.80 million parameters (nanoGPT counts no positions), without biases, and its batches."""
    sizes = {"layers": 4, "heads": 4, "width": 128, "context": CONTEXT, "vocab_size": vocab_size}
    return Workload(**sizes, batch=BATCH, length=CONTEXT, biases=False, gelu="none")


def learning_rate(step, peak):
    """Of `step`, counted from 0: a linear warm-up to `peak`, then half a cosine to a tenth of it."""
    if step < WARMUP:
        return peak * (step + 1) / (WARMUP + 1)
    return peak * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def run(peer, tokens, weights, rate, seed, threads):
    """Train, with an estimate of both losses at every EVALUATE_EVERY steps; then score all validation text once."""
    with np.load(tokens) as arrays:
        texts = {name: arrays[name] for name in ("train", "validation")}
        vocab_size = int(arrays["vocab_size"])
    # euler_ir begins with weights of its own, which are those of the file.
    begin = None if peer == BASELINE else weights
    step = training_step(peer)(workload(vocab_size), begin, threads, BETAS)
    sources = {name: [Source(name, [text])] for name, text in texts.items()}
    training = Batches(sources["train"], BATCH, CONTEXT, seed)
    samples = {name: Batches(source, BATCH, CONTEXT, seed, EVALUATION_BATCHES) for name, source in sources.items()}
    losses, estimates, first = [], [], None
    for number in range(STEPS + 1):
        if number % EVALUATE_EVERY == 0:
            # Batches of steps that are never trained on.
            drawn = [(STEPS + number, batch) for batch in range(EVALUATION_BATCHES)]
            means = {
                name: float(np.mean([step.loss(step.prepare(*sample.batch(*each))) for each in drawn]))
                for name, sample in samples.items()
            }
            estimates.append({"step": number, **means})
        if number < STEPS:
            inputs = step.prepare(*training.batch(number))
            losses.append(step.step(step.at_rate(inputs, learning_rate(number, PEAK_RATES[rate]))))
            first = first or _now()
    finished = _now()
    whole = validation_windows(texts["validation"], CONTEXT, BATCH)[:-1]
    return {
        "first": first,
        "finished": finished,
        "losses": losses[:CHECKED_STEPS],
        "estimates": estimates,
        "validation": float(np.mean([step.loss(step.prepare(*each)) for each in whole])),
    }


def _now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:5], *map(int, sys.argv[5:]))))
