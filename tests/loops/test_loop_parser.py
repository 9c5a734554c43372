"""Loop IR read back: the same kernels and the same text, and what is said about text that is wrong."""

import math
import random
import struct
from dataclasses import replace

import numpy as np
import pytest
from nests import column_sum, gather, layer_norm, pad, scan, scatter_add, softmax, write_rows

from euler_ir.compiler import lower
from euler_ir.dtypes import DTYPES, bf16, f16, f32, f64, i64
from euler_ir.errors import ParseError
from euler_ir.index import Axis, Dynamic, Index
from euler_ir.loops.kernel import Buffer, Carry, Constant, IndexValue, Kernel, Loop, Nest, Store
from euler_ir.loops.parser import parse_kernel, parse_kernels
from euler_ir.loops.printer import print_kernel, print_kernels
from euler_ir.plan.plan import KernelStep, MadeOperand, MatmulStep
from euler_ir.testing.random_graphs import random_graph
from examples.gpt2_graphs import gpt2_step, nano_decode, nano_step

BY_HAND = Kernel(
    "all of them",
    (
        softmax(4, 3),
        layer_norm(4, 3),
        column_sum(4, 3),
        gather(4, 3, 2),
        scatter_add(4, 3, 2),
        scan(4, 3),
        pad(4, 3, 1),
        write_rows(2, 4, 3),
    ),
)


def all_kernels(plan):
    """Every kernel of a plan, also the nests that products run."""
    for step in plan.steps():
        if isinstance(step, KernelStep):
            yield step.kernel
        elif isinstance(step, MatmulStep):
            made = (side.nest for side in (step.left, step.right) if isinstance(side, MadeOperand))
            yield from (Kernel("prologue", (nest,)) for nest in made)
            if step.epilogue is not None:
                yield step.epilogue.kernel


def expect_round_trip(kernel):
    text = print_kernel(kernel)
    again = parse_kernel(text)
    assert again == kernel
    assert print_kernel(again) == text


def test_kernels_by_hand():
    expect_round_trip(BY_HAND)
    assert parse_kernels(print_kernels((BY_HAND, BY_HAND), ("one", "another"))) == (BY_HAND, BY_HAND)


@pytest.mark.parametrize("build", [nano_step, nano_decode, pytest.param(gpt2_step, marks=pytest.mark.slow)])
def test_every_kernel_of_gpt2(build):
    kernels = list(all_kernels(lower(build()).plan))
    assert len(kernels) > 10
    for kernel in dict.fromkeys(kernels):
        expect_round_trip(kernel)


@pytest.mark.parametrize("seed", range(40))
def test_every_kernel_of_random_graphs(seed):
    for kernel in all_kernels(lower(random_graph(seed).graph).plan):
        expect_round_trip(kernel)


def constant_nest(dtype, value):
    y = Buffer("y", dtype, 1, "output")
    return Nest((y,), (), (Constant("v", dtype, value), Store("y", Index(), "v")))


def payload(dtype):
    """A NaN of ``dtype`` with bits of its own, as a Python float."""
    bits = np.array(math.nan, dtype.numpy).view(f"u{dtype.itemsize}") | np.array(5).astype(f"u{dtype.itemsize}")
    return bits.view(dtype.numpy)[()].item()


@pytest.mark.parametrize("dtype", [f16, bf16, f32, f64])
def test_floats_keep_their_bits(dtype):
    least = np.array(1, f"u{dtype.itemsize}").view(dtype.numpy)[()].item()
    third = np.array(1 / 3, dtype.numpy)[()].item()
    for value in (0.0, -0.0, 1.0, third, least, -math.inf, math.inf, math.nan, -math.nan, payload(dtype)):
        kernel = Kernel("numbers", (constant_nest(dtype, value),))
        again = parse_kernel(print_kernel(kernel)).nests[0].body[0].value
        assert struct.pack("<d", again) == struct.pack("<d", value), value
        expect_round_trip(kernel)


def test_zeros_and_nans_are_told_apart():
    kept = {Constant("v", f32, value) for value in (0.0, -0.0, math.nan, payload(f32))}
    assert len(kept) == 4 and Constant("v", f32, float("nan")) in kept
    assert Carry("c", f32, 0.0, "v") != Carry("c", f32, -0.0, "v")
    assert Constant("v", f32, 1) == Constant("v", f32, 1.0)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES.values() if not dtype.is_float])
def test_whole_numbers(dtype):
    for value in (dtype.lowest, dtype.highest):
        expect_round_trip(Kernel("numbers", (constant_nest(dtype, value),)))


def test_names_that_are_no_plain_words():
    loop = Loop((Axis("store", 3), Axis("a b", 2)), (IndexValue("n 1", i64, Index.of(Axis("store", 3)) * 4),))
    nest = Nest((), (Axis("mod", 4),), (loop, IndexValue("2", i64, Index.of(Axis("mod", 4)) // 3)))
    expect_round_trip(Kernel('add "quoted"', (nest,)))


def random_index(number, atoms):
    index = Index.of(number.choice(atoms)) * number.randint(-9, 9) + number.randint(-20, 20)
    for _ in range(number.randint(0, 4)):
        match number.randint(0, 3):
            case 0:
                index = index + Index.of(number.choice(atoms)) * number.choice((-8, -1, 1, 2, 3, 64, 512))
            case 1:
                index = index // number.choice((1, 2, 3, 8, 64))
            case 2:
                index = index % number.choice((1, 2, 3, 8, 64))
            case _:
                index = index * number.choice((-1, 2, 8))
    return index


@pytest.mark.parametrize("seed", range(200))
def test_index_expressions(seed):
    number = random.Random(seed)
    axes = tuple(Axis(name, number.choice((0, 1, 2, 5, 8, 64))) for name in "ijk")
    row = Dynamic("row", number.choice((1, 7, 64)))
    index = random_index(number, (*axes, row))
    text = (
        f"eir 1\nkernel @k {{\n  nest () for {', '.join(f'{axis} in {axis.extent}' for axis in axes)} {{\n"
        f"    %one: i64 = constant 0\n    %row = check %one in {row.extent} fault 1\n    %n: i64 = index {index}\n"
        "    %m: i64 = constant 1\n  }\n}\n"
    )
    assert parse_kernel(text).nests[0].body[2].index == index
    assert print_kernel(parse_kernel(text)) == text


def test_indices_written_otherwise_come_to_their_normal_form():
    text = print_kernel(Kernel("k", (Nest((), (Axis("i", 8), Axis("j", 4)), (IndexValue("n", i64, Index()),)),)))
    for written, read in {
        "j + 4 i": "4 i + j",
        "(4 i + j) floordiv 4": "i",
        "((4 i + j) mod 4)": "j",
        "i-1": "i - 1",
        "2 (i + 3 j) - -2": "2 i + 6 j + 2",
        "-(i - j)": "-i + j",
        "i floordiv 2 floordiv 2": "i floordiv 4",
        "- 3 i": "-3 i",
    }.items():
        assert f"= index {read}\n" in print_kernel(parse_kernel(text.replace("index 0", f"index {written}"))), written


# -- faults ------------------------------------------------------------------------------------------------------------

SCALE = """\
eir 1
kernel @scale {
  nest (input %x: f32[12], output %y: f32[12], output %s: f32[4]) for i in 4 {
    local %t: f32[3]
    loop j in 3 vector {
      %a: f32 = load %x[3 i + j] if 0 <= 3 i + j < 12
      %b: f32 = multiply %a, %a
      store %y[3 i + j] = %b
    } sum %c: f32 = %b
    loop k in 3 carry %d: f32 = 0.5 {
      %e: f32 = add %d, %c
    } next %d = %e
    store %s[i] = %c
  }
}
"""


def test_the_text_that_faults_are_made_in():
    assert print_kernel(parse_kernel(SCALE)) == SCALE


def refusal(text):
    with pytest.raises(ParseError) as caught:
        parse_kernels(text, "scale.eir")
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "place", "parts"),
    [
        ("eir 1", "eir 2", "1:5", ["version 2"]),
        ("kernel @", "kernal @", "2:1", ["expected 'kernel', found 'kernal'"]),
        ("input %x", "inpt %x", "3:9", ["expected 'input' or 'output' or 'inout'", "did you mean input?"]),
        ("f32[12], output", "f23[12], output", "3:19", ["no element type 'f23'", "did you mean f32?"]),
        ("f32[12], output", "f32[3, 4], output", "3:19", ["a buffer is flat"]),
        ("i in 4", "i in -4", "3:76", ["0 or more"]),
        ("i in 4", f"i in {10**30}", "3:76", ["larger than 9223372036854775807"]),
        ("i in 4", f"i in {'9' * 5000}", "3:76", ["larger than"]),
        ("i in 4", "i in 4.5", "3:76", ["expected the extent of the axis, found '4.5'"]),
        ("loop j", "lop j", "5:5", ["expected a scalar such as %v, 'store', 'loop' or '}'", "did you mean loop?"]),
        ("load %x[3 i + j]", "load %x[3 i + m]", "6:31", ["no axis 'm' around this", "the axes here are i, j"]),
        ("load %x[3 i + j]", "load %x[3 * i + j]", "6:27", ["without a '*'", "4 i is four times i"]),
        ("load %x[3 i + j]", "load %x[3 i floordiv 2]", "6:27", ["needs parentheses"]),
        ("load %x[3 i + j]", "load %x[i floordiv 0]", "6:36", ["1 or more"]),
        ("load %x[3 i + j]", "load %x[%a]", "6:25", ["%a is no checked index", "check"]),
        ("load %x[3 i + j]", "load %xx[3 i + j]", "6:7", ["L08: there is no buffer %xx", "did you mean %x?"]),
        ("if 0 <= 3", "if 0 < 3", "6:37", ["expected"]),
        ("multiply %a", "multiplay %a", "7:17", ["no operation 'multiplay'", "did you mean multiply?"]),
        ("multiply %a, %a", "multiply %a", "7:7", ["L05: multiply takes 2 operands", "%b: f32 = multiply %a"]),
        ("multiply %a, %a", "multiply %a, %q", "7:7", ["L04: scalar %q is not defined here"]),
        ("%b: f32 = m", "%b: f16 = m", "7:7", ["L06: multiply gives f32"]),
        ("%b: f32 = m", "%b = m", "7:12", ["the type of %b is missing", "%b: f32 = ..."]),
        ("store %y[3 i + j]", "store %y[3 i]", "8:7", ["L12"]),
        ("store %y[3 i + j]", "store %y[3 i + j + 1]", "8:7", ["L11: 3 i + j + 1 may leave %y, which has 12"]),
        ("sum %c", "summ %c", "9:7", ["expected"]),
        ("carry %d: f32 = 0.5", "carry %d: f32 = half", "10:33", ["expected a number of f32"]),
        ("next %d = %e", "next %f = %e", "12:12", ["does not carry %f"]),
        (" next %d = %e", "", "10:5", ["the loop does not say the next %d"]),
        ("  }\n}\n", "  }\n", "15:1", ["the end of the text"]),
        ("  }\n}\n", "  }\n}\n}\n", "16:1", ["expected 'kernel', found '}'"]),
    ],
)
def test_a_fault_is_shown_where_it_is(old, new, place, parts):
    assert old in SCALE
    message = refusal(SCALE.replace(old, new, 1))
    assert message.startswith(f"scale.eir:{place}: "), message
    for part in parts:
        assert part in message, message
    assert "^" in message


def test_several_faults_at_once():
    text = SCALE.replace("multiply", "multiplay").replace("store %s[i]", "store %s[q]").replace("add %d", "ad %d")
    message = refusal(text)
    for place in ("scale.eir:7:17", "scale.eir:11:17", "scale.eir:13:14"):
        assert place in message
    broken = SCALE.replace("nest", "nest () { %v: f32 = load %x[0] }\n  nest")
    assert "L08" in refusal(broken.replace("store %s[i]", "store %s[i + 1]"))
    assert "L11" in refusal(broken.replace("store %s[i]", "store %s[i + 1]"))


def test_text_that_is_cut_off_or_garbled_is_refused_or_read():
    """Every cut and many small changes: an error of ours or a kernel, never another exception."""
    number = random.Random(0)
    texts = [SCALE[:end] for end in range(len(SCALE))]
    words = SCALE.split(" ")
    for _ in range(600):
        changed = list(words)
        place = number.randrange(len(words))
        changed[place] = number.choice(("", number.choice(words), words[place] * 2, "%", "{", "}", '"', "-1", "nan"))
        texts.append(" ".join(changed))
    refused = 0
    for text in texts:
        try:
            parse_kernels(text, "cut.eir")
        except ParseError as error:
            refused += 1
            assert all(str(each).startswith("cut.eir:") for each in error.errors), str(error)
    assert refused > len(SCALE) - 10


def test_deep_nesting_is_read():
    deep = "(" * 5000 + "i" + ")" * 5000
    with pytest.raises(ParseError, match="nested more than"):
        parse_kernels(SCALE.replace("load %x[3 i + j]", f"load %x[{deep}]"))
    loops = "loop a in 1 {\n" * 5000
    with pytest.raises(ParseError, match="nested more than"):
        parse_kernels(SCALE.replace("    loop j", loops + "    loop j", 1))


def test_a_kernel_alone():
    with pytest.raises(ParseError, match="expected one kernel, found 2"):
        parse_kernel(print_kernels((BY_HAND, replace(BY_HAND, name="again"))))
