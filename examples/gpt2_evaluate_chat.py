"""How well a model of gpt2_sft.py or gpt2_dpo.py answers: its loss on answers, and its likeliest answers.

    python examples/gpt2_evaluate_chat.py out/gpt2-sft/latest.safetensors out/gpt2-sft/validation.jsonl
"""

import argparse
import sys

import euler_ir as ei
from models.chat.answers import Answers
from models.chat.conversation import read_conversations, render
from models.chat.packing import all_filled, fitting, next_trained_token
from models.command_line import add_machine_options, exit_status, positive
from models.language_model import evaluation_graph
from models.training.checkpoint import Checkpoint
from models.training.held_out import HeldOut

BATCH_SIZE = 16


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("checkpoint")
    parser.add_argument("conversations", help='JSONL, {"messages": [{"role", "content"}, ...]} a line')
    parser.add_argument("--count", type=positive, default=200, help="conversations to look at (default: %(default)s)")
    parser.add_argument("--tokens", type=positive, default=64, help="of the longest answer (default: %(default)s)")
    add_machine_options(parser)
    options = parser.parse_args(arguments)
    return exit_status("gpt2_evaluate_chat.py", lambda: evaluate(options))


def evaluate(options):
    checkpoint = Checkpoint.load(options.checkpoint)
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    conversations = read_conversations(options.conversations)[: options.count]
    state = ei.initial_state(evaluation_graph(config, 1, 1))
    checkpoint.restore_parameters(state)
    found = (fitting(render(messages, tokenizer), config.context) for messages in conversations)
    batches = all_filled([text for text in found if text], BATCH_SIZE, config.context)
    machine = options.device, options.threads
    loss = HeldOut(config, BATCH_SIZE, config.context, next_trained_token, batches, *machine).of(state)
    answers = Answers(config, state, tokenizer, *machine).measure(conversations, options.tokens)
    print(f"{len(conversations)} conversations of {options.conversations}")
    if loss:
        print(f"  loss on the assistant's tokens     {loss['loss']:.3f} nats a token")
    if answers:
        print(f"  answers that end in {options.tokens} tokens      {answers['ended']:.0%}")
        print(f"  answers that are those given there {answers['exact_match']:.0%}")


if __name__ == "__main__":
    sys.exit(main())
