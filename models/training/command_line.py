"""What the command lines of all kinds of training have in common."""

import argparse
import sys

import euler_ir as ei
from models.command_line import INTERRUPTED, add_machine_options, positive, reader_gone
from models.training.settings import PRECISIONS
from models.training.trainer import Diverged

COMMON = (
    *("steps", "batch_size", "context", "accumulate", "learning_rate", "dropout", "precision"),
    *("validate_every", "seed"),
)
"""Settings that `Parser.add_common` has options for."""


class Parser(argparse.ArgumentParser):
    """One line says what was wrong; options are not abbreviated."""

    def __init__(self, doc):
        super().__init__(description=doc.splitlines()[0], allow_abbrev=False)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")

    def add_common(self, settings, out, learning_rate):
        """Options of COMMON, with the defaults of a class of settings, of the folder of a run, and of the machine."""
        self.add_argument("--steps", type=positive, help=f"optimiser steps (default: {settings.steps})")
        self.add_argument("--batch-size", type=positive, help=f"rows a pass (default: {settings.batch_size})")
        self.add_argument("--context", type=positive, help="tokens a row (default: the model's)")
        self.add_argument("--accumulate", type=positive, help="passes a step (default: 1)")
        self.add_argument("--learning-rate", type=float, help=f"peak learning rate (default: {learning_rate})")
        self.add_argument("--dropout", type=float, help="dropout rate (default: 0)")
        self.add_argument("--validate-every", type=positive, help="steps between validations (default: a fifth of all)")
        self.add_argument("--seed", type=int, help="decides all random numbers (default: 0)")
        self.add_argument("--out", default=out, help="folder of the run (default: %(default)s)")
        self.add_argument("--resume", action="store_true", help="continue the run in --out")
        self.add_argument("--precision", choices=PRECISIONS, help="of products and attention (default: f32)")
        add_machine_options(self)


def given(options, names):
    """{name: value} of those settings that the user asked for."""
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def train(program, open_run, options):
    """Open a run and train it: what a training program's `main` does after its arguments.

    Exit status: 0 done, 1 training or writing failed, 2 wrong use, 128 + n stopped by signal n, 141 when whoever read
    stdout is gone.
    """
    sys.stdout.reconfigure(errors="replace")
    try:
        run = open_run(options)
    except (ValueError, OSError, MemoryError, ei.EulerError) as error:
        print(f"{program}: error: {_in_words(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Stopped before the first step; there is nothing to resume.", file=sys.stderr)
        return INTERRUPTED
    try:
        print(run.task.description(), flush=True)
        stopped_by = run.train(options.steps)
        print(run.summary(), flush=True)
    except BrokenPipeError:
        return reader_gone()
    except (Diverged, ValueError, OSError, MemoryError, ei.EulerError) as error:
        print(f"{program}: error: {_in_words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped at once; the steps since the last checkpoint are lost.", file=sys.stderr)
        return INTERRUPTED
    if stopped_by:
        command = f"{sys.executable} {sys.argv[0]} --out {options.out} --resume"
        print(f"Stopped by {stopped_by.name}. Continue with: {command}")
        return 128 + stopped_by
    return 0


def _in_words(error):
    if isinstance(error, MemoryError):
        return f"There is not enough memory. {error or ''}".rstrip() + " Use a smaller --batch-size or --context."
    return str(error)
