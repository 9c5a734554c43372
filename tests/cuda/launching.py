"""Launches in the emulator with numpy arrays: each is copied in before, and copied back after."""

import struct

import numpy as np

from euler_ir.backends.cuda.emulator import build, memory


def packed(value):
    """A kernel's argument as bytes: an int is an i32, a float an f32; other types as numpy scalars."""
    if isinstance(value, int):
        return struct.pack("<i", value)
    return struct.pack("<f", value) if isinstance(value, float) else np.asarray(value).tobytes()


def launch(source, kernel, blocks, threads, *arguments, shared_bytes=0, contract=True, sanitize=False, **options):
    """Runs ``kernel``; arrays among the arguments are passed as pointers, and hold what the kernel left in them."""
    module = build.load(source, contract=contract, sanitize=sanitize)
    arrays = {number: value for number, value in enumerate(arguments) if isinstance(value, np.ndarray)}
    addresses = {number: memory.from_array(array, f"argument {number}") for number, array in arrays.items()}
    try:
        values = [
            struct.pack("<Q", addresses[number]) if number in addresses else packed(value)
            for number, value in enumerate(arguments)
        ]
        module.launch(kernel, blocks, threads, shared_bytes, values, **options)
        for number, array in arrays.items():
            memory.download(addresses[number], array)
    finally:
        for address in addresses.values():
            memory.free(address)
