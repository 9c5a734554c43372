"""Teach a model that gpt2_train.py has trained to answer in conversations (supervised fine-tuning).

    python examples/gpt2_sft.py out/gpt2/best.safetensors --out out/chat
    python examples/gpt2_sft.py --out out/chat --resume
    python examples/gpt2_sft.py out/gpt2/best.safetensors --show 3
"""

import sys
from pathlib import Path

from models.chat.answers import in_terminal
from models.chat.conversation import CHAT_TOKENS, read_conversations, render
from models.chat.fine_tuning import FineTuningSettings, resume_fine_tuning, start_fine_tuning
from models.command_line import Screen, exit_status, positive
from models.training.checkpoint import Checkpoint
from models.training.command_line import COMMON, Parser, given, train

DIALOGUE = Path(__file__).resolve().parents[1] / "models" / "corpora" / "dialogue"
SETTINGS = (*COMMON, "conversations", "train_on")


def parse_arguments(arguments):
    parser = Parser(__doc__)
    parser.add_argument("model", nargs="?", help="checkpoint to start from")
    parser.add_argument(
        "--conversations",
        nargs="+",
        metavar="FILE",
        help='JSONL, {"messages": [{"role", "content"}, ...]} a line (default: quiz and small talk of this repository)',
    )
    parser.add_argument("--train-on", choices=["all", "last"], help="turns of the assistant to learn (default: all)")
    parser.add_argument("--show", type=positive, metavar="N", help="print N conversations, what is learned marked")
    parser.add_common(FineTuningSettings, "out/gpt2-sft", "2e-3 for small models, less for wide ones")
    options = parser.parse_args(arguments)
    if options.model is not None and options.resume:
        parser.error("argument model: a run that is continued has its own; leave it out")
    if options.model is None and not options.resume:
        parser.error("the following argument is required: model, the checkpoint to start from")
    return options


def settings_of(options, model):
    defaults = {"conversations": [str(DIALOGUE / name) for name in ("quiz_bsd.jsonl", "chatterbot_en.jsonl")]}
    return FineTuningSettings.for_model(
        model.config, start_from=options.model, **defaults | given(options, SETTINGS)
    )


def open_run(options):
    if options.resume:
        return resume_fine_tuning(options.out, given(options, SETTINGS), options.device, options.threads)
    model = Checkpoint.load(options.model)
    return start_fine_tuning(options.out, settings_of(options, model), model, options.device, options.threads)


def show(options):
    """Print conversations as the model sees them."""
    model = Checkpoint.load(options.model)
    settings = settings_of(options, model)
    tokenizer = model.tokenizer.with_special_tokens(CHAT_TOKENS)
    console = Screen(soft_wrap=True)
    for messages in read_conversations(settings.conversations[0])[: options.show]:
        console.print(in_terminal(render(messages, tokenizer, settings.train_on), tokenizer))


def main(arguments=None):
    """Exit status: that of `train`."""
    options = parse_arguments(arguments)
    if not options.show:
        return train("gpt2_sft.py", open_run, options)
    return exit_status("gpt2_sft.py", lambda: show(options))


if __name__ == "__main__":
    sys.exit(main())
