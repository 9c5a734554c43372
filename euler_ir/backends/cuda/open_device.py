"""Devices by the names of their backends, each opened once in a process."""

from __future__ import annotations

import functools
import os
from types import ModuleType

from euler_ir.backends.cuda.device import Device
from euler_ir.errors import LoweringError

OLDEST_CUPY = 13
OLDEST_CUDA = 12
OLDEST_CAPABILITY = (8, 0)
"""What the kernels need: asynchronous copies into shared memory, and bf16 on tensor cores."""
_PACKAGES = "pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12 nvidia-cublas-cu12"
_ON_CPU = 'the backend "cpu" needs no GPU'


def open_device(backend: str) -> Device:
    """The device of ``backend``: 'cuda' (the first GPU), 'cuda:1' (the second), or 'cuda-emulator'.

    All who ask for one share it. Raises LoweringError that says what is missing.
    """
    kind, _, number = backend.partition(":")
    # What a parent has opened is not its forked child's, which gets its own: on a GPU, an error that says so.
    return _opened(kind, int(number or 0), os.getpid())


@functools.cache
def _opened(kind: str, number: int, process: int) -> Device:
    if kind == "cuda-emulator":
        from euler_ir.backends.cuda.emulator.device import EmulatedDevice

        return EmulatedDevice(kind)
    _expect_gpu(_cupy(), number)
    from euler_ir.backends.cuda.cupy_device import CupyDevice

    return CupyDevice(f"{kind}:{number}" if number else kind, number)


def _cupy() -> ModuleType:
    """CuPy. Raises LoweringError when it is absent, does not load, or is too old."""
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise _absence(f"CuPy, which reaches the GPU, lacks the package {error.name}", _PACKAGES) from None
        raise _absence("there is no CuPy, which reaches the GPU", _PACKAGES) from None
    except ImportError as error:
        raise _absence("CuPy, which reaches the GPU, does not load", _PACKAGES, str(error)) from None
    if int(cupy.__version__.partition(".")[0]) < OLDEST_CUPY:
        raise _absence(f"CuPy {cupy.__version__} is too old: {OLDEST_CUPY} is the oldest that will do", _PACKAGES)
    if cupy.cuda.runtime.is_hip:
        raise _absence("this CuPy is for AMD's GPUs, and CUDA is NVIDIA's", _PACKAGES)
    return cupy


def _expect_gpu(cupy: ModuleType, number: int) -> None:
    """Raise LoweringError unless there is GPU ``number``, with a driver that fits, and it is new enough."""
    cuda = cupy.cuda.runtime
    known, needed = cuda.driverGetVersion(), cuda.runtimeGetVersion()
    if not known:
        raise _absence(
            "there is no NVIDIA driver, so no GPU can be used",
            "install NVIDIA's driver, or show its GPUs to this container (docker run --gpus all)",
        )
    if known // 1000 < needed // 1000:
        older = f", or pip uninstall this CuPy and pip install cupy-cuda{known // 1000}x"
        raise _absence(
            f"the NVIDIA driver knows CUDA {_version(known)} at most, and this CuPy needs {needed // 1000}",
            f"update the driver{older if known // 1000 >= OLDEST_CUDA else ''}",
        )
    try:
        count = cuda.getDeviceCount()
    except cuda.CUDARuntimeError as error:
        raise _absence("there is no GPU that CUDA can use", "nvidia-smi lists the GPUs", str(error)) from None
    if number >= count:
        raise _absence(f"there is no GPU {number}: there are {count}, counted from 0", "nvidia-smi lists the GPUs")
    properties = cuda.getDeviceProperties(number)
    capability = properties["major"], properties["minor"]
    if capability < OLDEST_CAPABILITY:
        raise _absence(
            f"GPU {number}, {properties['name'].decode()}, has compute capability {_dotted(capability)}",
            f"{_dotted(OLDEST_CAPABILITY)} (A100, RTX 30) is the least",
        )
    _expect_compiler(known)


def _expect_compiler(known: int) -> None:
    from euler_ir.backends.cuda import nvrtc

    version = nvrtc.version()
    if version[0] > known // 1000:
        raise _absence(
            f"NVRTC is of CUDA {_dotted(version)}, and the NVIDIA driver knows {_version(known)} at most",
            f"update the driver, or pip install nvidia-cuda-nvrtc-cu{known // 1000}",
        )


def _absence(message: str, remedy: str, *details: str) -> LoweringError:
    return LoweringError(message, details=details, hint=f"{remedy}; {_ON_CPU}")


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
