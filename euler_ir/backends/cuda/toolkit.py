"""Where parts of NVIDIA's toolkit are: in packages of PyPI, then in the toolkit that CUDA_PATH names."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path


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
