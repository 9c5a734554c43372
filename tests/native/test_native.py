"""Native functions: what each construct means, against Python and numpy, and what is refused."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from euler_ir import cache
from euler_ir.errors import ExecutionError, LoweringError
from euler_ir.native import (
    function,
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

ROOT = Path(__file__).parents[2]
STEP = 3
SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
UNSIGNED = st.integers(0, (1 << 64) - 1)


def wrapped(value, signed):
    """An integer cut to 64 bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if signed and value >= 1 << 63 else value


@function
def mixed_signed(a: i64, b: i64) -> i64:
    return ((a + b) * (a - STEP) ^ ~b) & (a | -b) << 3 >> 2


@function
def mixed_unsigned(a: u64, b: u64) -> u64:
    return ((a + b) * (a - STEP) ^ ~b) & (a | b << 5) >> 7


@settings(max_examples=200, deadline=None)
@given(SIGNED, SIGNED)
def test_signed_arithmetic(a, b):
    shifted = wrapped((a | -b) << 3, True) >> 2
    assert mixed_signed(a, b) == wrapped(((a + b) * (a - STEP) ^ ~b) & shifted, True)


@settings(max_examples=200, deadline=None)
@given(UNSIGNED, UNSIGNED)
def test_unsigned_arithmetic(a, b):
    shifted = wrapped(a | b << 5, False) >> 7
    assert mixed_unsigned(a, b) == wrapped(((a + b) * (a - STEP) ^ ~b) & shifted, False)


@function
def signed_order(a: i64, b: i64) -> i64:
    return (1 if a < b else 0) + (2 if a <= b else 0) + (4 if a == b else 0) + (8 if a > b else 0)


@function
def unsigned_order(a: u64, b: u64) -> i64:
    return (1 if a < b else 0) + (2 if a <= b else 0) + (4 if a == b else 0) + (8 if a > b else 0)


@settings(max_examples=200, deadline=None)
@given(SIGNED, SIGNED)
def test_order_is_by_sign_where_there_is_one(a, b):
    assert signed_order(a, b) == (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > b)
    a, b = wrapped(a, False), wrapped(b, False)
    assert unsigned_order(a, b) == (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > b)


@function
def upper_half(a: u64, b: u64) -> u64:
    low, high = multiply_wide(a, b)
    return high + (low - low)


@function
def zeros(a: u64) -> i64:
    return trailing_zeros(a)


@settings(max_examples=100, deadline=None)
@given(UNSIGNED, UNSIGNED)
def test_operations_of_the_machine(a, b):
    assert upper_half(a, b) == a * b >> 64
    assert zeros(a) == (64 if a == 0 else (a & -a).bit_length() - 1)


@pytest.mark.parametrize("element", [i8, i16, i32, i64, u8, u16, u32, u64], ids=str)
def test_memory_of_every_width(element):
    kind = pointer(element)

    @function
    def double(source: read_only(element), target: kind, count: i64):
        for number in range(count):
            target[number] = source[number]
            target[number] += source[number]

    limits = np.iinfo(element.dtype)
    source = np.array([limits.min, limits.max, 0, 1, 100], element.dtype)
    target = np.zeros_like(source)
    double(source, target, len(source))
    with np.errstate(over="ignore"):
        assert np.array_equal(target, source + source)


@function
def word_at(text: read_only(u8), position: i64) -> u64:
    prefetch(text + position + (1 << 40))
    return read_only(u64)(text + position)[0]


def test_memory_is_read_as_other_integers_at_any_address():
    data = bytes(range(1, 20))
    for position in range(8):
        expected = int.from_bytes(data[position : position + 8], "little")
        assert word_at(np.frombuffer(data, np.uint8), position) == expected


@function
def collatz(number: i64, limit: i64) -> i64:
    """Steps to 1, or -1 when there are more than `limit`."""
    steps = 0
    while True:
        if number == 1:
            break
        elif number & 1 == 0:
            number >>= 1
        else:
            number = 3 * number + 1
        steps += 1
        if steps > limit:
            return -1
    return steps


@function
def sum_of_odd(start: i64, stop: i64) -> i64:
    total = 0
    for number in range(start, stop):
        if not number & 1 == 1:
            continue
        if number > 50 and (number < 60 or number == 77):
            continue
        if number == 91:
            break
        total += number
    return total


def test_control_flow():
    assert [collatz(number, 200) for number in (1, 2, 27)] == [0, 1, 111]
    assert collatz(27, 110) == -1
    odd = [number for number in range(1, 91, 2) if not (50 < number < 60 or number == 77)]
    assert sum_of_odd(0, 200) == sum(odd)
    assert sum_of_odd(5, 5) == sum_of_odd(9, 2) == 0


@function
def count_calls(counter: pointer(i64)) -> i64:
    counter[0] += 1
    return counter[0]


@function
def calls_made(counter: pointer(i64), low: i64, high: i64) -> bool:
    counter[count_calls(counter)] += 5
    return low < count_calls(counter) < high and count_calls(counter) > 100


def test_each_part_is_worked_out_once_and_no_more_than_needed():
    for low, high, calls in [(2, 9, 2), (1, 9, 3), (1, 2, 2)]:
        counter = np.zeros(3, np.int64)
        assert calls_made(counter, low, high) is False
        assert counter.tolist() == [calls, 5, 0]


@function(inline=True)
def quotient(number: i64, divisor: i64) -> (i64, i64):
    result = 0
    while number >= divisor:
        number -= divisor
        result += 1
    return result, number


@function
def greatest_common_divisor(a: i64, b: i64) -> i64:
    if b == 0:
        return a
    _, rest = quotient(a, b)
    return greatest_common_divisor(b, rest)


def test_functions_call_each_other_and_themselves():
    assert greatest_common_divisor(84, 36) == 12
    assert greatest_common_divisor(7, 0) == 7


def test_swapping_takes_the_values_from_before():
    @function
    def swap(values: pointer(i64)):
        first, second = values[0], values[1]
        first, second = second, first
        values[0], values[1] = first, second

    values = np.array([1, 2])
    swap(values)
    assert values.tolist() == [2, 1]


# --- What is refused ---


def mixes(a: i64, b: u64) -> i64:
    return a + b


def writes(memory: read_only(u8)):
    memory[0] = 1


def changes_type(a: i64) -> i64:
    a = a == 1
    return a


def may_end(a: i64) -> i64:
    if a == 1:
        return 2


def unknown(a: i64) -> i64:
    return a + nowhere  # noqa: F821


def divides(a: i64) -> i64:
    return a // 2


def calls_python(a: i64) -> i64:
    return wrapped(a, a)


def widens(memory: read_only(u8)) -> u64:
    return memory[0]


def gains_rights(memory: read_only(u8)):
    pointer(u8)(memory)[0] = 1


def tries(a: i64):
    try:
        a = 1
    finally:
        a = 2


def too_large() -> i64:
    return 1 << 63


def pointer_as_number(memory: read_only(u8)) -> i64:
    return memory


@pytest.mark.parametrize(
    ("definition", "message", "line"),
    [
        (mixes, "i64 and u64 do not mix", "return a + b"),
        (writes, r"read_only\(u8\) is written", "memory[0] = 1"),
        (changes_type, "this is truth value where i64 is needed", "a = a == 1"),
        (may_end, "may_end may end without a return", "def may_end(a: i64) -> i64:"),
        (unknown, "nowhere is not known here", "return a + nowhere"),
        (divides, "has no operator FloorDiv", "return a // 2"),
        (calls_python, "wrapped is not a native function", "return wrapped(a, a)"),
        (widens, "this is i64 where u64 is needed", "return memory[0]"),
        (gains_rights, r"read_only\(u8\) does not become pointer\(u8\)", "pointer(u8)(memory)[0] = 1"),
        (tries, "has no try statement", "try:"),
        (too_large, "9223372036854775808 does not fit i64", "return 1 << 63"),
        (pointer_as_number, r"this is read_only\(u8\) where i64 is needed", "return memory"),
    ],
)
def test_what_is_no_native_function_is_refused_with_its_line(definition, message, line):
    with pytest.raises(LoweringError, match=message) as caught:
        function(definition).llvm_ir()
    assert caught.value.location.source_line().startswith(line)
    assert caught.value.location.file == __file__


def test_parameters_need_types():
    with pytest.raises(LoweringError, match="f: a has no type"):

        @function
        def f(a, b: i64) -> i64:
            return b


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(4, np.int8), 0), "text is int8, not an array of uint8"),
        ((b"bytes", 0), "text is bytes, not an array"),
        ((np.zeros(8, np.uint8)[::2], 0), "not contiguous"),
        ((np.zeros(4, np.uint8), 1 << 63), "position is 9223372036854775808"),
        ((np.zeros(4, np.uint8),), "takes 2 arguments, not 1"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ExecutionError, match=message):
        word_at(*arguments)


def test_memory_that_may_not_be_written_is_only_for_readers():
    frozen = np.zeros(4, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(ExecutionError, match="may not be written"):
        count_calls(frozen)


# --- Compilation ---

LIBRARY = """
import sys
from euler_ir import cache
from euler_ir.native import function, i64
from euler_ir.backends.cpu import jit
compiled = []
emit = jit._Compiler.optimized
jit._Compiler.optimized = lambda *given: compiled.append(1) or emit(*given)
@function
def successor(a: i64) -> i64:
    return a + 1
print(successor(41), len(compiled))
"""


def run_library(tmp_path, folder):
    script = tmp_path / "library.py"
    script.write_text(LIBRARY)
    environment = {**os.environ, cache.FOLDER_VARIABLE: str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True).stdout


def test_object_code_is_kept_on_disk_and_damage_is_mended(tmp_path):
    folder = tmp_path / "cache"
    assert run_library(tmp_path, folder) == "42 1\n"
    assert run_library(tmp_path, folder) == "42 0\n"
    (entry,) = folder.iterdir()
    entry.write_bytes(entry.read_bytes()[:-7] + b"damaged")
    assert run_library(tmp_path, folder) == "42 1\n"


def test_several_threads_may_make_the_first_call():
    @function
    def spin(rounds: i64) -> i64:
        value = 1
        for number in range(rounds):
            value = value * 3 + number
        return value

    results = []
    threads = [threading.Thread(target=lambda: results.append(spin(1000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and len(set(results)) == 1


def test_other_threads_go_on_while_one_is_in_native_code():
    @function
    def wait_for(flag: pointer(i64), other: i64, rounds: i64) -> i64:
        for number in range(rounds):
            if flag[0] != 0:
                return number
            flag[other] += 1  # for all that the compiler knows, this is flag[0]
        return -1

    flag = np.zeros(2, np.int64)
    waiting = []
    thread = threading.Thread(target=lambda: waiting.append(wait_for(flag, 1, 1 << 33)))
    thread.start()
    flag[0] = 1
    thread.join()
    assert waiting[0] >= 0


def test_nothing_outside_of_an_array_is_touched_at_the_end_of_a_page():
    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    memory = np.frombuffer(pages, np.uint8)
    guard = ctypes.c_void_p(memory.ctypes.data + mmap.PAGESIZE)
    assert libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    assert word_at(memory, mmap.PAGESIZE - 8) == 0
