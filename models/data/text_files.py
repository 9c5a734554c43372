"""Whole files of text to a token file, a block at a time, so that they may be larger than memory."""

import os
import re
import stat
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from models.data.token_files import token_file_writer
from models.tokenizer.unicode_classes import SPACE, class_table

BLOCK_BYTES = 1 << 22
SHORTEST_SEARCH = 1 << 10


def encode_file(tokenizer, sources, destination, *, separator=None, allowed_special=(), disallowed_special="all"):
    """Write the ids of one UTF-8 file, or of several in order, as the token file `destination`; returns their number.

    `separator` is a special token to put between the files, such as "<|endoftext|>". Special tokens in the texts are
    treated as `encode` does. Line ends and byte order marks are text like any other, and so are bytes that are not
    UTF-8. `destination` is written whole or, on any error, left as it was. Raises FileNotFoundError, OSError, and
    ValueError: naming file and line for a special token that is not allowed, and for a file that changes meanwhile.
    """
    sources = [Path(source) for source in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not sources:
        raise ValueError("There is no file to encode. Give at least one.")
    if separator is not None and separator not in tokenizer.special_tokens:
        raise ValueError(f"The separator {separator!r} is not a special token of this vocabulary.")
    if any(source.resolve() == Path(destination).resolve() for source in sources):
        raise ValueError(f"{destination} is a source and the destination. Write the tokens to another file.")
    permissions = {"allowed_special": allowed_special, "disallowed_special": disallowed_special}
    special_tokens = {*tokenizer.special_tokens, *(() if disallowed_special == "all" else disallowed_special)}
    with token_file_writer(destination, tokenizer) as writer:
        for index, source in enumerate(sources):
            if index and separator is not None:
                writer.append([tokenizer.special_tokens[separator]])
            line = 1
            with open(source, "rb") as file:
                before = _state_of(file)
                for block, ids in _encoded(tokenizer, text_blocks(file, special_tokens), permissions):
                    try:
                        writer.append(ids.result())
                    except ValueError as error:
                        raise ValueError(f"{source}, line {line} or after: {error}") from None
                    line += block.count(b"\n")
                if _state_of(file) != before:
                    raise ValueError(f"{source} was changed while it was read. Encode it when nobody writes to it.")
    return writer.count


def _state_of(file):
    """What changes when an open file is written; of a pipe, whose text comes while it is read, nothing."""
    status = os.fstat(file.fileno())
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _encoded(tokenizer, blocks, permissions):
    """Yield (block, future of its ids) in order, while as many blocks as there are threads are being encoded."""
    # Here, since it takes long: what does not write files starts without it.
    from euler_ir.native import default_threads

    threads = default_threads()
    with ThreadPoolExecutor(threads) as pool:
        begun = deque()
        for block in blocks:
            begun.append((block, pool.submit(tokenizer.encode_to_numpy, block, **permissions)))
            if len(begun) > threads:
                yield begun.popleft()
        yield from begun


def text_blocks(file, special_tokens=()):
    """Yield the bytes of a binary file in blocks of about BLOCK_BYTES that have the same ids apart as together.

    A block ends where no piece and no special token crosses. Only a stretch without any such place makes a longer one.
    """
    special_tokens = [token.encode("utf-8") for token in special_tokens]
    longest = max(map(len, special_tokens), default=1)
    data, searched = bytearray(), 0
    while more := file.read(BLOCK_BYTES):
        data += more
        end = len(data) - longest
        if cut := _late_cut(data, searched, end, special_tokens):
            yield bytes(data[:cut])
            del data[:cut]
            searched = 0
        else:
            searched = max(0, end)
    yield bytes(data)


def _late_cut(data, start, end, special_tokens):
    """A place near `end` of data[start:end] where it can be cut, or None."""
    stretch = SHORTEST_SEARCH
    while True:
        places = (match.start() for match in _safe_cut().finditer(data, max(start, end - stretch), max(end, 0)))
        cut = next((place for place in places if not _inside_special(data, place, special_tokens)), None)
        if cut or end - stretch <= start:
            return cut
        stretch *= 8


def _inside_special(data, cut, special_tokens):
    spans = ((token, max(0, cut - len(token) + 1), cut + len(token) - 1) for token in special_tokens)
    return any(data.find(token, *span) >= 0 for token, *span in spans)


@cache
def _safe_cut():
    """A blank or newline after something that is not white space: as SAFE_CUT, for UTF-8 bytes."""
    spaces = [chr(point).encode("utf-8") for point in np.flatnonzero(class_table() == SPACE)]
    not_after_space = b"".join(b"(?<!%s)" % re.escape(space) for space in spaces)
    return re.compile(rb"(?<=[\x00-\xff])" + not_after_space + rb"[ \n]")
