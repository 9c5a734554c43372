"""A compiled source: its kernels, and their launches."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Sequence

import numpy as np

from euler_ir.backends.cuda.emulator import memory, toolchain
from euler_ir.backends.cuda.emulator.arguments import (
    Parameter,
    check_arguments,
    check_array,
    check_count,
    copies_of,
    packed,
)
from euler_ir.backends.cuda.emulator.toolchain import runtime
from euler_ir.backends.cuda.limits import MOST_BLOCKS, THREADS_OF_BLOCK, limits_of
from euler_ir.errors import ExecutionError, did_you_mean

Extent = int | tuple[int, ...]

MOST_BLOCKS_ALONG = (MOST_BLOCKS, 65535, 65535)
MOST_THREADS_ALONG = (1024, 1024, 64)
"""Of a grid and of a block (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""
_ORDERS = {"ascending": 0, "descending": 1}
_RANDOM = 2


class _Kernel(ctypes.Structure):
    """cuda_emulator::Kernel of include/runtime.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("arguments", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_uint)),
        ("kinds", ctypes.c_char_p),
        ("pointee_sizes", ctypes.POINTER(ctypes.c_uint)),
        ("pointee_kinds", ctypes.c_char_p),
        ("shared_variable", ctypes.c_void_p),
        ("reports_accesses", ctypes.c_bool),
    ]


class _Launch(ctypes.Structure):
    """Launch of runtime/launch.cpp."""

    _fields_ = [
        ("kernel", ctypes.POINTER(_Kernel)),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("blocks", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_ulonglong),
        ("shared_limit", ctypes.c_ulonglong),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_ulonglong),
        ("block_seconds", ctypes.c_double),
        ("is_alone", ctypes.c_bool),
    ]


class _FaultPlace(ctypes.Structure):
    """FaultPlace of runtime/launch.cpp."""

    _fields_ = [
        ("line", ctypes.c_int),
        ("library", ctypes.c_void_p),
        ("instruction", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
    ]


class Module:
    """The kernels of one source. It stays loaded as long as the process lives."""

    def __init__(self, name: str, text: str, content: bytes) -> None:
        """``content`` is the library that g++ made of ``text``, in which the source is called ``name``."""
        self.name = name
        self._text = text
        self._content = content
        library = toolchain.load(content)
        self._kernels: dict[str, _Kernel] = {}
        table = ctypes.cast(library.cuda_emulator_kernels, ctypes.POINTER(_Kernel))
        place = 0
        while table[place].name is not None:
            self._kernels[table[place].name.decode()] = table[place]
            place += 1

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(self._kernels)

    def launch(
        self,
        kernel: str,
        blocks: Extent,
        threads: Extent,
        shared_bytes: int,
        arguments: Sequence[bytes],
        order: str | int = "ascending",
        architecture: str = "sm_90",
        block_seconds: float = 20.0,
    ) -> None:
        """Run ``kernel`` on a grid of ``blocks`` of ``threads`` each, numbers or up to three of them, to its end.

        ``shared_bytes`` is dynamic shared memory; ``arguments`` are the arguments' bytes as C++ has them. Blocks run
        one after the other, and the threads of a block until they wait: in ascending or descending ``order``, or in a
        random one of a seed. A block that takes more processor time than ``block_seconds`` is taken for one that never
        ends. Raises ExecutionError for what a GPU of ``architecture`` cannot launch, and for what the kernel does
        wrong, with kernel, block and thread.
        """
        entry = self._entry(kernel)
        grid = _extent(kernel, "blocks", blocks, MOST_BLOCKS_ALONG)
        block = _extent(kernel, "threads", threads, MOST_THREADS_ALONG)
        count = block[0] * block[1] * block[2]
        if count > THREADS_OF_BLOCK:
            raise ExecutionError(f"kernel {kernel}: a block of {count} threads; {THREADS_OF_BLOCK} is the most")
        limit = limits_of(architecture).shared_of_block
        if not 0 <= shared_bytes <= limit:
            raise ExecutionError(
                f"kernel {kernel}: {shared_bytes} bytes of dynamic shared memory; a block of {architecture} has {limit}"
            )
        check_arguments(kernel, _parameters(entry), arguments)
        copies = copies_of(arguments)
        pointers = (ctypes.c_void_p * len(copies))(*(ctypes.addressof(copy) for copy in copies))
        extents = (grid, block, shared_bytes, limit)
        is_alone = len(self._kernels) == 1
        launch = _Launch(ctypes.pointer(entry), pointers, *extents, *_order(order), block_seconds, is_alone)
        message = ctypes.create_string_buffer(4096)
        place = _FaultPlace()
        if not runtime().cuda_emulator_launch(
            ctypes.byref(launch), message, ctypes.c_size_t(len(message)), ctypes.byref(place)
        ):
            first, *details = message.value.decode(errors="replace").split("\n")
            raise ExecutionError(first, details=(*self._lines(place), *details))

    def run(
        self, kernel: str, blocks: Extent, threads: Extent, *arguments: object, shared_bytes: int = 0, **options
    ) -> None:
        """As `launch`, with arrays of numpy where the kernel takes pointers, and numbers where it takes numbers.

        An array is copied to memory of its own before, and back after. None is a null pointer; a value of any other
        type is given as bytes. ``options`` are those of `launch`. Raises ExecutionError as `launch` does, and for a
        number that the parameter's type cannot hold or an array of other elements than a pointer's.
        """
        parameters = _parameters(self._entry(kernel))
        check_count(kernel, parameters, arguments)
        addresses: dict[int, int] = {}
        try:
            values = []
            for number, (parameter, value) in enumerate(zip(parameters, arguments, strict=True)):
                if isinstance(value, np.ndarray) and parameter.kind == "p":
                    check_array(kernel, number, parameter, value)
                    addresses[number] = memory.from_array(value, f"argument {number}")
                    values.append(addresses[number].to_bytes(8, "little"))
                else:
                    values.append(packed(kernel, number, parameter, value))
            self.launch(kernel, blocks, threads, shared_bytes, values, **options)
            for number, address in addresses.items():
                memory.download(address, arguments[number])
        finally:
            for address in addresses.values():
                memory.free(address)

    def _lines(self, place: _FaultPlace) -> list[str]:
        """The lines of the source that a fault is on, innermost first, for people; then those of a race's other end."""
        if place.line:
            return self._quoted([(self.name, place.line)])
        lines = self._quoted(self._lines_of(place.instruction, place.library))
        other = self._quoted(self._lines_of(place.other, place.library))
        return lines + [f"and {line}" for line in other]

    def _lines_of(self, instruction: int | None, library: int | None) -> list[tuple[str, int]]:
        if not instruction or not library:
            return []
        return toolchain.source_lines(self._content, instruction - library)

    def _quoted(self, places: list[tuple[str, int]]) -> list[str]:
        """Lines of the source and what it includes, by file and number; none of the emulator's own headers."""
        lines = _lines_by_place(self._text)
        found = []
        for file, number in places:
            # g++ puts the folder that it runs in before a relative name.
            name = next((name for name, _ in lines if f"/{file}".endswith(f"/{name.lstrip('/')}")), None)
            if (name, number) in lines:
                found.append(f"{name}:{number}: {lines[name, number].strip()}")
        return found

    def _entry(self, kernel: str) -> _Kernel:
        if kernel not in self._kernels:
            raise ExecutionError(
                f"{self.name} has no kernel {kernel}",
                details=(f"it has {', '.join(self._kernels)}",),
                hint=did_you_mean(kernel, self._kernels),
            )
        return self._kernels[kernel]


def line_directive(number: int, name: str) -> str:
    """What tells g++ that line ``number`` of the file ``name`` follows."""
    return f"#line {number} {json.dumps(name, ensure_ascii=False)}"


def _lines_by_place(text: str) -> dict[tuple[str, int], str]:
    """The lines of ``text`` by what its line directives say of them."""
    lines, name, number = {}, "", 0
    for line in text.split("\n"):
        if directive := re.fullmatch(r'#line (\d+) (".*")', line):
            name, number = json.loads(directive[2]), int(directive[1])
        else:
            lines[name, number] = line
            number += 1
    return {place: line for place, line in lines.items() if place[0]}


def _parameters(entry: _Kernel) -> list[Parameter]:
    kinds, pointees = entry.kinds.decode(), entry.pointee_kinds.decode()
    return [
        Parameter(entry.sizes[place], kinds[place], Parameter(entry.pointee_sizes[place], pointees[place]))
        for place in range(entry.arguments)
    ]


def _extent(kernel: str, what: str, extent: Extent, most: tuple[int, ...]) -> ctypes.Array:
    along = (extent,) if isinstance(extent, int) else tuple(extent)
    if not 1 <= len(along) <= 3:
        raise ExecutionError(f"kernel {kernel}: {len(along)} numbers of {what}; a grid and a block have up to three")
    along += (1,) * (3 - len(along))
    for axis, count, limit in zip("xyz", along, most, strict=True):
        if not 1 <= count <= limit:
            raise ExecutionError(f"kernel {kernel}: {count} {what} along {axis}; there must be 1 to {limit}")
    return (ctypes.c_uint * 3)(*along)


def _order(order: str | int) -> tuple[int, int]:
    """The number of an order in the runtime, and its seed."""
    if isinstance(order, str):
        if order not in _ORDERS:
            raise ExecutionError(f"no order {order!r}", hint="'ascending', 'descending', or the seed of a random one")
        return _ORDERS[order], 0
    return _RANDOM, order
