"""How parameters and state begin. An initial value is a function of (seed, name): adding a layer changes no other."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import convert
from euler_ir.shapes import TensorType


@dataclass(frozen=True)
class Initializer(ABC):
    """Base of all initialisers."""

    @abstractmethod
    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        """The first value of the tensor ``name``, of ``type``."""


@dataclass(frozen=True)
class Zeros(Initializer):
    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        return np.zeros(type.shape, type.dtype.numpy)


@dataclass(frozen=True)
class Ones(Initializer):
    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        return np.ones(type.shape, type.dtype.numpy)


@dataclass(frozen=True)
class Full(Initializer):
    """Every element is ``value``."""

    value: float

    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        return np.full(type.shape, convert(self.value, type.dtype))


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal with mean 0 and standard deviation ``deviation``."""

    deviation: float = 0.02

    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        draws = _generator(name, seed).standard_normal(type.shape) * self.deviation
        return convert(draws, type.dtype)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between ``-bound`` and ``bound``."""

    bound: float

    def array(self, type: TensorType, name: str, seed: int) -> np.ndarray:
        draws = _generator(name, seed).uniform(-self.bound, self.bound, type.shape)
        return convert(draws, type.dtype)


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
