"""The fused level as text: it reads back, edited files run to the same numbers, and faults are told at their place."""

import random
import re

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.compiler import compile_fused, lower, lower_fused
from euler_ir.errors import ParseError
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.passes.fused_equality import fused_equal
from euler_ir.passes.fused_parser import parse_fused
from euler_ir.passes.fused_printer import print_fused
from euler_ir.testing.random_graphs import random_graph
from examples.gpt2_graphs import gpt2_step, nano_decode, nano_step

STEP = """\
eir 1
fused @step {
  %x = input {name = "x"} : f32[4, 8]
  %w = input {name = "w"} : f32[8, 8]
  %gain = input {name = "gain"} : f32[8]
  group 0 tanh_sum: reduction for i in 4, j in 8 reducing i {
    reads %x: f32[4, 8], %gain: f32[8]
    writes %tanh: f32[4, 8], %total: f32[8]
    %gains = broadcast %gain : f32[4, 8]
    %add = add %x, %gains : f32[4, 8] at [i, j]
    %tanh = tanh %add : f32[4, 8] at [i, j]
    %square = multiply %tanh, %tanh : f32[4, 8] at [i, j]
    %total = sum %square {axes = [0]} : f32[8] at [j]
  }
  group 1 matmul: matmul for i in 4, j in 8 {
    reads %x: f32[4, 8], %gain: f32[8], %w: f32[8, 8]
    writes %product: f32[4, 8]
    prologue %scaled {
      reads %x: f32[4, 8], %gain: f32[8]
      %gains = broadcast %gain : f32[4, 8]
      %scaled = multiply %x, %gains : f32[4, 8]
    }
    %product = matmul %scaled, %w {transpose_left = false, transpose_right = false} : f32[4, 8]
  }
  group 2 exp_divide: reduction for i in 4, j in 8 reducing j {
    reads %product: f32[4, 8], %tanh: f32[4, 8]
    writes %share: f32[4, 8]
    %sum = add %product, %tanh : f32[4, 8] at [i, j]
    %exp = exp %sum : f32[4, 8] at [i, j]
    %row = sum %exp {axes = [1]} : f32[4] at [i]
    %column = reshape %row : f32[4, 1]
    %rows = broadcast %column : f32[4, 8]
    %share = divide %exp, %rows : f32[4, 8] at [i, j]
  }
  group 3 cumsum: scan for i in 4, j in 8 {
    reads %share: f32[4, 8]
    writes %running: f32[4, 8]
    %running = cumsum %share {axis = 1, reverse = false} : f32[4, 8] at []
  }
  output "total" = %total
  output "running" = %running
}
"""


def expect_round_trip(fused):
    for locations in (False, True):
        text = print_fused(fused, locations)
        again = parse_fused(text)
        assert fused_equal(again, fused, locations)
        assert print_fused(again, locations) == text


def test_the_text_by_hand():
    expect_round_trip(parse_fused(STEP))
    assert str(parse_fused(STEP)) == STEP


@pytest.mark.parametrize("build", [nano_step, nano_decode, pytest.param(gpt2_step, marks=pytest.mark.slow)])
def test_gpt2_reads_back_and_is_planned_alike(build):
    stages = lower(build())
    expect_round_trip(stages.fused)
    again = lower_fused(parse_fused(print_fused(stages.fused, locations=True))).plan
    assert str(again) == str(stages.plan)
    assert [step.kernel for step in again.kernels()] == [step.kernel for step in stages.plan.kernels()]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_read_back(seed):
    expect_round_trip(lower(random_graph(seed).graph).fused)


def test_equality_sees_what_differs():
    fused = parse_fused(STEP)
    for old, new in (
        ("@step", "@other"),
        ("%total", "%sums"),
        ("add %x, %gains", "subtract %x, %gains"),
        ("%tanh: f32[4, 8], %total: f32[8]\n", "%total: f32[8], %tanh: f32[4, 8]\n"),
        ("add %product, %tanh : f32[4, 8] at [i, j]", "add %product, %tanh : f32[4, 8]"),
        ('output "total" = %total', 'output "all" = %total'),
    ):
        assert old in STEP
        assert not fused_equal(parse_fused(STEP.replace(old, new)), fused), new


# -- edited files ------------------------------------------------------------------------------------------------------

ADD = "    %add = add %x, %gains : f32[4, 8] at [i, j]\n"
TANH = "    %tanh = tanh %add : f32[4, 8] at [i, j]\n"
TOTAL = """\
    %square = multiply %tanh, %tanh : f32[4, 8] at [i, j]
    %total = sum %square {axes = [0]} : f32[8] at [j]
"""
GAINS = "    %gains = broadcast %gain : f32[4, 8]\n"

EDITS = {
    "as it is": [],
    "a group in two": [
        ("0 tanh_sum: reduction for i in 4, j in 8 reducing i {", "0 first: pointwise for i in 4, j in 8 {"),
        ("%tanh: f32[4, 8], %total: f32[8]\n", "%tanh: f32[4, 8]\n"),
        (
            TOTAL,
            "  }\n  group 9 second: reduction for row in 4, column in 8 reducing row {\n    reads %tanh: f32[4, 8]\n"
            "    writes %total: f32[8]\n" + TOTAL.replace("[i, j]", "[row, column]").replace("[j]", "[column]"),
        ),
    ],
    "an operator in another group": [
        ("writes %tanh: f32[4, 8], ", "writes %add: f32[4, 8], "),
        ("%product: f32[4, 8], %tanh: f32[4, 8]\n", "%product: f32[4, 8], %add: f32[4, 8]\n"),
        ("    %sum = add", TANH + "    %sum = add"),
        (TANH, TANH.replace(" at [i, j]", "")),
    ],
    "an input computed again": [
        ("writes %tanh: f32[4, 8], ", "writes "),
        ("%product: f32[4, 8], %tanh: f32[4, 8]\n", "%product: f32[4, 8], %x: f32[4, 8], %gain: f32[8]\n"),
        ("    %sum = add", (GAINS + ADD + TANH).replace(" at [i, j]", "") + "    %sum = add"),
    ],
    "no prologue": [
        (
            "  group 1 matmul",
            "  group 1 scaled: pointwise for i in 4, j in 8 {\n    reads %x: f32[4, 8], %gain: f32[8]\n"
            "    writes %scaled: f32[4, 8]\n" + GAINS + "    %scaled = multiply %x, %gains : f32[4, 8] at [i, j]\n"
            "  }\n  group 1 matmul",
        ),
        ("    reads %x: f32[4, 8], %gain: f32[8], %w", "    reads %scaled: f32[4, 8], %w"),
        (STEP[STEP.index("    prologue") : STEP.index("    %product")], ""),
    ],
    "groups in another order": [
        (STEP[STEP.index("  group 1") : STEP.index("  group 2")], ""),
        ("  group 0", STEP[STEP.index("  group 1") : STEP.index("  group 2")] + "  group 0"),
    ],
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_edited_files_run_to_the_same_numbers(edits, backend):
    text = STEP
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    fused = parse_fused(text)
    expect_round_trip(fused)
    graph = parse_fused(STEP).graph
    inputs = random_inputs(graph, seed=3)
    wanted, _ = interpreter.run(graph, inputs)
    got = compile_fused(fused, backend)(**inputs)
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_axes_that_are_summed_over_stand_in_any_order():
    with ei.Graph("both") as graph:
        ei.output(y=ei.exp(ei.input("x", (3, 5))).sum())
    text = str(lower(graph).fused)
    (axes,) = re.findall(r"reducing (\w+, \w+) {", text)
    turned = text.replace(f"reducing {axes}", f"reducing {', '.join(reversed(axes.split(', ')))}")
    assert turned != text and str(parse_fused(turned)) == text


# -- faults ------------------------------------------------------------------------------------------------------------

AGAIN = STEP[STEP.index("  group 3") : STEP.index('  output "total"')].replace("reverse = false", "reverse = true")
FAULTS = [
    # what the text says: the place, and what is said
    ("fused @", "fusd @", "2:1", ["expected 'fused'"]),
    ("reduction for i", "reductoin for i", "6:21", ["no kind of group 'reductoin'", "did you mean reduction?"]),
    ("reducing i", "reducing k", "6:59", ["no loop 'k'", "the loops are i, j"]),
    ("for i in 4, j in 8 reducing i", "for i in 4, i in 8 reducing i", "6:21", ["two loops have the same name"]),
    ("reads %x: f32[4, 8], %gain", "reads %z: f32[4, 8], %gain", "7:11", ["%z is not made before"]),
    ("reads %x: f32[4, 8], %gain", "reads %x: f32[4, 9], %gain", "7:11", ["%x is f32[4, 8], not f32[4, 9]"]),
    ("%total: f32[8]\n", "%totl: f32[8]\n", "8:30", ["%totl is written and not computed", "did you mean total?"]),
    ("    writes %running: f32[4, 8]\n", "", "35:3", ["does not say what it writes"]),
    ("tanh %add", "tanh %adds", "11:18", ["%adds is not defined", "did you mean %add?"]),
    ("tanh %add", "tanh %w", "11:18", ["%w is neither read nor computed by this group", "'reads'"]),
    ("exp %sum :", "exp %add :", "29:16", ["%add is neither read nor computed by this group"]),
    (TANH, TANH * 2, "12:5", ["%tanh is computed twice"]),
    ("%scaled = multiply %x", "%gains = multiply %x", "21:7", ["%gains is another operator"]),
    ('  output "total"', AGAIN + '  output "total"', "43:5", ["%running is another operator in an earlier group"]),
    (ADD, ADD + "    %more = exp %add : f32[4, 8] at [i, j]\n", "11:5", ["nothing that the group writes needs %more"]),
    ("%add = add %x", "%add = ad %x", "10:12", ["no operator 'ad'"]),
    (ADD, ADD.replace("[i, j]", "[i, k]"), "10:46", ["no loop 'k'"]),
    (ADD, ADD.replace("[i, j]", "[i, 1]"), "10:46", ["a loop or 0"]),
    ("prologue %scaled {", "prologue %scald {", "18:5", ["lines that compute %scald"]),
    # the rules
    ("%product: f32[4, 8], %tanh", "%product: f32[4, 8], %square: f32[4, 8], %tanh", "25:3", ["F01", "%square"]),
    ('"total" = %total', '"total" = %add', "2:1", ["F02: output 'total' is %add, which no group writes"]),
    ("writes %product: f32[4, 8]", "writes %product: f32[4, 8], %scaled: f32[4, 8]", "15:3", ["F09"]),
    ("%tanh = tanh %add : f32[4, 8] at [i, j]", "%tanh = tanh %add : f32[4, 8]", "6:3", ["F06", "written and not"]),
    ("add %x, %gains : f32[4, 8] at [i, j]", "add %x, %gains : f32[4, 8] at [j, i]", "6:3", ["F06", "[i, j]"]),
    ("sum %square {axes = [0]} : f32[8] at [j]", "sum %square {axes = [0]} : f32[8] at [i]", "6:3", ["F06"]),
    ("reducing i {", "reducing j {", "6:3", ["F07", "sums over i, the group over j"]),
    ("reduction for i in 4, j in 8 reducing j", "pointwise for i in 4, j in 8", "25:3", ["F05: sum in a group of kind pointwise"]),
    ("scan for i in 4, j in 8", "scan for i in 8, j in 4", "35:3", ["F05", "f32[4, 8]"]),
    ("scan for", "update for", "35:3", ["F05", "dynamic_update_slice"]),
    ("matmul for i in 4, j in 8", "matmul for i in 4, j in 4", "15:3", ["F05", "f32[4, 8]"]),
    ("matmul for", "attention for", "15:3", ["F05", "does matmul"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "parts"), FAULTS)
def test_a_fault_is_shown_where_it_is(old, new, place, parts):
    assert old in STEP
    with pytest.raises(ParseError) as caught:
        parse_fused(STEP.replace(old, new, 1), "step.eir")
    message = str(caught.value)
    assert str(caught.value.errors[0]).startswith(f"step.eir:{place}: "), message
    for part in parts:
        assert part in message, message


def test_several_faults_at_once():
    text = STEP.replace("tanh %add", "tonh %add").replace("exp %sum", "exp %summ").replace("scan for", "scn for")
    with pytest.raises(ParseError) as caught:
        parse_fused(text, "step.eir")
    assert [str(error).split(": ")[0] for error in caught.value.errors] == [
        "step.eir:11:13", "step.eir:29:16", "step.eir:35:19"
    ]  # fmt: skip


def test_text_that_is_cut_off_or_garbled_is_refused_or_read():
    """Many cuts and small changes: an error of ours or a fused graph that plans, never another exception."""
    number = random.Random(0)
    texts = [STEP[:end] for end in range(0, len(STEP), 7)]
    words = STEP.split(" ")
    for _ in range(400):
        changed = list(words)
        place = number.randrange(len(words))
        changed[place] = number.choice(("", number.choice(words), words[place] * 2, "%", "{", "}", "0", "[]"))
        texts.append(" ".join(changed))
    lines = STEP.splitlines()
    for _ in range(200):
        changed = list(lines)
        changed.insert(number.randrange(len(lines)), changed.pop(number.randrange(2, len(lines))))
        texts.append("\n".join(changed))
    refused = 0
    for text in texts:
        try:
            lower_fused(parse_fused(text, "cut.eir"))
        except ParseError as error:
            refused += 1
            assert all(str(each).startswith("cut.eir:") for each in error.errors), str(error)
    assert refused > 400
