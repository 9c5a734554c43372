"""Train models of several sizes and see at which step each learns how plays say who speaks.

    python examples/gpt2_probes.py --out out/probes

Stop it at any time; the same command goes on where it stopped, and draws what there is when all runs are done.
"""

import argparse
import sys
from pathlib import Path

from models.architectures import PRESETS
from models.command_line import add_machine_options, exit_status, positive
from models.data.corpus import read_corpus, split_corpus
from models.data.prepared import TOKEN_FILES
from models.data.token_files import read_token_file
from models.interpretability import tables
from models.interpretability.diary import Diary
from models.interpretability.emergence import curves, draw, first_reached
from models.interpretability.probes import ProbeLog, speaker_lines, speaker_probes
from models.training.checkpoint import Checkpoint
from models.training.folder import RunFolder
from models.training.metrics import read_metrics
from models.training.pretraining import resume_pretraining, start_pretraining
from models.training.settings import PretrainingSettings
from models.training.trainer import Diverged

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
SIZES = ["pico", "micro", "nano"]
LEVELS = (0.1, 0.5, 0.9)


def main(arguments=None):
    """Exit status: 0 done, 1 training or writing failed, 2 wrong use, 128 + n stopped by signal n."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", default="out/probes", help="folder of the runs (default: %(default)s)")
    parser.add_argument("--corpus", default=str(SHAKESPEARE), help="plays to learn from (default: Shakespeare's here)")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=SIZES, metavar="PRESET", help="sizes to train")
    parser.add_argument("--steps", type=positive, default=1500, help="of each run (default: %(default)s)")
    parser.add_argument("--batch-size", type=positive, default=16, help="windows a step (default: %(default)s)")
    parser.add_argument("--sample-tokens", type=positive, default=300, help="drawn each time (default: %(default)s)")
    parser.add_argument("--html", metavar="FILE", help="also write the table as one HTML page")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    return exit_status("gpt2_probes.py", lambda: probe(options), failures=(Diverged, ImportError))


def probe(options):
    """Train all sizes and show what they learned when; 128 + n when signal n stopped it."""
    console = tables.screen(options.html)
    out = Path(options.out)
    text, _ = split_corpus(read_corpus(options.corpus))
    probes = speaker_probes(text)
    for preset in options.presets:
        if stopped_by := train(out / preset, preset, options, text, probes):
            print("Stopped. The same command goes on from here.")
            return 128 + stopped_by
    show(out, options.presets, speaker_lines(text)[0], console)
    if options.html:
        tables.write_page(console, options.html, "What is learned when")
    return 0


def train(folder, preset, options, text, probes):
    """Begin or continue the run of a preset; returns the signal that stopped it, or None."""
    given = {"corpus": options.corpus, "preset": preset, "steps": options.steps, "batch_size": options.batch_size}
    settings = PretrainingSettings.for_preset(**given)
    if (latest := RunFolder(folder).latest).exists():
        checkpoint = Checkpoint.load(latest)
        there = PretrainingSettings.of(checkpoint.settings)
        if changed := [name for name in given if getattr(there, name) != getattr(settings, name)]:
            names = ", ".join(changed)
            raise ValueError(f"The run in {folder} has another {names}. Give what it was begun with, or another --out.")
        if checkpoint.step == settings.steps:
            return None
        run = resume_pretraining(folder, (), options.device, options.threads)
    else:
        run = start_pretraining(folder, settings, options.device, options.threads)
    step = run.checkpoint.step
    corpus, held_out = (read_token_file(folder / name, run.task.tokenizer) for name in TOKEN_FILES)
    wanted = steps_to_measure(settings.steps).__contains__
    measures = probes, speaker_lines(text)[1], options.sample_tokens
    observers = [
        ProbeLog(folder / "probes.jsonl", wanted, run.task, *measures, resumed_at=step),
        Diary(folder / "diary.jsonl", wanted, run.task, corpus, held_out, ("\n\nKING",), resumed_at=step),
    ]
    try:
        return run.train(observers=observers)
    finally:
        for observer in observers:
            observer.close()


def steps_to_measure(steps):
    """About five for each doubling, and the last."""
    return {round(2 ** (number / 5)) for number in range(200) if round(2 ** (number / 5)) < steps} | {steps}


def show(out, presets, corpus_share, console):
    probed = {preset: read_metrics(out / preset / "probes.jsonl") for preset in presets}
    sizes = {preset: f"{preset}, {PRESETS[preset].build().parameter_count():,} weights" for preset in presets}
    columns = "measure", *(f">{sizes[preset]}" for preset in presets)
    for level in LEVELS:
        shown = tables.table(f"first step from which on it is {level} or more", *columns)
        for name in probed[presets[0]][0]["probes"]:
            reached = [first_reached(*curves(probed[preset])[name], level) for preset in presets]
            shown.add_row(name, *("-" if step is None else f"{step:,}" for step in reached))
        console.print(shown, "")
    shown = tables.table("at the end", *columns)
    for name in curves(probed[presets[0]]):
        shown.add_row(name, *(f"{curves(probed[preset])[name][1][-1]:.3f}" for preset in presets))
    shares = [probed[preset][-1]["known_speakers"] for preset in presets]
    shown.add_row("of these, with a speaker's name", *("-" if share is None else f"{share:.3f}" for share in shares))
    console.print(shown)
    console.print(f"\nIn the plays {corpus_share:.3f} of the lines say who speaks.")
    divergences = {preset: read_metrics(out / preset / "diary.jsonl") for preset in presets}
    draw({sizes[p]: probed[p] for p in presets}, divergences, out / "probes.png", corpus_share)
    console.print(f"wrote {out / 'probes.png'}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
