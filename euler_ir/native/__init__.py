"""Loops over bytes and integers that are written in Python and run as machine code.

A decorated function is compiled when it is first called, for this machine, and its object code is kept in the disk
cache. Its text is Python, its meaning that of the machine:

    from euler_ir.native import function, i64, read_only, u8

    @function
    def count_byte(text: read_only(u8), length: i64, byte: i64) -> i64:
        count = 0
        for position in range(length):
            if text[position] == byte:
                count += 1
        return count

    count_byte(np.frombuffer(b"banana", np.uint8), 6, ord("a"))    # 3

- Values are 64-bit integers, signed (`i64`) or not (`u64`), truth values (`bool`), and pointers. A variable keeps the
  type of its first value. Integers in memory are of any width: reading widens them, writing keeps the low bits.
  Arithmetic wraps. The two kinds do not mix unless one is converted, as in `u64(x)`; plain numbers fit either.
- Parameters and results have annotations: `i64`, `u64`, `pointer(u16)`, or `read_only(u16)` for memory that is only
  read. A pointer is given as a numpy array of that element type, contiguous; `p[i]` reads and writes, `p + i` points
  further, `pointer(u64)` of a pointer sees its memory as other integers, at any address. Nothing checks bounds.
- Statements: assignments, `if`, `while`, `for ... in range`, `break`, `continue`, `return`, calls. Operators:
  `+ - * & | ^ << >> ~`, comparisons, `and`, `or`, `not`, `a if c else b`. Integers from outside are constants.
- Functions call each other, and may then return several values; one with `inline=True` becomes part of its caller.

The interpreter's lock is released while such a function runs, so threads run at once. Nothing here loads LLVM before
the first call. What is no such function is a LoweringError that names the line.
"""

from euler_ir.native.compiled_function import Function, function, is_available
from euler_ir.native.types import (
    Integer,
    Pointer,
    i8,
    i16,
    i32,
    i64,
    multiply_wide,
    pointer,
    prefetch,
    read_only,
    trailing_zeros,
    u8,
    u16,
    u32,
    u64,
)
from euler_ir.threads import default_threads

__all__ = [
    "Function",
    "Integer",
    "Pointer",
    "default_threads",
    "function",
    "i8",
    "i16",
    "i32",
    "i64",
    "is_available",
    "multiply_wide",
    "pointer",
    "prefetch",
    "read_only",
    "trailing_zeros",
    "u8",
    "u16",
    "u32",
    "u64",
]
