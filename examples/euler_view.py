"""Train GPT-2 as steps of a differential equation, in several ways, and see what each way changes.

    python examples/euler_view.py --out out/euler_view

Each variant begins from the same seed and sees the same batches, at a constant learning rate after the warm-up, so that
its loss can be compared at any point: after as many steps, as many evaluations of blocks, or as much time as another.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import euler_ir as ei
from models.command_line import add_machine_options, exit_status, positive
from models.data.corpus import read_corpus, split_corpus
from models.data.sources import Source
from models.euler_view import EulerViewConfig
from models.files import replacing
from models.tokenizer.characters import CharacterTokenizer
from models.training.command_line import Parser
from models.training.evaluation import Evaluation
from models.training.pretraining import Pretraining
from models.training.settings import PretrainingSettings
from models.training.trainer import Diverged, Trainer

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
VALIDATIONS = 12
VARIANTS = {
    "Euler, h = 1: GPT-2": {},
    "Euler, h = 1/2": {"step_size": 0.5},
    "Euler, 2 steps of 1/2 a block": {"step_size": 0.5, "sharing": 2, "layers": 2},
    "midpoint": {"method": "midpoint"},
    "Heun": {"method": "heun"},
    "RK4": {"method": "rk4"},
    "one block, Euler": {"sharing": "all"},
    "one block, RK4": {"sharing": "all", "method": "rk4"},
}
"""Options of EulerViewConfig; `layers` is how many times those of GPT-2."""

OTHER_METHODS = {
    "as trained": {},
    "2 steps of half the size": {"steps": 2},
    "4 steps of a quarter": {"steps": 4},
    "midpoint": {"method": "midpoint"},
    "RK4": {"method": "rk4"},
}
"""How a trained model is evaluated: a differential equation would give nearly the same, and better with each row."""


@dataclass
class Run:
    """What training one variant gave: losses on validation text by the steps, evaluations and seconds until then."""

    name: str
    config: EulerViewConfig
    state: ei.State
    steps: list[int]
    seconds: list[float]
    losses: list[float]

    @property
    def evaluations(self):
        """Of blocks, by one token, in forward passes of training."""
        return [step * self.config.evaluations for step in self.steps]

    def loss_at(self, measure, budget):
        """The loss when `measure`, one of the lists, reached `budget`, between two validations on a straight line."""
        return float(np.interp(budget, getattr(self, measure), self.losses))


def variant_of(config, options):
    """`config` with the options of a variant."""
    layers = config.layers * options.get("layers", 1)
    sharing = layers if options.get("sharing") == "all" else options.get("sharing", 1)
    return replace(config, **options | {"layers": layers, "sharing": sharing})


def with_other_method(config, steps=1, method=None):
    """`config`, of the same weights, with `steps` steps in place of one and another method."""
    finer = {"layers": config.layers * steps, "sharing": config.sharing * steps, "step_size": config.step_size / steps}
    return replace(config, **finer, method=method or config.method)


def train(name, config, settings, tokenizer, sources, machine):
    """Train one variant on a source for training and one for validation; a Run."""
    task = Pretraining(settings, config, tokenizer, *([source] for source in sources), *machine)
    trainer = Trainer(task)
    run = Run(name, config, trainer.state, [], [], [])
    seconds = 0.0
    for step in range(settings.steps + 1):
        if step % settings.validate_every == 0 or step == settings.steps:
            run.steps.append(step)
            run.seconds.append(seconds)
            run.losses.append(trainer.validate(step)["validation_loss"])
        if step < settings.steps:
            seconds += trainer.step(step)["seconds"]
    return run


def comparison(runs):
    """Lines of a table: every variant at the budget, of steps, evaluations and seconds, that the cheapest one used."""
    evaluations, seconds = (min(getattr(run, name)[-1] for run in runs) for name in ("evaluations", "seconds"))
    lines = [
        f"{'variant':<32}{'parameters':>11}{'evaluations':>13}{'s':>8}{'loss after':>13}{'after':>15}{'after':>10}",
        f"{'':<32}{'':>11}{'a step':>13}{'':>8}{f'{runs[0].steps[-1]} steps':>13}{f'{evaluations} eval.':>15}"
        f"{f'{seconds:.1f} s':>10}",
    ]
    for run in runs:
        count = run.config.build().parameter_count()
        lines.append(
            f"{run.name:<32}{count:>11,}{run.config.evaluations:>13}{run.seconds[-1]:>8.1f}{run.losses[-1]:>13.3f}"
            f"{run.loss_at('evaluations', evaluations):>15.3f}{run.loss_at('seconds', seconds):>10.3f}"
        )
    return lines


def losses_by_other_methods(run, settings, tokenizer, validation, machine):
    """(how it was evaluated, loss) of a trained model."""
    for name, options in OTHER_METHODS.items():
        config = with_other_method(run.config, **options)
        backend, threads = machine
        evaluation = Evaluation(config, tokenizer, settings.batch_size, settings.context, None, backend, threads)
        yield name, evaluation.of(run.state, validation.pieces).loss


def draw(runs, path):
    """Draw the losses over evaluations and over seconds into a PNG. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, sharey=True)
    for place, (measure, label) in zip(
        axes, (("steps", "steps"), ("evaluations", "evaluations of a block"), ("seconds", "seconds of training"))
    ):
        for run in runs:
            place.plot(getattr(run, measure)[1:], run.losses[1:], marker="o", ms=3, lw=1, label=run.name)
        place.set(xlabel=label)
        place.grid(alpha=0.3)
    axes[0].set(ylabel="validation loss (nats per character)")
    axes[-1].legend(fontsize=7)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)


def parse_arguments(arguments):
    parser = Parser(__doc__)
    parser.add_argument("--corpus", default=str(SHAKESPEARE), help="UTF-8 text (default: Shakespeare)")
    parser.add_argument("--steps", type=positive, default=600, help="optimiser steps a variant (default: %(default)s)")
    parser.add_argument("--batch-size", type=positive, default=12, help="default: %(default)s")
    parser.add_argument("--context", type=positive, default=64, help="default: %(default)s")
    parser.add_argument("--layers", type=positive, default=4, help="layers of GPT-2 (default: %(default)s)")
    parser.add_argument("--width", type=positive, default=128, help="default: %(default)s")
    parser.add_argument("--heads", type=positive, default=4, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="decides all random numbers (default: %(default)s)")
    parser.add_argument("--out", type=Path, default="out/euler_view", help="folder to write (default: %(default)s)")
    add_machine_options(parser)
    return parser.parse_args(arguments)


def compare(options):
    """Train all variants and print what they gave."""
    texts = split_corpus(read_corpus(options.corpus))
    tokenizer = CharacterTokenizer.train("".join(texts))
    sources = [Source(Path(options.corpus).name, [tokenizer.encode_to_numpy(text)]) for text in texts]
    sizes = {"layers": options.layers, "heads": options.heads, "width": options.width}
    base = EulerViewConfig(tokenizer.vocab_size, options.context, **sizes)
    settings = PretrainingSettings(
        corpus=options.corpus,
        steps=options.steps,
        batch_size=options.batch_size,
        context=options.context,
        learning_rate=1e-3,
        schedule="constant",
        warmup=min(100, options.steps // 10),
        validate_every=max(1, options.steps // VALIDATIONS),
        seed=options.seed,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    runs, machine = [], (options.device, options.threads)
    for name, given in VARIANTS.items():
        runs.append(train(name, variant_of(base, given), settings, tokenizer, sources, machine))
        print(f"{name}: validation loss {runs[-1].losses[-1]:.3f}", flush=True)
    print("", *comparison(runs), sep="\n")
    for run in (runs[0], runs[-1]):
        print(f"\n{run.name}, after training, validation loss by other methods with the same weights:")
        for name, loss in losses_by_other_methods(run, settings, tokenizer, sources[1], machine):
            print(f"  {name:<28}{loss:8.3f}")
    try:
        draw(runs, options.out / "losses.png")
        print(f"\nPicture: {options.out / 'losses.png'}")
    except ImportError:
        print("\nNo picture: matplotlib is not installed. Install it with: pip install 'euler-ir[plot]'")


def main(arguments=None):
    """Exit status: 0 done, 1 a variant diverged, 2 wrong use, 130 stopped by Ctrl-C."""
    options = parse_arguments(arguments)
    return exit_status("euler_view.py", lambda: compare(options), failures=(Diverged,))


if __name__ == "__main__":
    sys.exit(main())
