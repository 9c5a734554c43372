"""Make preference data of conversations: the answer given there is chosen, a worse one made of it rejected.

    python examples/make_preferences.py out/gpt2-sft/train.jsonl --out out/preferences.jsonl
"""

import argparse
import sys
from dataclasses import asdict

from models.chat.conversation import read_conversations, write_json_lines
from models.chat.pairs import made_pairs
from models.command_line import exit_status


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("conversations", nargs="+", help='JSONL, {"messages": [{"role", "content"}, ...]} a line')
    parser.add_argument("--out", required=True, help="JSONL file to write")
    parser.add_argument("--seed", type=int, default=0, help="decides all random choices (default: %(default)s)")
    options = parser.parse_args(arguments)
    return exit_status("make_preferences.py", lambda: make(options))


def make(options):
    conversations = [each for path in options.conversations for each in read_conversations(path)]
    pairs = made_pairs(conversations, options.seed)
    write_json_lines(options.out, map(asdict, pairs))
    print(f"{len(pairs)} pairs of answers to {len(conversations)} conversations: {options.out}")


if __name__ == "__main__":
    sys.exit(main())
