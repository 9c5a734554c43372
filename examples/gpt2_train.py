"""Train a GPT-2 with its own tokenizer on a text file.

    python examples/gpt2_train.py --out out/nano
    python examples/gpt2_train.py --out out/nano --resume
"""

import math
import sys
from pathlib import Path

from euler_ir.optim import SCHEDULES
from models.architectures import PRESETS
from models.command_line import add_machine_options, positive
from models.language_model import OPTIMIZERS
from models.training.command_line import Parser, given, train
from models.training.memory import parse_size
from models.training.pretraining import resume_pretraining, start_pretraining
from models.training.settings import PRECISIONS, PretrainingSettings

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
SETTINGS = (
    *("corpus", "across_documents", "tokenizer", "vocab_size", "init_from", "preset", "context", "dropout", "seed"),
    *("steps", "batch_size", "accumulate", "optimizer", "learning_rate", "final_learning_rate", "warmup", "schedule"),
    *("validate_every", "patience", "keep", "on_nonfinite", "precision"),
)


def parse_arguments(arguments):
    defaults = PretrainingSettings.for_preset(str(SHAKESPEARE))
    parser = Parser(__doc__)

    data = parser.add_argument_group("what it learns from")
    data.add_argument(
        "--corpus",
        action="append",
        nargs="+",
        metavar="FILE[:WEIGHT]",
        help="a source: UTF-8 texts, token files, a folder of these, or a quoted pattern; again for each further "
        "source, which gets its weight's share of the windows (default: the Shakespeare of this repository)",
    )
    data.add_argument("--across-documents", action="store_true", default=None, help="windows run on over <|endoftext|>")
    data.add_argument("--tokenizer", help="'bpe' or 'characters', trained on the corpus, or a file (default: bpe)")
    data.add_argument("--vocab-size", type=positive, help=f"ids of a trained bpe (default: {defaults.vocab_size})")

    model = parser.add_argument_group("the model")
    model.add_argument("--preset", choices=PRESETS, help="size of the model (default: nano)")
    model.add_argument("--init-from", metavar="CHECKPOINT", help="begin with these weights, sizes and tokenizer")
    model.add_argument("--context", type=positive, help="tokens a window (default: the preset's)")
    model.add_argument("--dropout", type=float, help=f"dropout rate (default: {defaults.dropout:g})")
    model.add_argument("--seed", type=int, help=f"decides all random numbers (default: {defaults.seed})")

    steps = parser.add_argument_group("how it learns")
    steps.add_argument("--steps", type=positive, help=f"optimiser steps (default: {defaults.steps})")
    steps.add_argument("--batch-size", type=positive, help=f"windows a pass (default: {defaults.batch_size})")
    steps.add_argument("--accumulate", type=positive, help="passes a step (default: 1)")
    steps.add_argument("--memory-budget", metavar="SIZE", help="split steps to fit into 2GB, or auto: what is free")
    steps.add_argument("--optimizer", choices=OPTIMIZERS, help=f"default: {defaults.optimizer}")
    steps.add_argument("--learning-rate", type=float, help="peak learning rate (default: the preset's)")
    steps.add_argument("--final-learning-rate", type=float, help="where it ends (default: a tenth of the peak)")
    steps.add_argument("--warmup", type=int, help="steps up to the peak (default: a tenth of all, at most 100)")
    steps.add_argument("--precision", choices=PRECISIONS, help="of products and attention (default: f32)")
    steps.add_argument("--schedule", choices=SCHEDULES, help=f"from the peak down (default: {defaults.schedule})")

    run = parser.add_argument_group("the run")
    run.add_argument("--out", default="out/gpt2", help="folder of the run (default: %(default)s)")
    run.add_argument("--resume", action="store_true", help="continue the run in --out")
    run.add_argument("--validate-every", type=positive, help="steps between validations (default: a tenth of all)")
    run.add_argument("--patience", type=int, help="end after as many validations without a new best (default: never)")
    run.add_argument("--keep", type=int, help="checkpoints kept by their step, beside latest and best (default: 0)")
    run.add_argument("--on-nonfinite", choices=["stop", "skip"], help="a step with NaN or infinity (default: stop)")
    run.add_argument("--peak-gflops", type=float, help="of the machine, to tell how much of it training used (MFU)")
    add_machine_options(run)
    options = parser.parse_args(arguments)
    if options.init_from and not options.resume:
        for name in ("preset", "tokenizer", "vocab_size"):
            if getattr(options, name) is not None:
                option = "--" + name.replace("_", "-")
                parser.error(f"argument {option}: --init-from decides it; leave {option} out")
    if options.vocab_size and options.tokenizer not in (None, "bpe"):
        parser.error("argument --vocab-size: only for a bpe that is trained on the corpus; leave it out")
    if options.peak_gflops is not None and not 0 < options.peak_gflops < math.inf:
        parser.error(f"argument --peak-gflops: must be above 0, not {options.peak_gflops}")
    return options


def open_run(options):
    asked = given(options, SETTINGS)
    budget = parse_size(options.memory_budget) if options.memory_budget else None
    if options.resume:
        run = resume_pretraining(options.out, asked, options.device, options.threads, budget)
    else:
        settings = PretrainingSettings.for_preset(**{"corpus": str(SHAKESPEARE), **asked})
        run = start_pretraining(options.out, settings, options.device, options.threads, budget)
    run.peak_flops = options.peak_gflops and options.peak_gflops * 1e9
    return run


def main(arguments=None):
    """Exit status: that of `train`."""
    return train("gpt2_train.py", open_run, parse_arguments(arguments))


if __name__ == "__main__":
    sys.exit(main())
