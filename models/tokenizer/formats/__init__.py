"""Reading and writing tokenizers as files, in this program's own format and in others'.

| format      | files                                                                                  |
|-------------|----------------------------------------------------------------------------------------|
| native      | one JSON file, for every kind of tokenizer                                             |
| gpt2        | `encoder.json` and `vocab.bpe` in a folder; also read as `vocab.json` and `merges.txt` |
| huggingface | `tokenizer.json`                                                                       |
| tiktoken    | `NAME.tiktoken`, without special tokens and pattern                                    |
"""

from pathlib import Path

from models.files import read_json
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import gpt2_files, native, tiktoken_ranks, tokenizer_json

FORMATS = {"native": native, "gpt2": gpt2_files, "huggingface": tokenizer_json, "tiktoken": tiktoken_ranks}


def load_tokenizer(path, special_tokens=None, pattern=None):
    """Read a tokenizer from a file in any of the formats, or from a folder that holds such files.

    `special_tokens`, and for tiktoken `pattern`, say what a file leaves open: see `tiktoken_ranks.read` and
    `gpt2_files.read`. Raises FileNotFoundError, or ValueError that names the file and the place in it, or what is
    said wrongly.
    """
    path = Path(path)
    if pattern is not None:
        tiktoken_ranks.check_pattern(pattern)
    if path.is_dir():
        if (path / "tokenizer.json").exists():
            path = path / "tokenizer.json"
        else:
            return gpt2_files.read(path, special_tokens)
    if path.name in {name for pair in gpt2_files.NAMES for name in pair}:
        return gpt2_files.read(path.parent, special_tokens)
    if path.suffix == ".tiktoken":
        return tiktoken_ranks.read(path, special_tokens, pattern)
    try:
        document = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is not a tokenizer file: {error}") from None
    tokenizer = (tokenizer_json if "model" in document else native).read(path)
    if special_tokens is not None and set(special_tokens) != set(tokenizer.special_tokens):
        raise ValueError(
            f"{path} has the special tokens {list(tokenizer.special_tokens)}, not {list(special_tokens)}. "
            "Tokenizer.with_special_tokens adds more."
        )
    return tokenizer


def save_tokenizer(tokenizer, path, format="native"):
    """Write a tokenizer; `path` is a file, for "gpt2" a folder. What was there is replaced when all is written.

    Raises ValueError for a format that there is not or that cannot hold this tokenizer, and OSError.
    """
    if format not in FORMATS:
        raise ValueError(f"There is no tokenizer format {format!r}. The formats are {', '.join(FORMATS)}.")
    if format != "native" and not isinstance(tokenizer, Tokenizer):
        raise ValueError(f"The format {format!r} holds byte-level BPE only. Use 'native' for other tokenizers.")
    FORMATS[format].write(tokenizer, path)
