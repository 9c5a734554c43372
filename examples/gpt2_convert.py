"""Turn a Hugging Face GPT-2 or Llama into a checkpoint, to sample, chat and train from, or a GPT-2 into such a folder.

    python examples/gpt2_convert.py import gpt2/ out/gpt2.safetensors
    python examples/gpt2_convert.py export out/gpt2/best.safetensors gpt2-shakespeare/
"""

import argparse
import sys
from pathlib import Path

from models.command_line import exit_status
from models.gpt2 import GPT2Config
from models.huggingface import read_checkpoint, write_gpt2
from models.tokenizer.formats import load_tokenizer
from models.training.checkpoint import Checkpoint


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    directions = parser.add_subparsers(required=True, dest="direction", metavar="import|export")
    read = directions.add_parser("import", help="a Hugging Face folder becomes a checkpoint")
    read.add_argument("source", help="a folder with config.json and weights, or a safetensors file in one")
    read.add_argument("checkpoint", type=Path, help="the file to write")
    read.add_argument("--tokenizer", help="a tokenizer's file or folder (default: the one in the folder)")
    write = directions.add_parser("export", help="a checkpoint becomes a folder that transformers loads")
    write.add_argument("checkpoint", help="a file that training has written")
    write.add_argument("folder", type=Path, help="the folder to write, new or empty")
    write.add_argument("--without-tokenizer", action="store_true", help="write the model alone")
    return parser.parse_args(arguments)


def import_folder(options):
    if options.checkpoint.exists():
        raise FileExistsError(f"{options.checkpoint} is there already. Choose another file.")
    tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
    checkpoint, notices = read_checkpoint(options.source, tokenizer)
    checkpoint.save(options.checkpoint)
    for notice in notices:
        print(f"Note: {notice}")
    print(f"{options.checkpoint}: {described(checkpoint)}")
    print("It holds weights alone: training from it begins with the optimiser's moments at zero.")


def export_checkpoint(options):
    checkpoint = Checkpoint.load(options.checkpoint)
    if type(checkpoint.config) is not GPT2Config:
        raise ValueError(f"{options.checkpoint} holds a {checkpoint.config.architecture}. Only a GPT-2 is written so.")
    tokenizer = None if options.without_tokenizer else checkpoint.tokenizer
    write_gpt2(options.folder, checkpoint.config, checkpoint.arrays, tokenizer)
    print(f"{options.folder}: {described(checkpoint)}")


def described(checkpoint):
    count = checkpoint.config.build().parameter_count()
    return f"{checkpoint.config.title} of {count:,} parameters, tokenizer of {checkpoint.tokenizer.vocab_size:,} ids"


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use or a file that cannot be read or written, 130 stopped by Ctrl-C."""
    options = parse_arguments(arguments)
    convert = {"import": import_folder, "export": export_checkpoint}[options.direction]
    return exit_status("gpt2_convert.py", lambda: convert(options))


if __name__ == "__main__":
    sys.exit(main())
