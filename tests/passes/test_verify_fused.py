"""Each rule of the fused level by groups that break it, made by changing a fused graph that keeps them all."""

from pathlib import Path

import pytest

import euler_ir as ei
from euler_ir.compiler import lower
from euler_ir.errors import VerifyError
from euler_ir.index import Index
from euler_ir.loops.verify import RULES as LOOP_RULES
from euler_ir.passes.fused_parser import parse_fused
from euler_ir.passes.fuse import Fuse
from euler_ir.passes.groups import MOST_OPS, FusedGraph, frame_axes
from euler_ir.passes.verify_fused import RULES, verify_fused
from euler_ir.testing.random_graphs import random_graph


def fused():
    """Groups of most kinds: loops, a product with a prologue, a scan, a sum that is added in place."""
    with ei.Graph("all") as graph:
        x, w, gain = ei.input("x", (4, 8)), ei.input("w", (8, 8)), ei.input("gain", (8,))
        table, rows = ei.input("table", (6, 8)), ei.input("rows", (3,), "i64")
        total = ei.parameter("total", (6, 8), ei.initializers.Zeros())
        product = ei.maximum(x * gain, 0.0) @ w
        shares = ei.softmax(product)
        ei.output(running=ei.cumsum(shares, 1), sums=(ei.exp(x) * x).sum(0))
        ei.output(added=table * 2.0 + graph.emit("scatter_add", (rows, ei.exp(table[:3])), axis=0, size=6))
        graph.set_update(total, total + 1.0)
    return lower(graph).fused


def group_of(graph, kind):
    return next(group for group in graph.groups if group.kind == kind)


def value(graph, operator):
    return next(op.result for op in graph.graph.ops if op.name == operator)


def without_input(graph, kind, operator):
    group = group_of(graph, kind)
    group.inputs = tuple(each for each in group.inputs if each.op.name != operator)


# -- by rule: what breaks it -------------------------------------------------------------------------------------------


def reversed_groups(graph):
    return FusedGraph(graph.graph, graph.groups[::-1])


def a_group_less(graph):
    return FusedGraph(graph.graph, tuple(group for group in graph.groups if group.kind != "scan"))


def a_group_twice(graph):
    return FusedGraph(graph.graph, (*graph.groups, graph.groups[0]))


def an_unread_leaf(graph):
    without_input(graph, "matmul", "input")


def an_unread_product(graph):
    group = next(group for group in graph.groups if value(graph, "matmul") in group.inputs)
    made = graph.groups[graph.groups.index(group_of(graph, "matmul"))]
    group.inputs = tuple(each for each in group.inputs if each is not value(graph, "matmul")) + made.inputs


def another_kind(graph):
    group_of(graph, "scan").kind = "scatter"


def a_kind_that_is_none(graph):
    group_of(graph, "pointwise").kind = "stencil"


def another_frame(graph):
    group_of(graph, "scan").frame = (8, 4)


def axes_that_are_none(graph):
    group_of(graph, "reduction").reduced = (5,)


def another_place(graph):
    group = group_of(graph, "reduction")
    i, j = (Index.of(axis) for axis in frame_axes(group.frame))
    root = next(each for each, at in group.roots.items() if len(at) == 2)
    group.roots[root] = (j, i)


def not_its_own(graph):
    group = group_of(graph, "pointwise")
    group.ops = [op for op in group.ops if op.result not in group.outputs]


def other_axes(graph):
    group = group_of(graph, "reduction")
    group.reduced = tuple(axis for axis in range(len(group.frame)) if axis not in group.reduced)


def a_call_of_another(graph):
    group = group_of(graph, "matmul")
    group.call = type(group.call)(**{**vars(group.call), "rows": 3})


def a_prologue_of_nothing(graph):
    group = group_of(graph, "matmul")
    ((operand, made),) = group.prologues.items()
    made.frame = (8, 4)


def a_prologue_of_loops(graph):
    group_of(graph, "scan").prologues = group_of(graph, "matmul").prologues


def a_reader_of_what_is_changed(graph):
    changed = group_of(graph, "scatter").changed
    group_of(graph, "scan").inputs += (changed,)
    return FusedGraph(graph.graph, (*(g for g in graph.groups if g.kind != "scan"), group_of(graph, "scan")))


def what_is_changed_is_given_out(graph):
    graph.graph.outputs["changed"] = group_of(graph, "scatter").changed


BROKEN = [
    ("F01", reversed_groups),
    ("F02", a_group_less),
    ("F02", a_group_twice),
    ("F03", an_unread_leaf),
    ("F04", an_unread_product),
    ("F05", another_kind),
    ("F05", a_kind_that_is_none),
    ("F05", another_frame),
    ("F05", axes_that_are_none),
    ("F06", another_place),
    ("F06", not_its_own),
    ("F07", other_axes),
    ("F09", a_call_of_another),
    ("F10", a_prologue_of_nothing),
    ("F10", a_prologue_of_loops),
    ("F11", a_reader_of_what_is_changed),
    ("F11", what_is_changed_is_given_out),
]


def test_the_graph_that_is_broken():
    graph = fused()
    verify_fused(graph)
    assert {"matmul", "scan", "scatter", "reduction", "pointwise"} <= {group.kind for group in graph.groups}
    assert group_of(graph, "matmul").prologues


@pytest.mark.parametrize(("rule", "change"), BROKEN, ids=lambda each: getattr(each, "__name__", each))
def test_rule(rule, change):
    graph = fused()
    broken = change(graph) or graph
    with pytest.raises(VerifyError, match=f"^{rule}: ") as caught:
        verify_fused(broken)
    assert caught.value.subject is broken or caught.value.subject in broken.groups


def test_a_value_that_is_read_elsewhere_than_made():
    """A transpose of a group's own value reads it at other indices; computed again it may."""
    text = """\
eir 1
fused @turned {
  %x = input {name = "x"} : f32[4, 4]
  group 0 exp: pointwise for i in 4, j in 4 {
    reads %x: f32[4, 4]
    writes %sum: f32[4, 4]
    %exp = exp %x : f32[4, 4] at [i, j]
    %turned = transpose %exp {permutation = [1, 0]} : f32[4, 4]
    %sum = add %x, %turned : f32[4, 4] at [i, j]
  }
  output "sum" = %sum
}
"""
    with pytest.raises(ei.EulerError, match=r"F08: %sum reads %exp at \[j, i\], and it is made at \[i, j\]"):
        parse_fused(text)
    parse_fused(text.replace("exp %x : f32[4, 4] at [i, j]", "exp %x : f32[4, 4]"))


def many_exps(count):
    with ei.Graph("long") as graph:
        x = ei.input("x", (4,))
        for _ in range(count):
            x = ei.exp(x)
        ei.output(y=x)
    return graph


def test_the_largest_groups_that_fuse_can_be_told_to_make_keep_the_rules():
    fused = lower(many_exps(2000), (Fuse(max_ops=232, max_inline_size=0),)).fused
    assert 232 < max(len(group.computed()) for group in fused.groups) <= MOST_OPS
    verify_fused(fused)


def test_a_group_of_too_many_operators():
    graph = many_exps(MOST_OPS + 1)
    fused = lower(graph).fused
    verify_fused(fused)
    whole = fused.groups[0]
    last = fused.groups[-1]
    whole.ops = [op for group in fused.groups for op in group.ops]
    whole.roots = {value: root for group in fused.groups for value, root in group.roots.items()}
    whole.outputs = last.outputs
    with pytest.raises(VerifyError, match="^F12: "):
        verify_fused(FusedGraph(graph, (whole,)))


def test_every_rule_has_a_test():
    covered = {rule for rule, _ in BROKEN} | {"F08", "F12"}
    assert covered == set(RULES)


@pytest.mark.parametrize("seed", range(60))
def test_fusion_keeps_the_rules(seed):
    verify_fused(lower(random_graph(seed).graph).fused)


@pytest.mark.parametrize("rules", [RULES, LOOP_RULES], ids=["fused", "loops"])
def test_the_docs_list_the_rules(rules):
    page = (Path(__file__).parents[2] / "docs" / "eir.md").read_text()
    for rule, meaning in rules.items():
        assert f"| {rule} | {meaning} |" in page
