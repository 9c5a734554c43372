"""The C++ compiler that makes kernels run here, and the libraries that it made, kept in the cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from euler_ir import cache
from euler_ir.errors import LoweringError

FOLDER = Path(__file__).parent
INCLUDE = FOLDER / "include"

# Multiply-adds are contracted only where the processor has one; f16 is converted in one instruction.
_PROCESSOR_OPTIONS = {"avx2": "-mavx2", "fma": "-mfma", "f16c": "-mf16c"}
_OPTIONS = ("-std=c++17", "-fPIC", "-shared", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math")


@functools.cache
def compiler() -> str:
    """Where g++ is. Raises LoweringError when there is none."""
    path = shutil.which("g++")
    if path is None:
        raise LoweringError("the emulator needs g++, and there is none", hint="apt install g++, or dnf install gcc-c++")
    return path


@functools.cache
def identity() -> tuple[str, ...]:
    """What a library depends on besides its source: the compiler, the processor, and the emulator's headers."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    headers = (path.read_text() for folder in (INCLUDE, FOLDER / "runtime") for path in sorted(folder.glob("*.h")))
    return (compiler(), version, platform.machine(), *processor_options(), *headers)


@functools.cache
def processor_options() -> tuple[str, ...]:
    """g++ options for what this processor can do beyond the least of its kind."""
    try:
        features = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ()
    return tuple(option for feature, option in _PROCESSOR_OPTIONS.items() if feature in features)


def library(name: str, sources: list[Path] | str, options: tuple[str, ...]) -> bytes:
    """The shared library of ``sources``, files or the text of one, from the cache if it is there.

    Files may include headers that lie beside them. Raises LoweringError with g++'s messages, in which a text is called
    ``name``.
    """
    texts = [sources] if isinstance(sources, str) else [path.read_text() for path in (*sources, *_headers(sources))]
    key = (*identity(), *options, name, *texts)
    found = cache.load("cuda emulator", *key)
    if found is None:
        found = _compile(name, sources, options)
        cache.store(found, "cuda emulator", *key)
    return found


def _headers(sources: list[Path]) -> list[Path]:
    return sorted({header for path in sources for header in path.parent.glob("*.h")})


def _compile(name: str, sources: list[Path] | str, options: tuple[str, ...]) -> bytes:
    with _temporary(tempfile.TemporaryDirectory) as folder:
        target = Path(folder, "library.so")
        files = ["-"] if isinstance(sources, str) else [str(path) for path in sources]
        command = [compiler(), *_OPTIONS, *processor_options(), f"-I{INCLUDE}", *options, "-x", "c++", *files]
        command += ["-o", str(target)]
        run = subprocess.run(command, input=sources if isinstance(sources, str) else "", capture_output=True, text=True)
        if run.returncode:
            raise LoweringError(f"g++ refuses {name}", details=tuple(run.stderr.splitlines()[:40]))
        return target.read_bytes()


@contextlib.contextmanager
def _temporary(kind: Callable) -> Iterator:
    """A file or folder of that ``kind`` of `tempfile`. Raises LoweringError where it cannot be written or used."""
    try:
        with kind(prefix="euler_ir_") as made:
            yield made
    except OSError as error:
        raise LoweringError(
            f"the emulator cannot use a file in {tempfile.gettempdir()}: {error.strerror or error}",
            hint="set TMPDIR to a folder with room, whose files may be run",
        ) from None


def load(content: bytes, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """The library whose bytes are ``content``, in this process."""
    with _temporary(tempfile.NamedTemporaryFile) as file:
        file.write(content)
        file.flush()
        return ctypes.CDLL(file.name, mode)


def source_lines(library: bytes, offset: int) -> list[tuple[str, int]]:
    """The file and line of an instruction of ``library``, then those that call the functions which it is inlined in.

    Nothing where it cannot be found out.
    """
    tool = shutil.which("addr2line")
    if tool is None:
        return []
    with _temporary(tempfile.NamedTemporaryFile) as file:
        file.write(library)
        file.flush()
        run = subprocess.run([tool, "-i", "-e", file.name, hex(offset)], capture_output=True, text=True)
    found = (re.fullmatch(r"(.*):(\d+)(?: .*)?", line) for line in run.stdout.splitlines())
    return [(match[1], int(match[2])) for match in found if match]


_one_runtime = threading.Lock()


def runtime() -> ctypes.CDLL:
    """The emulator's runtime, whose symbols the libraries of kernels use."""
    with _one_runtime:
        return _runtime()


@functools.cache
def _runtime() -> ctypes.CDLL:
    sources = sorted((FOLDER / "runtime").glob("*.cpp"))
    loaded = load(library("the emulator's runtime", sources, ("-O3", "-ffp-contract=off")), ctypes.RTLD_GLOBAL)
    loaded.cuda_emulator_allocate.restype = ctypes.c_void_p
    loaded.cuda_emulator_allocate.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p)
    loaded.cuda_emulator_free.restype = ctypes.c_bool
    loaded.cuda_emulator_free.argtypes = (ctypes.c_void_p,)
    loaded.cuda_emulator_bytes_at.restype = ctypes.c_longlong
    loaded.cuda_emulator_bytes_at.argtypes = (ctypes.c_void_p,)
    loaded.cuda_emulator_describe.restype = None
    loaded.cuda_emulator_describe.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)
    loaded.cuda_emulator_launch.restype = ctypes.c_bool
    return loaded
