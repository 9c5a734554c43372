"""A corpus made ready for a run: token files in its folder or elsewhere, described in JSON with their fingerprints."""

import hashlib
import os
from pathlib import Path

from models.data.corpus import HELD_OUT, split_corpus
from models.data.sources import Source
from models.data.token_files import read_token_file, write_token_file

TOKEN_FILES = "train.tokens", "validation.tokens"


def prepare_corpus(folder, sources, tokenizer, separator):
    """Write the token files of the text sources into `folder`, and describe all sources: see `open_corpus`.

    `sources` are SourceFiles. Raises ValueError for a token file that is not sound or of another tokenizer, OSError.
    """
    described = []
    for number, source in enumerate(sources):
        if source.holds_tokens:
            files = [_token_file(path.resolve(), tokenizer) for path in source.paths]
        else:
            files = []
            for name, text in zip(TOKEN_FILES, split_corpus(source.text(separator)), strict=True):
                tokens = tokenizer.encode_to_numpy(text, allowed_special="all")
                path = folder / (f"{number + 1}-{name}" if number else name)
                write_token_file(path, tokens, tokenizer)
                held_out = name == TOKEN_FILES[1]
                files.append(fingerprint(path) | {"path": path.name, "cut": 0 if held_out else len(tokens)})
        described.append({"name": source.name, "weight": source.weight, "files": files})
    _tell_apart(described, sources)
    return {"sources": described}


def open_corpus(folder, data, tokenizer):
    """(training sources, validation sources), lists of Source in one order, of what `prepare_corpus` described.

    Raises FileNotFoundError or ValueError, naming the file, when one is gone or is not what it was.
    """
    training, validation = [], []
    for source in data["sources"]:
        pieces = [(_opened(folder / file["path"], file, tokenizer), file["cut"]) for file in source["files"]]
        name, weight = source["name"], source["weight"]
        training.append(Source(name, [tokens[:cut] for tokens, cut in pieces], weight))
        validation.append(Source(name, [tokens[cut:] for tokens, cut in pieces], weight))
    return training, validation


def _token_file(path, tokenizer):
    tokens = read_token_file(path, tokenizer)
    return fingerprint(path) | {"path": str(path), "cut": int(len(tokens) * (1 - HELD_OUT))}


def fingerprint(path):
    """What `check_unchanged` knows a file by, as JSON can hold it."""
    return {**_looks(path), "sha256": _sha256(path)}


def check_unchanged(path, file):
    """Raise FileNotFoundError or ValueError when `path` is gone, or has another `fingerprint` than `file`."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is gone, and the run learns from it. Put it back to continue.")
    # As with git, a file that looks as it did is not read anew: shards may be larger than memory.
    if _looks(path) != {name: file[name] for name in ("size", "modified")} and _sha256(path) != file["sha256"]:
        raise ValueError(
            f"{path} is not what it was when the run began. Put the old file back, or begin another run with --out."
        )


def _opened(path, file, tokenizer):
    check_unchanged(path, file)
    return read_token_file(path, tokenizer, check_ids=False)


def _looks(path):
    status = os.stat(path)
    return {"size": status.st_size, "modified": status.st_mtime_ns}


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tell_apart(described, sources):
    """Sources of one name get the paths of their first files for names."""
    names = [source["name"] for source in described]
    for source, files in zip(described, sources, strict=True):
        if names.count(source["name"]) > 1:
            source["name"] = str(Path(files.paths[0]))
