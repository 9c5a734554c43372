"""The emulator's own library with cuBLASLt's C interface, which computes on the CPU; see cublaslt.cpp."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

from euler_ir import cache
from euler_ir.errors import LoweringError

_FOLDER = Path(__file__).parent
_SOURCES = ("cublaslt.cpp", "objects.h", "product.h")
_COMMAND = ("g++", "-std=c++17", "-O2", "-ftree-vectorize", "-ffp-contract=off", "-fPIC", "-shared")


@functools.cache
def load() -> ctypes.CDLL:
    """The library, compiled by g++ unless the cache has it. Raises LoweringError without g++."""
    key = (*_COMMAND, *((_FOLDER / name).read_text() for name in _SOURCES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "libcublasLt.so")
        code = cache.load("emulated cublaslt", *key)
        if code is None:
            _compile(path)
            cache.store(path.read_bytes(), "emulated cublaslt", *key)
        else:
            path.write_bytes(code)
        return ctypes.CDLL(str(path))


def _compile(path: Path) -> None:
    command = [*_COMMAND, "-o", str(path), str(_FOLDER / _SOURCES[0])]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise LoweringError("the emulator needs a C++ compiler", hint="install g++") from None
    except subprocess.CalledProcessError as error:
        raise LoweringError("g++ refuses the emulator's cuBLASLt", details=tuple(error.stderr.splitlines())) from None
