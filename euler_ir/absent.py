"""Arrays known by the hash of their content, whose data may be somewhere else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from euler_ir.errors import ExecutionError


def content(array: np.ndarray) -> np.ndarray:
    """The elements' little-endian bytes in row-major order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)


def content_hash(array: np.ndarray | AbsentArray) -> str:
    """The SHA-256 of the content, in hexadecimal digits."""
    return array.hash if isinstance(array, AbsentArray) else hashlib.sha256(content(array)).hexdigest()


@dataclass(frozen=True)
class AbsentArray:
    """What stands for the array of a constant whose text came without its data.

    A graph with it can be printed, verified and rewritten. Whatever needs the data, as numpy's functions do, raises
    ExecutionError; ``expected`` says for it where they should have been.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    hash: str
    expected: str = "a resource line of its text"

    def __array__(self, *args, **kwargs) -> NoReturn:
        raise ExecutionError(
            f"a constant of {self.dtype}{list(self.shape)} has no data here: sha256 {self.hash}",
            hint=f"they are expected in {self.expected}",
        )
