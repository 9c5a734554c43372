"""Pipelines as text: every pipeline reads back, faults have a caret and a hint, a pass is known once it is defined."""

import enum
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.graph import Graph
from euler_ir.passes import (
    NUMERICS,
    PASSES,
    PIPELINE,
    PRESETS,
    Decompose,
    Fold,
    Fuse,
    MergeEqual,
    Pass,
    Pipeline,
    Rematerialize,
    Simplify,
    SplitRows,
    optimize,
    parse_pipeline,
)
from euler_ir.passes.groups import FusedGraph
from euler_ir.passes.pipeline import as_pipeline, options_text


class Colour(enum.Enum):
    red = 1
    deep_blue = 2


@dataclass(frozen=True)
class ManyOptions(Pass):
    """Have an option of every type."""

    name = "many-options"
    count: int = 3
    rate: float = 0.5
    label: str = "plain"
    wide: bool = False
    most: int | None = None
    colour: Colour = Colour.red
    mode: Literal["fast", "slow", 3] = "fast"
    keep: frozenset[str] = frozenset({"a"})
    order: tuple[str, ...] = ()

    def run(self, graph):
        return graph


words = st.text(max_size=8)
passes = st.one_of(
    st.just(MergeEqual()),
    st.builds(Fold, st.integers(0)),
    st.builds(Decompose, st.frozensets(words)),
    st.builds(Simplify, st.sampled_from(["exact", "better"])),
    st.builds(Rematerialize),
    st.builds(SplitRows, st.integers(1)),
    st.builds(
        ManyOptions,
        st.integers(),
        st.floats(allow_nan=False),
        words,
        st.booleans(),
        st.none() | st.integers(),
        st.sampled_from(Colour),
        st.sampled_from(["fast", "slow", 3]),
        st.frozensets(words),
        st.lists(words).map(tuple),
    ),
)


@given(st.lists(passes, max_size=5), st.booleans())
def test_every_pipeline_reads_back(chosen, fused):
    pipeline = Pipeline([*chosen, *([Fuse(max_ops=7)] if fused else [])])
    again = parse_pipeline(str(pipeline))
    assert again == pipeline and str(again) == str(pipeline)
    assert [type(each) for each in again] == [type(each) for each in pipeline]


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_pipelines_and_stand_in_others(name):
    preset = parse_pipeline(name)
    assert parse_pipeline(str(preset)) == preset and name not in PASSES
    ends_in_fusion = bool(preset) and preset[-1].level == "fused"  # nothing can follow
    last = () if ends_in_fusion else (MergeEqual(),)
    text = ",".join((f"dce, {name} ", *map(str, last)))
    assert parse_pipeline(text) == (parse_pipeline("dce")[0], *preset, *last)


def test_what_a_text_means():
    assert parse_pipeline("simplify,\n  cse") == (Simplify(), MergeEqual())
    assert parse_pipeline("") == parse_pipeline("none") == () and str(Pipeline()) == "none"
    assert parse_pipeline("decompose{keep={}}")[0] == Decompose(frozenset())
    assert parse_pipeline("fold{}") == (Fold(),)
    assert parse_pipeline('many-options{label="a b, {c}"}')[0].label == "a b, {c}"
    assert parse_pipeline("many-options{most=none,keep={},order=b|a}") == (
        ManyOptions(keep=frozenset(), order=("b", "a")),
    )
    assert str(ManyOptions(label="true", most=3)) == 'many-options{label="true",most=3}'
    assert parse_pipeline("default") == PIPELINE


FAULTS = [
    ("simplfy,cse", 0, "there is no pass 'simplfy'", "did you mean simplify?"),
    ("cse,zzzzzzz", 4, "there is no pass 'zzzzzzz'", "`euler-ir passes` lists them all"),
    ("cse,defualt", 4, "there is no pass 'defualt'", "did you mean default?"),
    ("simplify{numeric=exact}", 9, "simplify has no option 'numeric'", "did you mean numerics?"),
    ("fold{zzz=1}", 5, "fold has no option 'zzz'", "fold takes byte_limit: an integer (default 65536)"),
    ("cse{x=1}", 4, "cse has no option 'x'", "cse takes no options"),
    ("simplify{numerics=exakt}", 18, "numerics is exakt, expected exact or better or ", "did you mean exact?"),
    ("fold{byte_limit=many}", 16, "byte_limit is many, expected an integer", None),
    ("fold{byte_limit=1|2}", 16, "byte_limit is 1|2, expected an integer, not several", None),
    ("fold{byte_limit=-1}", 0, "byte_limit is -1, expected at least 0", options_text(Fold)),
    ("cse,fuse{max_ops=0}", 4, "fuse: max_ops is 0, expected at least 1", options_text(Fuse)),
    ("fuse{max_inline_size=-1}", 0, "max_inline_size is -1, expected at least 0", options_text(Fuse)),
    ("fuse{max_ops=400}", 0, "max_ops is 400 and max_inline_size 24, expected at most 232 ", options_text(Fuse)),
    ("split-rows{block_bytes=0}", 0, "block_bytes is 0, expected at least 1", options_text(SplitRows)),
    ("many-options{wide=yes}", 18, "wide is yes, expected true or false", None),
    ("many-options{colour=deep_bleu}", 20, "expected red or deep_blue", "did you mean deep_blue?"),
    ("many-options{most=few}", 18, "most is few, expected an integer", None),
    ("fold{byte_limit=1,byte_limit=2}", 18, "option 'byte_limit' is given twice", None),
    ("fold{byte_limit}", 15, "expected '=', found '}'", None),
    ("fold{byte_limit=}", 16, "expected a value, found '}'", None),
    ("fold{byte_limit=3", 17, "expected ',' or '}', found the end", None),
    ("cse,", 4, "expected the name of a pass or preset, found the end", None),
    ("cse dce", 4, "expected ',' or the end, found 'dce'", None),
    ("cse;dce", 3, "expected ',' or the end, found ';'", None),
    ("fuse,cse", 5, "nothing can follow fuse, which leaves the level of graphs", None),
    ("fuse,default", 5, "nothing can follow fuse, which leaves the level of graphs", None),
]


@pytest.mark.parametrize(("text", "column", "what", "hint"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_faults_have_a_caret_and_a_hint(text, column, what, hint):
    with pytest.raises(ei.ParseError) as caught:
        parse_pipeline(text)
    error = caught.value
    assert what in error.message and error.hint == hint
    assert error.details == (text, " " * column + "^")


def test_defining_a_pass_registers_it():
    @dataclass(frozen=True)
    class Nothing(Pass):
        """Change nothing."""

        name = "nothing-at-all"

        def run(self, graph):
            return graph

    assert PASSES["nothing-at-all"] is Nothing
    assert parse_pipeline("nothing-at-all,cse") == (Nothing(), MergeEqual())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (dict(__doc__="Do it."), "pass Wrong has no name"),
        (dict(name="wrong-one"), "pass 'wrong-one' has no docstring"),
        (dict(name="cse", __doc__="Do it."), "pass 'cse' is defined already, by euler_ir.passes.cse.MergeEqual"),
        (dict(name="wrong-two", __doc__="Do it.", numerics="good"), "'good' is not one of exact, better"),
    ],
)
def test_a_pass_defined_wrongly_is_refused(members, message):
    with pytest.raises(ei.PassError, match=message):
        type("Wrong", (Pass,), {"run": lambda self, graph: graph, **members})
    assert not any(made.__name__ == "Wrong" for made in PASSES.values())


def test_every_pass_says_what_it_does():
    for name, made in PASSES.items():
        assert made.name == name and made.summary().endswith(".") and made.level in ("graph", "fused")
        assert isinstance(made.numerics, property) or made.numerics in NUMERICS
        assert options_text(made).startswith(name)


def doubled():
    with ei.Graph("doubled") as graph:
        x = ei.input("x", (4, 5))
        y = ei.exp(x * 1)
        ei.output(y=y, z=ei.sin(y).sum(1))
    return graph


def test_pipelines_as_text_everywhere():
    graph = doubled()
    assert str(optimize(graph, "default")) == str(optimize(graph)) == str(lower(graph, "default").optimized)
    fused = optimize(graph, "default,fuse{max_ops=1}")
    assert isinstance(fused, FusedGraph) and len(fused.groups) == 2 and len(lower(graph).fused.groups) == 1
    assert str(lower(graph, "default,fuse{max_ops=1}").fused) == str(fused)
    result = ei.compile(graph, "reference", passes="simplify,default")(x=[[0, 0, 0, 0, 0]] * 4)
    assert np.allclose(result["z"], 5 * np.sin(1))
    assert isinstance(optimize(graph, "none"), Graph) and optimize(graph, "none") is graph


def test_what_is_no_pass_is_refused():
    with pytest.raises(ei.PassError, match="is not a pass") as caught:
        as_pipeline([Simplify, MergeEqual()])
    assert caught.value.hint == "write Simplify()"
    with pytest.raises(ei.PassError, match="nothing can follow fuse"):
        as_pipeline([Fuse(), MergeEqual()])
    with pytest.raises(ei.ParseError, match="there is no pass 'defualt'"):
        ei.compile(doubled(), passes="defualt")
