"""How parameters and state begin. An initial value is a function of (seed, name): adding a layer changes no other."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import as_dtype, convert

# Elements drawn at once: few enough for the caches, enough for threads not to wait for Python's lock.
_DRAWN_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Initializer(ABC):
    """Base of all initialisers."""

    @abstractmethod
    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        """Write the first value of the tensor ``name`` into ``array``: contiguous, and zeros. Called on any thread."""


@dataclass(frozen=True)
class Zeros(Initializer):
    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        """Memory that nobody has written yet is zeros, and costs nothing before it is used."""


@dataclass(frozen=True)
class Ones(Initializer):
    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        array[...] = 1


@dataclass(frozen=True)
class Full(Initializer):
    """Every element is ``value``."""

    value: float

    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        array[...] = convert(self.value, as_dtype(array.dtype))


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal with mean 0 and standard deviation ``deviation``."""

    deviation: float = 0.02

    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        generator = _generator(name, seed)
        _draw(array, lambda count: generator.standard_normal(count) * self.deviation)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between ``-bound`` and ``bound``."""

    bound: float

    def fill(self, array: np.ndarray, name: str, seed: int) -> None:
        generator = _generator(name, seed)
        _draw(array, lambda count: generator.uniform(-self.bound, self.bound, count))


INITIALIZERS: dict[str, type[Initializer]] = {
    "zeros": Zeros,
    "ones": Ones,
    "full": Full,
    "normal": Normal,
    "uniform": Uniform,
}
"""Initializers under the names that the text form uses."""


def _generator(name: str, seed: int) -> np.random.Generator:
    key = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))


def _draw(array: np.ndarray, draw: Callable[[int], np.ndarray]) -> None:
    """Fill ``array`` with the f64 numbers of ``draw``, in order."""
    flat, dtype = array.reshape(-1), as_dtype(array.dtype)
    for start in range(0, flat.size, _DRAWN_AT_ONCE):
        part = flat[start : start + _DRAWN_AT_ONCE]
        part[...] = convert(draw(part.size), dtype)
