"""Talk with a model that gpt2_sft.py has fine-tuned on conversations.

    python examples/gpt2_chat.py out/gpt2-sft/best.safetensors --system "Answer briefly."

Each line is a message; /help lists the commands, Ctrl-C ends an answer, Ctrl-D ends. Lines from a pipe are answered
one by one, and --prompt asks for one answer only.
"""

import argparse
import sys

from models.chat.session import Session
from models.chat.terminal import Chat
from models.command_line import add_machine_options, exit_status, positive
from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.training.checkpoint import Checkpoint

try:
    import readline  # noqa: F401, lets `input` edit lines and recall old ones
except ImportError:
    pass


def main(arguments=None):
    """Exit status: 0 done, 1 a line from a pipe was refused, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("checkpoint")
    parser.add_argument("--prompt", metavar="TEXT", help="print the answer to this message and end")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    parser.add_argument("--tokens", type=positive, help="longest answer (default: 200, or half of what the model sees)")
    parser.add_argument("--temperature", type=float, default=0.7, help="0 takes the likeliest (default: %(default)s)")
    parser.add_argument("--top-k", type=positive, help="draw among the k likeliest tokens (default: all)")
    parser.add_argument("--top-p", type=float, help="draw among the likeliest that reach probability p (default: all)")
    parser.add_argument(
        "--repetition-penalty", type=float, default=1.0, help="above 1 an answer repeats itself less (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides what is drawn (default: %(default)s)")
    parser.add_argument("--weights", choices=["f32", "bf16", "i8"], default="f32", help="default: %(default)s")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    sys.stdin.reconfigure(errors="replace")
    return exit_status("gpt2_chat.py", lambda: chat(options))


def chat(options):
    try:
        # What the user wrote, and the tokens that end turns, must not become less likely.
        sampling = Sampling(
            options.temperature, options.top_k, options.top_p, options.repetition_penalty, penalize_prompt=False
        )
        weights = None if options.weights == "f32" else options.weights
        sampler = Sampler.of_checkpoint(Checkpoint.load(options.checkpoint), weights, options.device, options.threads)
        session = Session(sampler, options.system, sampling, options.seed, options.tokens)
        talk = Chat(session)
        if options.prompt is not None:
            talk.answer(options.prompt)
            return 0
        talk.run()
    except KeyboardInterrupt:
        print()
        return 0
    return 1 if talk.refused and not sys.stdin.isatty() else 0


if __name__ == "__main__":
    sys.exit(main())
