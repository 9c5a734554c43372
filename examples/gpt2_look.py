"""Look inside a trained model: what its weights, layers, heads and tokens do to the next token.

    python examples/gpt2_look.py out/gpt2/best.safetensors lens --text "To be, or not to"
    python examples/gpt2_look.py out/gpt2/best.safetensors perturb "h.1.mlp.c_fc.weight[3,7]" --html nudge.html
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from models.command_line import add_machine_options, exit_status, positive
from models.data.corpus import read_corpus, split_corpus
from models.interpretability import tables
from models.interpretability.attention import attention_probabilities, head_scores, repeated_tokens
from models.interpretability.attribution import gradient_times_activation, integrated_gradients
from models.interpretability.comparison import next_tokens
from models.interpretability.direct import direct_logit_attribution
from models.interpretability.lens import lens
from models.interpretability.perturbation import DELTAS, Place, perturb
from models.interpretability.probes import NextBytes, Probe
from models.interpretability.sensitivity import scaling_slope, sensitivity
from models.interpretability.subject import Subject, divergence
from models.interpretability.trace import trace, value_names

SHAKESPEARE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "shakespeare.txt"
TEXT = "FIRST CITIZEN:\nWe are accounted poor"


def main(arguments=None):
    """Exit status: 0 done, 1 a check failed, 2 wrong use or a file that cannot be read or written."""
    options = parse_arguments(arguments)
    return exit_status("gpt2_look.py", lambda: look(options), failures=(ArithmeticError, RuntimeError))


def look(options):
    console = tables.screen(options.html)
    subject = Subject.load(options.checkpoint, options.device, options.threads)
    options.look(subject, options, console)
    if options.html:
        tables.write_page(console, options.html, f"{options.command}: {options.checkpoint}")


def parse_arguments(arguments):
    about_commands = "The options of one command: gpt2_look.py CHECKPOINT COMMAND --help"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=about_commands, allow_abbrev=False)
    parser.add_argument("checkpoint")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name, look, help):
        added = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        added.set_defaults(look=look)
        added.add_argument("--text", default=TEXT, help="what the model reads (default: %(default)r)")
        added.add_argument("--html", metavar="FILE", help="also write what is shown as one HTML page")
        add_machine_options(added)
        return added

    def target(added):
        added.add_argument("--target", help="the token that follows, as text (default: the likeliest)")

    added = command("perturb", look_perturb, "nudge weights and watch the distribution of the next token")
    added.add_argument("place", help="such as h.1.mlp.c_fc.weight[3,7], wte.weight[:,0:4] or ln_f.bias")
    added.add_argument("--delta", type=float, action="append", help="what is added, repeatable (default: six)")
    target(added)
    added = command("sensitivity", look_sensitivity, "how much the loss depends on each tensor, layer and head")
    added.add_argument("--corpus", default=str(SHAKESPEARE), help="text whose last tenth gives the examples")
    added.add_argument("--examples", type=positive, default=16, help="windows of the context (default: %(default)s)")
    added.add_argument("--tensors", type=positive, default=10, help="how many are shown (default: %(default)s)")
    added = command("lens", look_lens, "what the model would say after each attention and each MLP")
    added.add_argument("--top", type=positive, default=4, help="tokens shown a row (default: %(default)s)")
    added = command("attribute", look_attribute, "what each token, or each head and MLP, does to the prediction")
    added.add_argument("--method", choices=["integrated", "gradient", "direct"], default="integrated")
    added.add_argument("--baseline", help="token that integrated gradients begin from (default: an embedding of zeros)")
    added.add_argument("--value", help="for --method gradient: a named value instead of the embedding")
    target(added)
    added = command("trace", look_trace, "read and replace named values of the graph")
    added.add_argument("--names", action="store_true", help="list the names and stop")
    added.add_argument("--read", action="append", default=[], metavar="NAME", help="value to print, repeatable")
    added.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER", help="fill a value, repeatable")
    added.add_argument("--scale", action="append", default=[], metavar="NAME=NUMBER", help="multiply, repeatable")
    added.add_argument("--graph", action="store_true", help="print the lines of the graph that the edits changed")
    added = command("attention", look_attention, "kinds of heads, and where one looks")
    added.add_argument("--layer", help="with --head: the path of an attention, such as h.0.attn")
    added.add_argument("--head", type=int, help="number of the head, from 0")
    added = command("probe", look_probe, "P(a continuation | a prefix), summed over all ways to tokenize it")
    added.add_argument("--prefix", action="append", help="what was so far, repeatable (default: --text)")
    added.add_argument("--continuation", action="append", required=True, help="what may follow, repeatable")
    return parser.parse_args(arguments)


def chosen_target(subject, options):
    return None if options.target is None else subject.id_of(options.target)


def look_perturb(subject, options, console):
    ids, place = subject.ids(options.text), Place.of(options.place, subject.state)
    found = perturb(subject, ids, place, options.delta or DELTAS, chosen_target(subject, options))
    name = subject.shown(found.target)
    console.print(f"{options.place}: {found.count} of {subject.state[place.name].size} weights of {place.name}")
    console.print(f"next token {name}: log-probability {found.log_probability:.6f}, entropy {found.entropy:.4f} nats\n")
    shown = tables.table("nudges", ">delta", ">KL (nats)", ">entropy", f">log p({name})", ">by the slope", "top movers")
    for nudge in found.nudges:
        movers = "  ".join(f"{subject.shown(i)} {old:.4f} to {new:.4f}" for i, old, new in nudge.movers[:3])
        numbers = f"{nudge.delta:+g}", f"{nudge.divergence:.3e}", f"{nudge.entropy:.4f}"
        shown.add_row(*numbers, f"{nudge.log_probability:.6f}", f"{nudge.predicted:.6f}", movers)
    console.print(shown)
    shown = tables.table("\nslope of the log-probability at 0", "by", ">slope", ">off by")
    shown.add_row("autodiff", f"{found.slope:.6e}", "")
    for step, slope in found.differences:
        shown.add_row(f"central differences, step {step:g}", f"{slope:.6e}", f"{slope - found.slope:+.1e}")
    console.print(shown)
    console.print("\nThe weights have their old bits again (SHA-256 of all of them is the same).")


def look_sensitivity(subject, options, console):
    length = subject.config.context
    _, text = split_corpus(read_corpus(options.corpus))
    ids = np.array(subject.tokenizer.encode_ordinary(text))[: options.examples * (length + 1)]
    if len(ids) < options.examples * (length + 1):
        wanted = f"{options.examples} examples of {length + 1} tokens"
        raise ValueError(f"There are not {wanted} in the last tenth of {options.corpus}. Ask for fewer.")
    examples = ids.reshape(options.examples, length + 1)
    found = sensitivity(subject, examples)
    console.print(f"{found.examples} examples of {length} tokens, loss {found.loss:.4f} nats per token\n")
    columns = (">weights", ">sum |g|", ">sum |g w|", ">sum g w", ">Fisher", ">a weight", "")

    def show(title, first, groups):
        rows = [(name, *found.row(names)) for name, names in groups]
        largest = max((row[3] for row in rows), default=0.0)
        shown = tables.table(title, first, *columns)
        for name, count, g, product, signed, fisher in rows:
            numbers = f"{count:,.0f}", f"{g:.4g}", f"{product:.4g}", f"{signed:+.4f}", f"{fisher:.2e}"
            shown.add_row(name, *numbers, f"{fisher / count:.2e}", tables.share_bar(product, largest))
        console.print(shown)

    show("by layer", "layer", found.by_block(subject.blocks()).items())
    names = sorted(found.gradient, key=lambda name: -found.row([name])[2])[: options.tensors]
    show("\nby tensor, those with the largest sum |g w|", "tensor", [(name, [name]) for name in names])
    shown = tables.table("\nby head: of a gate of 1 on what it gives", "attention", ">head", ">g", ">Fisher", "")
    for path, gradients, squares in zip(found.attentions, found.head_gradient, found.head_fisher):
        for head, (gradient, square) in enumerate(zip(gradients, squares)):
            bar = tables.share_bar(square, found.head_fisher.max())
            shown.add_row(path, str(head), f"{gradient:+.5f}", f"{square:.3e}", bar)
    console.print(shown)
    predicted, measured = found.row(found.gradient)[3], scaling_slope(subject, examples)
    console.print(f"\ncheck: weights scaled by 1 + e change the loss by {measured:+.5f} e; sum g w is {predicted:+.5f}")


def look_lens(subject, options, console):
    ids = subject.ids(options.text)
    found = lens(subject, ids)
    last = found.log_probabilities[-1, 0]
    said = int(last.argmax())
    columns = "after", f">p({subject.shown(said)})", ">KL(last || row)", "likeliest tokens"
    shown = tables.table("after the last token, with a final norm of each row's own", *columns)
    for label, (row,) in zip(found.labels, found.log_probabilities):
        best = np.argsort(-row, kind="stable")[: options.top]
        words = "  ".join(f"{subject.shown(int(token))} {np.exp(row[token]):.3f}" for token in best)
        shown.add_row(label, f"{np.exp(row[said]):.4f}", f"{divergence(last, row):.4f}", words)
    console.print(shown)
    console.print(f"\ncheck: logits of the last row are those of the model within {found.error:.1e}")


def look_attribute(subject, options, console):
    ids, target = subject.ids(options.text), chosen_target(subject, options)
    if options.method == "direct":
        return show_direct(subject, direct_logit_attribution(subject, ids, target), console)
    if options.method == "integrated":
        baseline = None if options.baseline is None else subject.id_of(options.baseline)
        found = integrated_gradients(subject, ids, target, baseline)
    else:
        found = gradient_times_activation(subject, ids, target, options.value)
    console.print(f"log-probability of {subject.shown(found.target)}: {found.value:.6f}\n")
    console.print(tables.tokens_with_scores(subject, ids, found.scores), "\n")
    shown = tables.table(f"scores of tokens, by {options.method}", ">position", "token", ">score", "")
    largest = np.abs(found.scores).max()
    for position, (token, score) in enumerate(zip(ids, found.scores)):
        shown.add_row(str(position), subject.shown(token), f"{score:+.5f}", tables.signed_bar(score, largest))
    console.print(shown)
    if found.error is not None:
        console.print(
            f"\ncheck: the scores sum to {found.scores.sum():+.6f}; f(text) - f(baseline) is "
            f"{found.value - found.baseline_value:+.6f} ({found.points} points)"
        )


def show_direct(subject, found, console):
    console.print(f"logit of {subject.shown(found.target)}: {found.logit:.5f}\n")
    shown = tables.table("contributions, the final norm's scale held", "part", ">logit", "")
    parts = found.contributions | {"final norm's bias": found.constant}
    largest = max(map(abs, parts.values()))
    for label, part in parts.items():
        shown.add_row(label, f"{part:+.5f}", tables.signed_bar(part, largest))
    console.print(shown)
    console.print(f"\ncheck: they sum to {found.logit + found.error:.5f}, off by {found.error:+.1e}")


def look_trace(subject, options, console):
    ids = subject.ids(options.text)
    if options.names:
        shown = tables.table(None, "name", "type")
        for name, kind in value_names(subject, len(ids)):
            shown.add_row(name, kind)
        return console.print(shown)
    edits = [*map(edit, options.set)]
    edits += [(name, lambda value, by=number: value * by) for name, number in map(edit, options.scale)]
    if twice := [name for name, count in Counter(name for name, _ in edits).items() if count > 1]:
        raise ValueError(f"{twice[0]} is edited twice. Give one --set or --scale for each name.")
    found = trace(subject, ids, options.read, dict(edits))
    for name in options.read:
        array = found.values[name].astype(np.float64)
        size = f"norm {np.linalg.norm(array):.4f}, mean {array.mean():+.4f}"
        console.print(f"{name} {list(array.shape)}: {size}, from {array.min():.4f} to {array.max():.4f}")
    if options.graph:
        before = set(str(subject.graph(len(ids))).splitlines())
        changed = [line for line in str(found.graph).splitlines() if line not in before]
        console.print("\n".join(changed), soft_wrap=True)
    logits = found.values["logits"][0, -1].astype(np.float64)
    if edits and not np.isfinite(logits).all():
        return console.print("\nWith these edits the predictions are not finite.")
    after = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    best = np.argsort(-after, kind="stable")[:5]
    shown = tables.table("\nnext token", "without edits", ">p", "with edits", ">p")
    for (token, share), other in zip(next_tokens(subject, ids, 5), best):
        shown.add_row(subject.shown(token), f"{share:.4f}", subject.shown(int(other)), f"{after[other]:.4f}")
    console.print(shown)


def edit(text):
    name, equals, number = text.partition("=")
    try:
        # A whole number may stand in a value of integers.
        return name, int(value) if (value := float(number)).is_integer() else value
    except ValueError:
        raise ValueError(f"{text!r} is no edit. Write NAME=NUMBER, such as h.0.mlp.gelu=0.") from None


def look_attention(subject, options, console):
    if (options.layer is None) != (options.head is None):
        raise ValueError("--layer and --head belong together, such as --layer h.0.attn --head 2.")
    if options.layer is not None:
        return show_head(subject, options, console)
    columns = "attention", ">head", ">previous token", "", ">same token", "", ">induction", ""
    shown = tables.table("where heads look, in random tokens repeated once", *columns)
    for path, scores in head_scores(subject, repeated_tokens(subject)).items():
        for head, row in enumerate(zip(scores.previous, scores.same, scores.induction)):
            cells = [cell for score in row for cell in (f"{score:.3f}", tables.share_bar(score))]
            shown.add_row(path, str(head), *cells)
    console.print(shown)


def show_head(subject, options, console):
    ids = subject.ids(options.text)
    found = attention_probabilities(subject, ids)
    if options.layer not in found:
        raise ValueError(f"There is no attention {options.layer!r}. There are {', '.join(found)}.")
    if not 0 <= options.head < len(found[options.layer]):
        raise ValueError(f"{options.layer} has heads 0 to {len(found[options.layer]) - 1}, not {options.head}.")
    rows = found[options.layer][options.head]
    console.print(f"{options.layer}, head {options.head}: how much each token (row) takes of those before it (columns)")
    if 3 * len(ids) + 20 > console.width:
        console.print(f"The {len(ids)} columns are wider than this screen. Give a shorter --text to see them.")
    else:
        shown = tables.table(None, ">", "token", *map(str, range(len(ids))))
        shown.padding = (0, 1, 0, 0)
        for position, row in enumerate(rows):
            shares = (tables.heat(share) for share in row[: position + 1])
            shown.add_row(str(position), subject.shown(ids[position]), *shares)
        console.print(shown)
    shown = tables.table("\nwhere each looks most", ">position", "token", "looks at", ">share")
    for position, row in enumerate(rows):
        best = int(row.argmax())
        seen = f"{best} {subject.shown(ids[best])}"
        shown.add_row(str(position), subject.shown(ids[position]), seen, f"{row[best]:.3f}")
    console.print(shown)


def look_probe(subject, options, console):
    follows = NextBytes(subject.config, subject.state, subject.tokenizer, **subject.options)
    probe = Probe("all", tuple(options.prefix or [options.text]), tuple(options.continuation))
    for prefix in probe.prefixes:
        shown = tables.table(f"after {prefix!r}", "the model reads", "continuation", ">p", "")
        for text in probe.continuations:
            given, rest = follows.given(prefix, text)
            read = " ".join(map(subject.shown, given)) + (f", and a token that begins with {rest!r}" if rest else "")
            share = follows.probability(prefix, text)
            shown.add_row(read, repr(text), f"{share:.6f}", tables.share_bar(share))
        console.print(shown, "")
    console.print(f"mean over prefixes of the sum: {follows.measure([probe])['all']:.6f}")


if __name__ == "__main__":
    sys.exit(main())
