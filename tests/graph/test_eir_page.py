"""docs/eir.md says what the text form is: its examples are read, and its rules are those that are checked."""

import re
from pathlib import Path

import pytest

import euler_ir as ei
from euler_ir.inspect.program_file import parse_program
from euler_ir.loops.verify import RULES as LOOP_RULES
from euler_ir.ops.definition import ATTRIBUTE_KINDS
from euler_ir.passes.verify_fused import RULES as FUSED_RULES
from euler_ir.text import parse_graph, print_graph
from euler_ir.verify import RULES as GRAPH_RULES

PAGE = (Path(__file__).parents[2] / "docs" / "eir.md").read_text()
EXAMPLES = re.findall(r"^```\n(eir 1\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split()[2])
def test_examples_are_read(text):
    parse_program(text)


def test_there_is_an_example_of_each_level():
    assert {text.split()[2] for text in EXAMPLES} == {"graph", "fused", "kernel"}


@pytest.mark.parametrize("text", [text for text in EXAMPLES if text.split()[2] == "graph"])
def test_examples_of_graphs_are_printed_as_they_are(text):
    assert print_graph(parse_graph(text), locations="loc @" in text) == text


def test_the_rules_are_those_that_are_checked():
    rows = dict(re.findall(r"^\| ([VFL][0-9]{2}) \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows == {**GRAPH_RULES, **FUSED_RULES, **LOOP_RULES}


def test_every_kind_of_attribute_is_there():
    kinds = re.findall(r"^\| ([a-z]+) \| `", PAGE, re.MULTILINE)
    assert set(kinds) == set(ATTRIBUTE_KINDS)


def test_the_errors_are_those_that_are_said():
    lines = ["eir 1", "graph @g {", '  %x = input {name = "x"} : f32[2, 3]', "  %y = exq %x : f32[2, 3]"]
    lines += ["  %z = add %y, %x : f32[2, 3]", "  %u = exp %xx : f32[2, 3]", "}"]
    with pytest.raises(ei.ParseError) as caught:
        parse_graph("\n".join(lines), "g.eir")
    assert f"```text\n{caught.value}\n```" in PAGE
