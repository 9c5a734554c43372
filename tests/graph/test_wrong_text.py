"""Wrong text: all that is wrong with it is said at once, and whatever it is, it gives a graph or a ParseError."""

import random

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.text import parse_graph, print_graph
from euler_ir.text.reader import MAX_ERRORS
from euler_ir.verify import verify

WRONG = """\
eir 1
graph @g {
  %x = input {name = "x"} : f32[2, 3]
  %y = exq %x : f32[2, 3]
  %z = add %y, %x : f32[2, 3]
  %u = exp %xx : f32[2, 3]
  %v = sum %x {axes = [0, 9]} : f32[3]
  %w = exp %x : f32[2, 4]
  %a = tanh %z : f32[2, 3]
  %b = tanh %x : f32[2, 3] @3
  output "a" = %a
  otput "b" = %b
  output "c" = %c
}
loc @0 = "model.py":3 in f
"""


def errors_of(text):
    with pytest.raises(ei.ParseError) as caught:
        parse_graph(text, "g.eir")
    return caught.value


def test_several_errors_are_reported_at_once():
    error = errors_of(WRONG)
    assert [each.message for each in error.errors] == [
        "g.eir:4:8: there is no operator 'exq'",
        "g.eir:6:12: %xx is not defined before this use",
        "g.eir:7:8: axes (0, 9) do not fit a tensor of 2 axes",
        "g.eir:8:17: exp gives f32[2, 3] here, another type is written",
        "g.eir:12:3: expected a value, 'output', 'update' or '}', found 'otput'",
        "g.eir:13:16: %c is not defined before this use",
        "g.eir:10:29: there is no location @3",
    ]
    assert error.message == "g.eir has 7 errors"
    text = str(error)
    for each in error.errors:
        assert each.message in text
    assert "      %y = exq %x : f32[2, 3]\n           ^\n" in text
    assert "did you mean exp?" in text and "did you mean %x?" in text and "did you mean output?" in text


def test_what_follows_from_an_error_is_not_one():
    lines = ["eir 1", "graph @g {", '%x = input {name = "x"} : f32[2]', "%y0 = exq %x : f32[2]"]
    lines += [f"%y{n + 1} = exp %y{n} : f32[2]" for n in range(50)]
    lines += ['output "y" = %y50', 'update "w" = %y50', "}"]
    assert len(errors_of("\n".join(lines)).errors) == 1


def test_an_error_alone_is_raised_as_it_is():
    error = errors_of("eir 1\ngraph @g {\n%y = exp %x : f32[2]\n}\n")
    assert error.errors == (error,) and error.message.startswith("g.eir:3:10: %x is not defined")


def test_after_many_errors_reading_stops():
    lines = "".join(f"%y{n} = exq : f32[2]\n" for n in range(1000))
    error = errors_of(f"eir 1\ngraph @g {{\n{lines}}}\n")
    assert len(error.errors) == MAX_ERRORS and error.message == f"g.eir has {MAX_ERRORS} errors or more"


def test_type_errors_show_the_operands_of_their_statement():
    text = 'eir 1\ngraph @g {\n%x = input {name = "x"} : f32[2, 3]\n%w = input {name = "w"} : f32[4, 5]\n'
    call = "%y = matmul %x, %w {transpose_left = false, transpose_right = false} : f32[2, 5]\n"
    first, second = errors_of(text + call + call.replace("%y", "%z") + "}\n").errors
    assert first.message.startswith("g.eir:5:6: ") and second.message.startswith("g.eir:6:6: ")
    assert first.details[2:] == ("x: f32[2, 3]", "w: f32[4, 5]")


def test_a_statement_of_several_lines_is_skipped_as_a_whole():
    text = 'eir 1\ngraph @g {\n%x = input {\n  nme = "x"\n} : f32[2]\n%z = exq %z : f32[2]\n}\n'
    assert [each.message.split(": ")[0] for each in errors_of(text).errors] == ["g.eir:4:3", "g.eir:6:6"]


# -- anything at all ---------------------------------------------------------------------------------------------------


def sample():
    with ei.Graph("sample") as graph:
        with graph.scope('a "b"'):
            x = ei.input("x", (4, 8))
            weight = ei.parameter("weight", (8, 8), ei.initializers.Normal(0.02))
            noise = ei.random_normal((4, 8), 1, 2)
            table = ei.constant(np.arange(32, dtype=np.float32).reshape(4, 8))
            nans, flags = ei.constant(np.full((5, 5), np.nan, np.float16)), ei.constant(np.array([True, False]))
            row = ei.reshape(x, (1, 4, 8))
            chosen = ei.where(ei.less(x, 0.0), x, table).named("größe #3")
        ei.output(attention=ei.attention(row, row, row), nans=nans, flags=flags, sum=chosen + noise @ weight)
        ei.update(weight, weight * 2.0)
    return print_graph(graph, locations=True)


def attempt(text):
    """Whether ``text`` is a graph; if it is, it keeps the rules and goes through text unchanged."""
    try:
        graph = parse_graph(text)
    except ei.ParseError as error:
        assert error.errors and len(str(error)) < 100_000
        return False
    verify(graph)
    again = print_graph(graph, locations=True)
    assert print_graph(parse_graph(again), locations=True) == again
    return True


def test_every_beginning_of_a_text():
    text = sample()
    assert attempt(text)
    assert sum(attempt(text[:end]) for end in range(0, len(text), 3)) < 10


PIECES = [
    *'%"{}[]():,=@\\', "loc", "resource", "output", "update", "graph", "eir", "nan", "inf", "-", "1e999", "9" * 25,
    "9" * 5000, "%x", '%"', "\n", "\r\n", "\t", "\x00", "\ud800", "é", "f32[", "f32[2, 3]", "f32[99999999999999999999]",
    "f32[-1]", "nan(0x", 'sha256("', "splat(", "//", "#2", "%a#b", "\x85", "\u2028", "scope", "via", "..", "1.", "[[",
    "@9",
]  # fmt: skip


def damaged(text, choose):
    kind = choose.randrange(5)
    if kind < 3:
        start = choose.randrange(len(text))
        end = start + (0, choose.randrange(1, 12), choose.randrange(1, 6))[kind]
        return text[:start] + (choose.choice(PIECES) if kind != 1 else "") + text[end:]
    lines = text.split("\n")
    start, other = choose.randrange(len(lines)), choose.randrange(len(lines))
    lines[start : start + 1] = [] if kind == 3 else [lines[other], lines[start]]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_text(seed):
    choose, text = random.Random(seed), sample()
    for _ in range(150):
        broken = text
        for _ in range(choose.choice((1, 1, 2, 10))):
            broken = damaged(broken, choose)
        attempt(broken)


def test_pieces_in_any_order():
    choose = random.Random(0)
    for _ in range(100):
        attempt("eir 1\ngraph @g {\n" + "".join(choose.choice(PIECES) + choose.choice(" \n") for _ in range(60)))
        attempt(bytes(choose.randrange(256) for _ in range(100)).decode("latin1"))


@pytest.mark.parametrize("change", [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n")])
def test_text_of_other_editors_is_read(change):
    assert print_graph(parse_graph(change(sample())), locations=True) == sample()


SIZE = 200_000
LARGE = {
    "letters": "a" * SIZE,
    "quotes": '"' * SIZE,
    "escapes": '\\"' * (SIZE // 2),
    "unterminated": '"' + 'a\\"' * (SIZE // 3),
    "brackets": "%y = constant {value = " + "[" * SIZE,
    "digits": "%y = constant {value = " + "9" * SIZE + "} : i64[]",
    "size": "%y = iota {axis = 0} : i64[" + "9" * SIZE + "]",
    "axes": "%y = iota {axis = 0} : i64[" + "1, " * SIZE + "1]",
    "names": "%a," * (SIZE // 3),
    "types": "a[" * (SIZE // 2),
    "nan": "nan(0x" * (SIZE // 6),
    "elements": "%y = constant {value = [" + "1, " * (SIZE // 3) + "1]} : i64[2]",
    "blocks": "{\n" * (SIZE // 2),
    "ends": "}\n" * (SIZE // 2),
    "surrogates": "\ud800" * SIZE,
    "empty": "%y = constant {value = []} : i64[0, 99999999999999999, 9999999999999999]",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_long_lines_are_refused(text):
    assert not attempt("eir 1\ngraph @g {\n" + text + "\n}\n")
