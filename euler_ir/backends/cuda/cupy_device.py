"""A GPU, through CuPy's bindings of CUDA's runtime and driver: what CUDA has, as `device` says it, and nothing more."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import cupy
import numpy as np
from cupy.cuda import driver
from cupy.cuda import runtime as cuda

from euler_ir import cache
from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.device import Device, Event, Graph, Module, Stream, check_launch
from euler_ir.backends.cuda.gemm import cublaslt
from euler_ir.backends.cuda.gemm.api import Api
from euler_ir.errors import ExecutionError
from euler_ir.threads import available_cores

OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation."""
_FAILURES = (cuda.CUDARuntimeError, driver.CUDADriverError)


class CupyDevice(Device):
    """GPU ``number``. Opened by `open_device`, which has looked whether there is one that fits."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self._context = name, _primary_context(number)
        properties = cuda.getDeviceProperties(number)
        self.model = properties["name"].decode()
        self._target = nvrtc.target_for(properties["major"], properties["minor"])
        self.architecture = self._target.replace("compute_", "sm_")
        self.most_shared_bytes = cuda.deviceGetAttribute(cuda.cudaDevAttrMaxSharedMemoryPerBlockOptin, number)

    @functools.cached_property
    def cublaslt(self) -> cublaslt.CublasLt:
        api = Api(cublaslt.load(cuda.runtimeGetVersion() // 1000), self.do)
        return cublaslt.CublasLt(api, cublaslt.workspace_bytes(self.architecture))

    def memory(self) -> tuple[int, int]:
        return self.do(cuda.memGetInfo)

    def allocate(self, nbytes: int) -> int:
        return self.do(cuda.malloc, nbytes)

    def free(self, address: int) -> None:
        self.do(cuda.free, address)

    def staging(self, nbytes: int) -> np.ndarray:
        pinned = self.do(lambda: cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(max(nbytes, 1)), 0))
        return np.frombuffer(pinned, np.uint8, nbytes)

    def load(self, sources: Iterable[Source]) -> list[Module]:
        sources = list(sources)
        with ThreadPoolExecutor(available_cores()) as pool:  # NVRTC runs without Python's lock
            codes = list(pool.map(self._code, sources))
        return [_Module(self, source, code) for source, code in zip(sources, codes, strict=True)]

    def stream(self) -> Stream:
        return _Stream(self)

    def event(self) -> Event:
        return _Event(self)

    def synchronize(self) -> None:
        self.do(cuda.deviceSynchronize)

    def do(self, function: Callable, *arguments):
        """``function(*arguments)`` with this device as the thread's current one, and afterwards the one that was.

        Raises ExecutionError when CUDA fails, and MemoryError when it lacks memory.
        """
        previous = driver.ctxGetCurrent()
        try:
            driver.ctxSetCurrent(self._context)
            return function(*arguments)
        except _FAILURES as error:
            if error.status == OUT_OF_MEMORY:
                raise MemoryError(str(error)) from None
            raise ExecutionError(f"{self.name}: {error}") from error
        finally:
            driver.ctxSetCurrent(previous)

    def _code(self, source: Source) -> bytes:
        """Machine code, or PTX for an architecture newer than NVRTC: the driver knows it better."""
        key = (str(nvrtc.version()), *nvrtc.OPTIONS, self._target, source.code)
        code = cache.load("cuda", *key)
        if code is None:
            compiled = nvrtc.compile_cuda(source.text, self._target, source.name)
            code = compiled.cubin or compiled.ptx.encode()
            cache.store(code, "cuda", *key)
        return code


def _primary_context(number: int) -> int:
    """The context of GPU ``number`` that all libraries of a process share.

    It is begun in a thread of its own: this one's current device stays what it is, and no other GPU gets a context.
    """

    def begin() -> int:
        cuda.setDevice(number)
        cuda.free(0)
        return driver.ctxGetCurrent()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(begin).result()


class _Module(Module):
    def __init__(self, device: CupyDevice, source: Source, code: bytes) -> None:
        self.source = source
        # Never unloaded: graphs may hold its kernels.
        module = device.do(driver.moduleLoadData, code + b"\0")
        self._functions = {name: device.do(driver.moduleGetFunction, module, name) for name in source.kernels}
        self._device = device
        self._shared = dict.fromkeys(source.kernels, 0)

    def function(self, kernel: str, shared_bytes: int) -> int:
        """The handle of ``kernel``, allowed to have as much dynamic shared memory: without that 48 KiB are the most."""
        if shared_bytes > self._shared[kernel]:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._device.do(driver.funcSetAttribute, self._functions[kernel], attribute, shared_bytes)
            self._shared[kernel] = shared_bytes
        return self._functions[kernel]


class _Event(Event):
    def __init__(self, device: CupyDevice) -> None:
        self._device = device
        self.event = device.do(cupy.cuda.Event)

    def is_done(self) -> bool:
        return self._device.do(lambda: self.event.done)

    def synchronize(self) -> None:
        self._device.do(self.event.synchronize)

    def seconds_since(self, earlier: _Event) -> float:
        return self._device.do(cupy.cuda.get_elapsed_time, earlier.event, self.event) / 1000


class _Graph(Graph):
    def __init__(self, graph: cupy.cuda.Graph) -> None:
        self.graph = graph


class _Stream(Stream):
    def __init__(self, device: CupyDevice) -> None:
        self._device = device
        self._stream = device.do(lambda: cupy.cuda.Stream(non_blocking=True))

    def upload(self, target: int, source: np.ndarray) -> None:
        self._copy(target, source.ctypes.data, source.nbytes, cuda.memcpyHostToDevice)

    def download(self, target: np.ndarray, source: int) -> None:
        self._copy(target.ctypes.data, source, target.nbytes, cuda.memcpyDeviceToHost)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self._copy(target, source, nbytes, cuda.memcpyDeviceToDevice)

    def fill(self, target: int, nbytes: int, byte: int) -> None:
        self._device.do(cuda.memsetAsync, target, byte, nbytes, self._stream.ptr)

    def launch(
        self, module: _Module, kernel: str, blocks: int, threads: int, shared_bytes: int, arguments: Sequence[bytes]
    ) -> None:
        check_launch(self._device, module, kernel, blocks, threads, shared_bytes)
        function = module.function(kernel, shared_bytes)
        # CuPy's own launch guesses the types of arguments; the driver reads as many bytes as the kernel's have.
        copies = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        pointers = (ctypes.c_void_p * len(copies))(*map(ctypes.addressof, copies))
        queue, address = self._stream.ptr, ctypes.addressof(pointers)
        self._device.do(driver.launchKernel, function, blocks, 1, 1, threads, 1, 1, shared_bytes, queue, address, 0)

    def call(self, function: Callable[[int], None]) -> None:
        self._device.do(function, self._stream.ptr)

    def record(self, event: _Event) -> None:
        self._device.do(self._stream.record, event.event)

    def wait(self, event: _Event) -> None:
        self._device.do(self._stream.wait_event, event.event)

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        # In stricter modes it would end when another thread allocates, or Python's collector lets go of pinned memory.
        self._device.do(self._stream.begin_capture, cuda.streamCaptureModeRelaxed)
        try:
            enqueue()
        except BaseException:
            with contextlib.suppress(ExecutionError):  # the capture may have ended already
                self._device.do(self._stream.end_capture)
            raise
        return _Graph(self._device.do(self._stream.end_capture))

    def replay(self, graph: _Graph) -> None:
        self._device.do(graph.graph.launch, self._stream)

    def synchronize(self) -> None:
        self._device.do(self._stream.synchronize)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._device.do(cuda.memcpyAsync, target, source, nbytes, kind, self._stream.ptr)
