"""Native functions: what each construct means, against Python and numpy, and what is refused."""

import os
import runpy
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from guarded_memory import guarded_array
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
    def sign(source: read_only(element), number: i64) -> i64:
        zero = source[2]
        return 1 if source[number] > zero else -1 if source[number] < zero else 0

    assert [sign(source, number) for number in range(len(source))] == np.sign(source.astype(object)).tolist()


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


@function
def shifted_signed(a: i64, count: i64, bounds: pointer(i64)):
    bounds[0], bounds[1], bounds[2] = a << count, a >> count, a << 64


@function
def shifted_unsigned(a: u64, count: u64, bounds: pointer(u64)):
    bounds[0], bounds[1], bounds[2] = a << count, a >> count, a >> 64


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200, (1 << 63) - 1])
@pytest.mark.parametrize("number", [5, -5, -(1 << 63)])
def test_shifts_by_more_bits_than_there_are(number, count):
    signed, unsigned = np.zeros(3, np.int64), np.zeros(3, np.uint64)
    shifted_signed(number, count, signed)
    shifted_unsigned(wrapped(number, False), count, unsigned)
    most = min(count, 64)
    assert signed.tolist() == [wrapped(number << most, True), number >> most, 0]
    assert unsigned.tolist() == [wrapped(number << most, False), wrapped(number, False) >> most, 0]


@function
def leaves_in_all_ways(a: i64) -> i64:
    if a < 0:
        while True:
            a += 1
            if a == 0:
                return 100
    else:
        while True:
            for number in range(a):
                if number == 3:
                    break
            a += 1
            if a > 10:
                return a


def test_loops_that_only_a_return_leaves():
    assert [leaves_in_all_ways(number) for number in (-5, 0, 20)] == [100, 11, 21]


@function
def größter(ñ: "i64", second: "i64") -> "i64":
    return ñ if ñ > second else second


def test_names_may_have_any_letters_and_annotations_may_be_text():
    assert größter(3, -5) == 3


def test_a_text_need_not_be_indented_as_its_function_is():
    @function
    def three() -> i64:
        """Three,
as a docstring says whose lines begin where they like.
        """
# A comment, too.
        return 3

    assert three() == 3


def test_the_text_is_the_one_that_was_loaded(tmp_path):
    script = tmp_path / "changed.py"
    text = "from euler_ir.native import function, i64\n@function\ndef f(a: i64) -> i64:\n    return a + 1\n"
    script.write_text(f"{text}open(__file__, 'w').write('# another file\\n' * 9)\nprint(f(1))\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("2\n", "")


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
        a = 2  # noqa: F841


def too_large() -> i64:
    return 1 << 63


def pointer_as_number(memory: read_only(u8)) -> i64:
    return memory


def below_nothing(a: u64) -> bool:
    return a > -1


def some_ways(a: i64) -> i64:
    if a == 1:
        late = 5
    return late


def first_way_out(a: i64) -> i64:
    while True:
        if a > 5:
            late = 1
            break
        a += 1
        if a == 3:
            break
    return late


def second_way_out(a: i64) -> i64:
    while True:
        if a > 5:
            break
        late = 1
        if a == 3:
            break
        a += 1
    return late


def after_a_loop(a: i64) -> i64:
    for number in range(a):
        last = number
    return last


def hides_a_constant(a: i64) -> i64:
    total = a + STEP  # noqa: F823
    STEP = total
    return STEP


def adds_to_a_constant(a: i64) -> i64:
    STEP += a  # noqa: F823
    return STEP


def shifts_back(a: i64) -> i64:
    return a << -1


def shifts_far() -> i64:
    return 1 << 100_000_000


def too_many(a: u64) -> i64:
    return trailing_zeros(a, a)


def too_few() -> u64:
    return u64()


def no_memory(a: pointer(u8)) -> i64:
    return pointer(STEP)(a)[0]


def no_attribute(a: u64) -> u64:
    return np.nowhere(a)


def another(number):
    """A function named as any other that is made here."""

    @function
    def plus(a: i64) -> i64:
        return a + number

    return plus


plus_one, plus_two = another(1), another(2)


def calls_namesakes(a: i64) -> i64:
    return plus_one(a) + plus_two(a)


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
        (below_nothing, "a u64 is compared with a number below 0", "return a > -1"),
        (some_ways, "late has no value on some way to this line", "return late"),
        (first_way_out, "late has no value on some way to this line", "return late"),
        (second_way_out, "late has no value on some way to this line", "return late"),
        (after_a_loop, "last has no value on some way to this line", "return last"),
        (hides_a_constant, "STEP is not known here", "total = a + STEP"),
        (adds_to_a_constant, "STEP is not known here", "STEP += a"),
        (shifts_back, "a shift by -1 is not one by 0 to 64 bits", "return a << -1"),
        (shifts_far, "a shift by 100000000 is not", "return 1 << 100_000_000"),
        (too_many, "trailing_zeros takes 1 arguments, not 2", "return trailing_zeros(a, a)"),
        (too_few, r"u64 takes 1 arguments, not 0", "return u64()"),
        (no_memory, "this must be a name", "return pointer(STEP)(a)[0]"),
        (no_attribute, "np.nowhere is not known here", "return np.nowhere(a)"),
        (calls_namesakes, "before, plus was the name of another function", "return plus_one(a) + plus_two(a)"),
        (pointer_as_number, r"this is read_only\(u8\) where i64 is needed", "return memory"),
    ],
)
def test_what_is_no_native_function_is_refused_with_its_line(definition, message, line):
    with pytest.raises(LoweringError, match=message) as caught:
        function(definition).llvm_ir()
    assert caught.value.location.source_line().startswith(line)
    assert caught.value.location.file == __file__


def without_type(a, b: i64) -> i64:
    return b


def any_number(*a: i64) -> i64:
    return 1


def by_name(a: i64, *, b: i64) -> i64:
    return b


def with_default(a: i64 = 3) -> i64:
    return a


def unknown_type(a: "i63") -> i64:  # noqa: F821
    return a


async def later(a: i64) -> i64:
    return a


made_by_exec = {"i64": i64}
exec("def f(a: i64) -> i64:\n    return a", made_by_exec)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (without_type, "without_type: a has no type"),
        (any_number, "any_number: the parameter a is not one that is given by its place"),
        (by_name, "by_name: the parameter b is not"),
        (with_default, "with_default: the parameter a is not"),
        (unknown_type, "unknown_type: name 'i63' is not defined in its annotations"),
        (later, "a native function is one that `def` makes"),
        (lambda: 3, "a native function is one that `def` makes"),
        (made_by_exec["f"], "the text of this function is not known"),
    ],
)
def test_what_cannot_be_translated_is_refused_at_once(definition, message):
    with pytest.raises(LoweringError, match=message):
        function(definition)


@pytest.mark.parametrize("element", [3, bool, pointer(u8)])
def test_memory_is_of_integers(element):
    with pytest.raises(LoweringError, match="there is no memory of"):
        pointer(element)


def test_an_expression_without_end_is_refused(tmp_path):
    script = tmp_path / "long.py"
    head = "from euler_ir.native import function, i64\n@function\ndef f(a: i64) -> i64:\n    return "
    script.write_text(head + " + ".join(["a"] * 900) + "\n")
    with pytest.raises(LoweringError, match="f: an expression has too many parts"):
        runpy.run_path(str(script))["f"](1)


def test_a_name_without_a_value_yet_is_not_known():
    @function
    def f(a: i64) -> i64:
        return a + later

    with pytest.raises(LoweringError, match="later is not known here"):
        f(1)
    later = 5
    assert f(1) == 6


def test_pointers_and_several_values_stay_among_native_functions():
    @function
    def further(memory: read_only(u8)) -> read_only(u8):
        return memory + 1

    @function
    def both(a: i64) -> (i64, i64):
        return a, a

    with pytest.raises(LoweringError, match="further returns a pointer, which only native functions can take"):
        further(np.zeros(2, np.uint8))
    with pytest.raises(LoweringError, match="both returns several values"):
        both(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(4, np.int8), 0), "text is int8, not an array of uint8"),
        ((b"bytes", 0), "text is bytes, not an array"),
        ((np.zeros(8, np.uint8)[::2], 0), "not contiguous"),
        ((np.zeros(4, np.uint8), 1 << 63), "position is 9223372036854775808"),
        ((np.zeros(4, np.uint8), 1.0), "position is float, not an integer"),
        ((np.zeros(4, np.uint8), "1"), "position is str, not an integer"),
        ((np.zeros(4, np.uint8),), "takes 2 arguments, not 1"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ExecutionError, match=message):
        word_at(*arguments)


def test_numbers_that_do_not_fit_their_type():
    with pytest.raises(ExecutionError, match="a is -1, which does not fit u64"):
        zeros(-1)

    @function
    def opposite(a: bool) -> bool:
        return not a

    assert opposite(False) is True and opposite(1) is False
    with pytest.raises(ExecutionError, match="a is 5, which does not fit truth value"):
        opposite(5)


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
    memory = guarded_array(100, np.uint8)
    assert word_at(memory, len(memory) - 8) == 0
