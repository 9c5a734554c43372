"""Two checkpoints side by side: which tensors moved, which tokens are predicted better or worse, what comes next.

    python examples/gpt2_compare.py out/gpt2/best.safetensors out/sft/best.safetensors --html compared.html
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from models.command_line import add_machine_options, exit_status, positive
from models.data.corpus import read_corpus, split_corpus
from models.interpretability import tables
from models.interpretability.comparison import bits_per_byte, movements, next_tokens, token_losses
from models.interpretability.subject import Subject

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
AROUND = 6
"""Tokens before the one whose loss changed that are shown with it."""


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--corpus", default=str(SHAKESPEARE), help="text whose last tenth is predicted")
    parser.add_argument("--characters", type=positive, default=20_000, help="of its start (default: %(default)s)")
    parser.add_argument("--prompt", default="\n\nKING", help="text to continue (default: %(default)r)")
    parser.add_argument("--top", type=positive, default=10, help="rows of each table (default: %(default)s)")
    parser.add_argument("--html", metavar="FILE", help="also write what is shown as one HTML page")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    return exit_status("gpt2_compare.py", lambda: compare(options))


def compare(options):
    console = tables.screen(options.html)
    pair = [Subject.load(path, options.device, options.threads) for path in (options.first, options.second)]
    console.print(f"first: {options.first}\nsecond: {options.second}\n", soft_wrap=True)
    show_movements(*pair, options.top, console)
    _, text = split_corpus(read_corpus(options.corpus))
    show_losses(*pair, text[: options.characters], options.top, console)
    show_next_tokens(*pair, options.prompt, options.top, console)
    if options.html:
        tables.write_page(console, options.html, "Two checkpoints")


def show_movements(first, second, top, console):
    moved, differences = movements(first.state, second.state)
    title = f"tensors that moved most, of {len(moved)}"
    shown = tables.table(title, "tensor", ">|change|", ">/ |first|", ">largest", "")
    largest = max((each.relative for each in moved if np.isfinite(each.relative)), default=0.0)
    for each in moved[:top]:
        numbers = f"{each.change:.4f}", f"{each.relative:.4f}", f"{each.largest:.4f}"
        shown.add_row(each.name, *numbers, tables.share_bar(each.relative, largest))
    console.print(shown)
    if differences:
        console.print("\nnot compared:", *differences[:top], sep="\n")
    if len(differences) > top:
        console.print(f"... {len(differences)} in all")


def show_losses(first, second, text, top, console):
    bits = [bits_per_byte(subject, text) for subject in (first, second)]
    console.print(f"\nthe text of {len(text):,} characters: {bits[0]:.4f} and {bits[1]:.4f} bits per byte\n")
    if first.tokenizer.fingerprint != second.tokenizer.fingerprint:
        return console.print("The tokenizers differ, so losses of single tokens cannot be compared.\n")
    ids = first.tokenizer.encode_ordinary(text)
    losses = [token_losses(subject, ids) for subject in (first, second)]
    change = losses[1] - losses[0]
    shown = tables.table("tokens whose loss changed most", ">first", ">second", ">change", "after", "token", "")
    for place in np.argsort(-np.abs(change), kind="stable")[:top]:
        before = repr(first.tokenizer.decode(ids[max(0, place + 1 - AROUND) : place + 1]))
        numbers = f"{losses[0][place]:.3f}", f"{losses[1][place]:.3f}", f"{change[place]:+.3f}"
        bar = tables.signed_bar(change[place], np.abs(change).max())
        shown.add_row(*numbers, before, first.shown(ids[place + 1]), bar)
    console.print(shown)
    better, worse = (int((sign * change > 0).sum()) for sign in (-1, 1))
    console.print(f"\n{better:,} of {len(change):,} tokens are predicted better by the second, {worse:,} worse\n")


def show_next_tokens(first, second, prompt, top, console):
    shown = tables.table(f"after {prompt!r}", "first", ">p", "second", ">p")
    columns = [next_tokens(subject, subject.ids(prompt), top) for subject in (first, second)]
    for (one, share), (other, other_share) in zip(*columns):
        shown.add_row(first.shown(one), f"{share:.4f}", second.shown(other), f"{other_share:.4f}")
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())
