"""CUDA C++ to machine code of a GPU, by NVRTC: needs its library, and neither a GPU nor a driver nor CUDA's headers."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass

from euler_ir.backends.cuda.toolkit import load_library
from euler_ir.errors import LoweringError

OPTIONS = ("--std=c++17", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "-Xptxas", "-v")
"""Denormals are kept, quotients and roots are rounded correctly; the log names the resources of each kernel."""
_NAMES = ("libnvrtc.so.12", "libnvrtc.so.13")
"""The older first: torch may bring a newer one than the driver knows, and every driver knows the code of older ones."""
_PACKAGES = ("nvidia.cu13", "nvidia.cuda_nvrtc")


@dataclass(frozen=True)
class Resources:
    """What a kernel takes: ``registers`` of each thread, bytes of static ``shared`` memory of each block, and bytes
    that each thread stores (``spill_stores``) and loads (``spill_loads``) because registers ran out, of its ``stack``.
    """

    registers: int
    shared: int
    spill_stores: int
    spill_loads: int
    stack: int


@dataclass(frozen=True)
class Compiled:
    """``cubin``, an ELF file of machine code, the ``ptx`` between, and the ``resources`` of its kernels by name."""

    cubin: bytes
    ptx: str
    resources: dict[str, Resources]


@functools.cache
def library() -> ctypes.CDLL:
    """NVRTC, of CUDA 12, else of 13. Raises LoweringError when there is none."""
    return load_library(_NAMES, _PACKAGES, "NVRTC, which compiles CUDA", hint="pip install nvidia-cuda-nvrtc-cu12")


def version() -> tuple[int, int]:
    """The version of CUDA that NVRTC is of, such as (12, 9)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def target_for(major: int, minor: int) -> str:
    """What to compile for where a GPU has compute capability ``major``.``minor``: itself, such as 'sm_90', or if it is
    newer than NVRTC the newest that it can run, as PTX, such as 'compute_90', which the driver compiles.
    """
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    known = (ctypes.c_int * count.value)()
    _check(library().nvrtcGetSupportedArchs(known))
    wanted = 10 * major + minor
    if wanted in known:
        return f"sm_{wanted}"
    older = [each for each in known if each < wanted]
    if not older:
        raise LoweringError(f"NVRTC of CUDA {'.'.join(map(str, version()))} knows no GPU as old as sm_{wanted}")
    return f"compute_{max(older)}"


def compile_cuda(source: str, architecture: str, name: str = "kernels.cu") -> Compiled:
    """``source`` for ``architecture``, such as 'sm_90'. Raises LoweringError with NVRTC's messages."""
    nvrtc, program = library(), ctypes.c_void_p()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None))
    try:
        options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={architecture}")]
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _text(program, "ProgramLog")
        if status:
            raise LoweringError(f"NVRTC refuses {name} for {architecture}", details=log.splitlines()[:40])
        return Compiled(_bytes(program, "CUBIN"), _text(program, "PTX"), _resources(log))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(program: ctypes.c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace")


def _check(status: int) -> None:
    if status:
        library().nvrtcGetErrorString.restype = ctypes.c_char_p
        raise LoweringError(f"NVRTC: {library().nvrtcGetErrorString(status).decode()}")


_KERNEL = re.compile(
    r"Function properties for (?P<name>\S+)\n\D*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def _resources(log: str) -> dict[str, Resources]:
    found = {}
    for match in _KERNEL.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        numbers = (int(match[part]) for part in ("stores", "loads", "stack"))
        found[match["name"]] = Resources(int(match["registers"]), int(shared[1]) if shared else 0, *numbers)
    return found
