"""Continue a prompt, or several at once, with a model that gpt2_train.py has trained.

    python examples/gpt2_sample.py out/gpt2/best.safetensors --prompt "ROMEO:"
    python examples/gpt2_sample.py out/gpt2/best.safetensors --prompt "ROMEO:" --prompt "JULIET:" --stop "\\n\\n"
"""

import argparse
import sys

from models.command_line import add_machine_options, exit_status, positive
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.training.checkpoint import Checkpoint


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("checkpoint")
    parser.add_argument("--prompt", action="append", help="text to continue; may be repeated (default: a line break)")
    parser.add_argument("--count", type=positive, default=1, help="texts for each prompt (default: %(default)s)")
    parser.add_argument("--tokens", type=positive, default=200, help="longest continuation (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: %(default)s)")
    parser.add_argument("--top-k", type=positive, help="draw among the k likeliest tokens (default: all)")
    parser.add_argument("--top-p", type=float, help="draw among the likeliest that reach probability p (default: all)")
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        default=1.0,
        metavar="R",
        help="above 1 tokens of prompt and text become less likely to come again (default: 1)",
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        type=_unescaped,
        metavar="TEXT",
        help="end a continuation before this text, in which \\n is a line break; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first text; the next has one more (default: 0)")
    parser.add_argument("--weights", choices=["f32", "bf16", "i8"], default="f32", help="default: %(default)s")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    return exit_status("gpt2_sample.py", lambda: sample(options))


def sample(options):
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.repetition_penalty)
    weights = None if options.weights == "f32" else options.weights
    sampler = Sampler.of_checkpoint(Checkpoint.load(options.checkpoint), weights, options.device, options.threads)
    prompts = [prompt for prompt in options.prompt or ["\n"] for _ in range(options.count)]
    pieces = sampler.texts(prompts, options.tokens, sampling, options.seed, options.stop)
    try:
        for text in _texts_in_order(prompts, pieces):
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        # Who has read enough of it.
        print()


def _texts_in_order(prompts, pieces):
    """What to print of each prompt with its continuation: the first as it comes, the others one after the other."""
    waiting = [[prompt] for prompt in prompts]
    for number, piece in pieces:
        waiting[number].append(piece)
        if number == 0:
            yield from waiting[0]
            waiting[0].clear()
    for number, texts in enumerate(waiting):
        yield ("\n---\n" if number else "") + "".join(texts)
    yield "\n"


def _unescaped(text):
    return text.replace("\\n", "\n")


if __name__ == "__main__":
    sys.exit(main())
