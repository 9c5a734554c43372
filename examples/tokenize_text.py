"""Look at how a text becomes tokens, encode files, learn a vocabulary, or convert one to another program's format.

    python examples/tokenize_text.py "It's 12 o'clock."
    python examples/tokenize_text.py --train corpus.txt --vocab-size 8192 --out tokenizer.json
    python examples/tokenize_text.py --tokenizer tokenizer.json --file one.txt two.txt --out corpus.tokens
    python examples/tokenize_text.py --tokenizer tokenizer.json --convert huggingface --out there/tokenizer.json
"""

import argparse
import os
import sys
from pathlib import Path

from rich.table import Table
from rich.text import Text

import models
from models.command_line import Screen, exit_status
from models.data.text_files import encode_file
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.formats import FORMATS, load_tokenizer, save_tokenizer
from models.tokenizer.pretokenize import bytes_of, pieces, text_from
from models.tokenizer.special_tokens import END_OF_TEXT, split_at

SHAKESPEARE = Path(models.__file__).parent / "corpora" / "shakespeare.txt"
SHAKESPEARE_VOCABULARY = 512
VOCAB_SIZE = 1024
COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")
SPECIAL = {
    "refuse": {},
    "allow": {"allowed_special": "all"},
    "text": {"disallowed_special": ()},
}
# What the errors of functions ask for, and the options that give it.
IN_OPTIONS = {
    "allowed_special=": "--special allow and --special text",
    "special_tokens={": "--pattern gpt2 and --special-token, or --no-special-tokens",
}


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("text", nargs="?", help="text to show as pieces, tokens, ids and bytes")
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--file", nargs="+", metavar="TEXT_FILE", help="encode files, in order, to the token file --out")
    task.add_argument("--train", nargs="+", metavar="TEXT_FILE", help="learn a vocabulary and write it to --out")
    task.add_argument("--convert", choices=FORMATS, help="write --tokenizer in this format to --out (gpt2: a folder)")
    parser.add_argument("--out", help="what to write")
    default = f"{SHAKESPEARE_VOCABULARY} tokens learned from Shakespeare"
    parser.add_argument("--tokenizer", metavar="PATH", help=f"a file of any format, or its folder (default: {default})")
    parser.add_argument("--pattern", help="for a .tiktoken file: the pattern that splits text; only gpt2 is known")
    parser.add_argument(
        "--special-token", dest="special_tokens", action="append", metavar="TOKEN",
        help=f"for --train (default: {END_OF_TEXT}) and for a .tiktoken file; may be given several times",
    )  # fmt: skip
    parser.add_argument("--no-special-tokens", dest="special_tokens", action="store_const", const=[], help="likewise")
    parser.add_argument("--special", choices=SPECIAL, default="refuse", help="those in a text (default: refuse)")
    parser.add_argument("--separator", metavar="TOKEN", help="special token to put between the files of --file")
    parser.add_argument("--kind", choices=["bpe", "characters"], help="for --train (default: bpe)")
    parser.add_argument("--vocab-size", type=int, help=f"ids, for --train (default: {VOCAB_SIZE})")
    options = parser.parse_args(arguments)
    writes = bool(options.file or options.train or options.convert)
    if writes == (options.text is not None):
        parser.error("give a text to look at, or one of --file, --train and --convert")
    if writes != (options.out is not None):
        parser.error("--out is needed for --file, --train and --convert, and for nothing else")
    if options.separator is not None and not options.file:
        parser.error("--separator is for --file only")
    if not options.train and (options.kind or options.vocab_size is not None):
        parser.error("--kind and --vocab-size are for --train only")
    if options.train and options.tokenizer is not None:
        parser.error("--train makes a tokenizer, and takes none by --tokenizer")
    if options.kind == "characters" and options.vocab_size is not None:
        parser.error("--vocab-size is for --kind bpe only: of characters there are as many as the text has")
    inputs = [*(options.file or options.train or ()), *([options.tokenizer] if options.tokenizer else ())]
    if options.out and any(is_one_file(options.out, path) for path in inputs):
        parser.error(f"--out {options.out} is also read, and would be lost")
    return options


def is_one_file(first, second):
    """Whether two paths lead to one file, by whatever links."""
    return os.path.isfile(first) and os.path.isfile(second) and os.path.samefile(first, second)


def open_tokenizer(options):
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer, options.special_tokens, options.pattern)
    return Tokenizer.train(SHAKESPEARE.read_bytes(), SHAKESPEARE_VOCABULARY)


def learn(options):
    """Learn a vocabulary; no merge crosses from one file to the next."""
    documents = [Path(path).read_bytes() for path in options.train]
    if options.kind == "characters":
        return CharacterTokenizer.train(b"".join(documents), options.special_tokens or ())
    special_tokens = [END_OF_TEXT] if options.special_tokens is None else options.special_tokens
    separator = special_tokens[0].encode() if special_tokens else b""
    vocab_size = VOCAB_SIZE if options.vocab_size is None else options.vocab_size
    return Tokenizer.train(separator.join(documents), vocab_size, special_tokens)


def show(text, tokenizer, permissions):
    ids = tokenizer.encode(text, **permissions)
    special = set(tokenizer.special_tokens.values())
    ends = piece_ends(text, tokenizer, permissions)
    coloured, end, piece = Text(), 0, 1
    table = Table("piece", "token", "id", "bytes", box=None, pad_edge=False, header_style="bold")
    for index, token_id in enumerate(ids):
        token = tokenizer.token_bytes(token_id)
        style = "bold white on red" if token_id in special else COLOURS[index % len(COLOURS)]
        coloured.append(visible(token, but="\n"), style)
        table.add_row(str(piece), Text(visible(token), style), str(token_id), token.hex(" "))
        end += len(token)
        piece += end in ends
    console = Screen(highlight=False)
    console.print(coloured, soft_wrap=True)
    console.print(table)
    count = len(ids)
    per_token = f": {end / count:.2f} bytes a token" if count else ""
    print(f"{len(text)} characters, {end} bytes, {count} tokens{per_token}")


def visible(token, but=""):
    """The text of a token with what does not show, except characters of `but`, as escapes."""
    text = token.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() or c in but else c.encode("unicode_escape").decode("ascii") for c in text)


def piece_ends(text, tokenizer, permissions):
    """Places, in bytes, where a piece ends that merges never cross."""
    ends, end = set(), 0
    allowed = tokenizer.special_tokens if permissions.get("allowed_special") else ()
    for index, part in enumerate(split_at(allowed, text_from(text))):
        for piece in [part] if index % 2 or isinstance(tokenizer, CharacterTokenizer) else pieces(part):
            end += len(bytes_of(piece))
            ends.add(end)
    return ends


def run(options):
    if options.train:
        tokenizer = learn(options)
        save_tokenizer(tokenizer, options.out)
        print(f"{options.out}: {tokenizer.vocab_size} tokens")
        return
    tokenizer = open_tokenizer(options)
    if options.convert:
        save_tokenizer(tokenizer, options.out, options.convert)
        print(f"{options.out}: {tokenizer.vocab_size} tokens as {options.convert}")
    elif options.file:
        permissions = SPECIAL[options.special]
        count = encode_file(tokenizer, options.file, options.out, separator=options.separator, **permissions)
        size = sum(Path(path).stat().st_size for path in options.file)
        print(f"{options.out}: {count:,} tokens of {size:,} bytes of text")
    else:
        show(options.text, tokenizer, SPECIAL[options.special])


def main(arguments=None):
    """Exit status: 0 done, 2 wrong use or a file that cannot be read or written, 130 stopped by Ctrl-C."""
    options = parse_arguments(arguments)
    return exit_status("tokenize_text.py", lambda: explained(options))


def explained(options):
    """`run`, whose problems are said in this program's words."""
    try:
        run(options)
    except ValueError as error:
        hints = [f" Here these are {options}." for words, options in IN_OPTIONS.items() if words in str(error)]
        raise ValueError("".join([str(error), *hints])) from None
    except KeyboardInterrupt:
        print("Stopped; nothing was written.", file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.exit(main())
