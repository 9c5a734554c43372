"""What a corpus is made of: sources, each with its share of the windows, and the files that each one names."""

import mmap
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np

from models.data.corpus import read_corpus
from models.data.token_files import is_token_file
from models.files import check_regular

KEPT_BYTES = 1 << 26
"""Files of a source that are smaller together stay in memory once they were read."""

LARGEST_WEIGHT = 1e9
"""Sums of weights stay numbers."""


@dataclass(frozen=True)
class SourceFiles:
    """A source as the user names it. `weight` is its share of the windows, relative to those of the others."""

    name: str
    weight: float
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, words):
        """From the words after one --corpus: files, folders of token files, patterns; the last may end in ':weight'.

        Raises FileNotFoundError for what is not there, ValueError for a wrong weight, or texts and token files mixed.
        """
        *others, last = words
        last, weight = _split_weight(last)
        paths = tuple(path for word in (*others, last) for path in _paths(word))
        kinds = {is_token_file(path) for path in paths}
        if len(kinds) > 1:
            raise ValueError(f"{' '.join(words)}: texts and token files are two sources. Give each its own --corpus.")
        more = f" and {len(others)} more" if others else ""
        return cls(f"{Path(others[0] if others else last).name}{more}", weight, paths)

    @property
    def holds_tokens(self):
        return is_token_file(self.paths[0])

    def text(self, separator):
        """The texts of all files, with `separator` between them. Raises as `read_corpus`."""
        return separator.join(read_corpus(path) for path in self.paths)


def _split_weight(word):
    name, colon, number = word.rpartition(":")
    if not colon or Path(word).exists():
        return word, 1.0
    try:
        weight = float(number)
    except ValueError:
        return word, 1.0
    if not 0 < weight <= LARGEST_WEIGHT:
        raise ValueError(f"The weight of {name} must be above 0 and at most {LARGEST_WEIGHT:g}, not {number}.")
    return name, weight


def _paths(word):
    path = Path(word)
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if each.is_file() and is_token_file(each))
        if not found:
            raise IsADirectoryError(f"{path} is a folder without token files. Give the path of a text file.")
        return found
    found = [path] if path.exists() else sorted(map(Path, glob(word)))
    for each in found or [path]:
        check_regular(each, "text file or token file")
    return found


class Source:
    """Token ids to draw windows from: `pieces`, integer [tokens] each, which no window crosses."""

    def __init__(self, name, pieces, weight=1.0):
        self.name, self.weight = name, weight
        self.pieces = [piece for piece in pieces if len(piece)]
        self._maps = {id(base): base for base in map(_map_below, self.pieces) if base is not None}

    def __len__(self):
        return sum(map(len, self.pieces))

    def window_count(self, context):
        """How many windows of `context` tokens and the target of the last one there are."""
        return sum(max(0, len(piece) - context) for piece in self.pieces)

    def windows(self, numbers, context):
        """The windows of these numbers, from 0 to `window_count`: i32[windows, context + 1]."""
        ends = np.cumsum([max(0, len(piece) - context) for piece in self.pieces])
        found = np.empty((len(numbers), context + 1), np.int32)
        for row, number in enumerate(numbers):
            index = int(np.searchsorted(ends, number, side="right"))
            start = int(number - (ends[index - 1] if index else 0))
            found[row] = self.pieces[index][start : start + context + 1]
        self._release()
        return found

    def _release(self):
        """Hand mapped pages back: they would count as this process's memory, until whole files did."""
        if sum(map(len, self._maps.values())) > KEPT_BYTES:
            for each in self._maps.values():
                each.madvise(mmap.MADV_DONTNEED)


def _map_below(array):
    """The memory map that an array is a part of, or None."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") else None
