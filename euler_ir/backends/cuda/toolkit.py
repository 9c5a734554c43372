"""Where parts of NVIDIA's toolkit are: in packages of PyPI, then in the toolkit that CUDA_PATH names."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from euler_ir.errors import LoweringError


def installed(names: Sequence[str], packages: Sequence[str], folder: str) -> Iterator[Path]:
    """The files of one of ``names`` that are there: in ``folder``, 'lib' or 'bin', of ``packages`` and the toolkit."""
    places = []
    for package in packages:
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            continue
        places += [Path(place) / folder for place in (found and found.submodule_search_locations) or ()]
    if "CUDA_PATH" in os.environ:
        places.append(Path(os.environ["CUDA_PATH"]) / {"lib": "lib64"}.get(folder, folder))
    for place in places:
        yield from (place / name for name in names if (place / name).exists())


def load_library(names: Sequence[str], packages: Sequence[str], purpose: str, hint: str) -> ctypes.CDLL:
    """The first library of ``names`` that loads: each in ``packages``, in the toolkit, then where the system looks.

    Raises LoweringError, saying that there is no ``purpose``, with ``hint`` and what the system says.
    """
    tried = []
    for name in names:
        for path in (*installed((name,), packages, "lib"), name):
            try:
                return ctypes.CDLL(str(path))
            except OSError as error:
                tried.append(str(error))
    raise LoweringError(f"there is no {purpose}", details=tuple(tried[-2:]), hint=hint)
