"""Token ids on disk: a 64-byte header that says what the ids are, then the ids, little-endian.

The header holds, in order: magic (8 bytes), version (u32), bytes per id (u32: 2 for vocabularies of up to 65,536
ids, else 4), number of ids (u64), end-of-text id (i64, -1 for none), fingerprint of the tokenizer (32 bytes).
"""

import struct
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from models.files import replacing
from models.tokenizer.byte_table import row_of_ids

MAGIC = b"EULERTOK"
VERSION = 1
HEADER = struct.Struct("<8sIIQq32s")
CHECKED_BYTES = 1 << 22


def check_token_ids(tokens, vocab_size, source):
    """Raise ValueError if a token id of `source` (words for the message) lies outside a model's vocabulary."""
    for token_id in (int(tokens.min()), int(tokens.max())) if len(tokens) else ():
        if not 0 <= token_id < vocab_size:
            raise ValueError(
                f"{source} contains token id {token_id}, but the vocabulary has {vocab_size} ids. "
                "Tokenize the text with the tokenizer that belongs to the model."
            )


def write_token_file(path, tokens, tokenizer):
    """Write integer[tokens] ids made by `tokenizer`; an existing file is replaced in one step.

    Raises ValueError for an id that is not the tokenizer's.
    """
    with token_file_writer(path, tokenizer) as writer:
        writer.append(tokens)


@contextmanager
def token_file_writer(path, tokenizer):
    """A TokenFileWriter of a file that takes the place of `path` when the block ends without an exception."""
    with replacing(path) as file:
        writer = TokenFileWriter(file, tokenizer)
        yield writer
        writer.write_header()


class TokenFileWriter:
    """Writes ids made by `tokenizer` a part at a time; `count` is their number so far."""

    def __init__(self, file, tokenizer):
        self.count = 0
        self._file, self._tokenizer, self._dtype = file, tokenizer, _id_dtype(tokenizer)
        # Until the number of ids is known, zeros stand where the header goes.
        file.write(bytes(HEADER.size))

    def append(self, tokens):
        """Write integer[tokens] ids. Raises ValueError for one that is not the tokenizer's, and for other arrays."""
        tokens = row_of_ids(tokens)
        check_token_ids(tokens, self._tokenizer.vocab_size, "The token array")
        self._file.write(np.ascontiguousarray(tokens, self._dtype))
        self.count += len(tokens)

    def write_header(self):
        """Write what the file is, which completes it."""
        self._file.seek(0)
        identity = _identity(self._tokenizer)
        self._file.write(HEADER.pack(MAGIC, VERSION, self._dtype.itemsize, self.count, *identity))


def is_token_file(path):
    """Whether a file says at its beginning that it is a token file. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_token_file(path, tokenizer, check_ids=True):
    """Map the ids of a token file read-only: u16[tokens], or u32[tokens] for a vocabulary above 65,536.

    Raises FileNotFoundError, or ValueError if the file is not a token file, is cut short, was written with another
    tokenizer or, unless `check_ids` is False because this has been looked at before, holds ids outside the vocabulary.
    """
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise ValueError(f"{path} is not a token file. Expected a file written by write_token_file.")
    _, version, item_size, count, *identity = HEADER.unpack(header)
    if version != VERSION:
        raise ValueError(f"{path} is a token file of version {version}, this program reads version {VERSION}.")
    if size != HEADER.size + count * item_size:
        raise ValueError(
            f"{path} should hold {count} tokens in {HEADER.size + count * item_size} bytes but has {size} bytes. "
            "It was probably cut short; write it again."
        )
    dtype = _id_dtype(tokenizer)
    if identity != _identity(tokenizer) or item_size != dtype.itemsize:
        raise ValueError(f"{path} was written with another tokenizer. Tokenize the text again with this one.")
    if check_ids:
        _check_ids_of_file(path, dtype, tokenizer.vocab_size)
    return np.memmap(path, dtype, mode="r", offset=HEADER.size)


def _check_ids_of_file(path, dtype, vocab_size):
    """As `check_token_ids`, through a small buffer: pages of a map would count as memory of this process."""
    with open(path, "rb") as file:
        file.seek(HEADER.size)
        while data := file.read(CHECKED_BYTES):
            check_token_ids(np.frombuffer(data, dtype), vocab_size, path)


def _id_dtype(tokenizer):
    return np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")


def _identity(tokenizer):
    end_of_text = -1 if tokenizer.end_of_text_id is None else tokenizer.end_of_text_id
    return [end_of_text, bytes.fromhex(tokenizer.fingerprint)]
