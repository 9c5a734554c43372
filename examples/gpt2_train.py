"""Train a GPT-2 with its own tokenizer on a text file.

    python examples/gpt2_train.py --out out/nano
    python examples/gpt2_train.py --out out/nano --resume
"""

import argparse
import sys
from pathlib import Path

import euler_ir as ei
from models.architectures import PRESETS
from models.training.pretraining import resume_pretraining, start_pretraining
from models.training.settings import PretrainingSettings
from models.training.trainer import Diverged

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
SETTINGS = (
    *("corpus", "preset", "steps", "batch_size", "context", "accumulate"),
    *("vocab_size", "learning_rate", "dropout", "validate_every", "seed"),
)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def positive(text):
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def parse_arguments(arguments):
    defaults = PretrainingSettings.for_preset(str(SHAKESPEARE))
    parser = Parser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--corpus", help="UTF-8 text to learn from (default: the Shakespeare of this repository)")
    parser.add_argument("--preset", choices=PRESETS, help="size of the model (default: nano)")
    parser.add_argument("--steps", type=positive, help=f"optimiser steps (default: {defaults.steps})")
    parser.add_argument("--batch-size", type=positive, help=f"windows a pass (default: {defaults.batch_size})")
    parser.add_argument("--context", type=positive, help="tokens a window (default: the preset's)")
    parser.add_argument("--accumulate", type=positive, help="passes a step (default: 1)")
    parser.add_argument("--vocab-size", type=positive, help=f"ids of the tokenizer (default: {defaults.vocab_size})")
    parser.add_argument("--learning-rate", type=float, help="peak learning rate (default: the preset's)")
    parser.add_argument("--dropout", type=float, help=f"dropout rate (default: {defaults.dropout:g})")
    parser.add_argument("--validate-every", type=positive, help="steps from one validation and checkpoint to the next")
    parser.add_argument("--seed", type=int, help=f"decides all random numbers (default: {defaults.seed})")
    parser.add_argument("--out", default="out/gpt2", help="folder of the run (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument("--device", choices=["cpu", "cuda", "reference"], default="cpu", help="default: %(default)s")
    parser.add_argument("--threads", type=positive, help="CPU threads (default: all cores)")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        parser.error("argument --device: there is no CUDA backend in this version; run with --device cpu")
    return options


def open_run(options):
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    if options.resume:
        return resume_pretraining(options.out, given, options.device, options.threads)
    settings = PretrainingSettings.for_preset(**{"corpus": str(SHAKESPEARE), **given})
    return start_pretraining(options.out, settings, options.device, options.threads)


def main(arguments=None):
    """Exit status: 0 done, 1 training or writing failed, 2 wrong use, 128 + n stopped by signal n."""
    options = parse_arguments(arguments)
    sys.stdout.reconfigure(errors="replace")
    try:
        run = open_run(options)
    except (ValueError, OSError, ei.EulerError) as error:
        print(f"gpt2_train.py: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped before the first step; there is nothing to resume.", file=sys.stderr)
        return 130
    print(run.task.description())
    try:
        stopped_by = run.train(options.steps)
    except (Diverged, OSError, ei.EulerError) as error:
        print(f"gpt2_train.py: error: {error}", file=sys.stderr)
        return 1
    print(run.summary())
    if stopped_by:
        print(f"Stopped by {stopped_by.name}. Continue with: {sys.executable} {sys.argv[0]} --out {options.out} --resume")
        return 128 + stopped_by
    return 0


if __name__ == "__main__":
    sys.exit(main())
