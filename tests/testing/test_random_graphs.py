"""Random graphs: what is drawn, how it is made smaller, and how it is kept as text."""

import ast
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from euler_ir import interpreter
from euler_ir.dtypes import DTYPES
from euler_ir.errors import GraphError, ParseError
from euler_ir.graph_equality import structurally_equal
from euler_ir.ops import OPS
from euler_ir.passes.meaning import difference
from euler_ir.rebuild import Rebuild
from euler_ir.testing import graphs, random_graph, read_case, write_case
from euler_ir.verify import verify

SEEDS = range(300)
_FIND = settings(
    max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink), derandomize=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def drawn():
    return [random_graph(seed) for seed in SEEDS]


def operators(case):
    return [op.name for op in case.graph.ops if op.definition.family != "leaf"]


def test_every_operator_is_drawn(drawn):
    found = {op.name for case in drawn for op in case.graph.ops}
    assert sorted(OPS.keys() - found) == []


def test_every_dtype_is_drawn_for_leaves_and_results(drawn):
    ops = [op for case in drawn for op in case.graph.ops]
    for family in ("leaf", "elementwise", "movement", "reduction", "indexing"):
        found = {op.result.dtype.name for op in ops if op.definition.family == family}
        assert found >= DTYPES.keys() - ({"bool"} if family == "indexing" else set()), family


def test_all_attributes_of_yes_and_no_are_drawn_both_ways(drawn):
    found = {(op.name, name, op.attributes[name]) for case in drawn for op in case.graph.ops
             for name, kind in op.definition.attributes.items() if kind == "bool"}  # fmt: skip
    flags = {(name, flag) for name, definition in OPS.items() for flag, kind in definition.attributes.items()
             if kind == "bool"}  # fmt: skip
    assert flags and found == {(name, flag, value) for name, flag in flags for value in (True, False)}


def test_the_edges_are_drawn(drawn):
    graphs = [case.graph for case in drawn]
    values = [value for graph in graphs for op in graph.ops for value in op.results]
    attentions, writes = (
        [op for graph in graphs for op in graph.ops if op.name == name] for name in ("attention", "dynamic_update_slice")
    )
    floats = [a.astype(np.float64).ravel() for case in drawn for a in case.leaves.values() if a.dtype.kind not in "iub"]
    numbers = np.concatenate(floats)
    subnormal = [a[np.isfinite(a) & (a != 0)] for case in drawn for a in case.leaves.values() if a.dtype == np.float32]
    seen = {
        "no elements": any(not value.size for value in values),
        "no axes": any(value.shape == () for value in values),
        "a subexpression that is read twice": any(len(ops) > 1 for graph in graphs for ops in graph.uses().values()),
        "one value under two names": any(len(set(graph.outputs.values())) < len(graph.outputs) for graph in graphs),
        "an output that is a leaf": any(v.op.definition.family == "leaf" for g in graphs for v in g.outputs.values()),
        "updates": any(graph.updates for graph in graphs),
        "an optimiser": any(graph.leaf("optim.step") is not None for graph in graphs),
        "attention of grouped queries": any(op.operands[0].shape[:-2] != op.operands[1].shape[:-2] for op in attentions),
        "attention of texts": any(len(op.operands) > 3 for op in attentions),
        "starts for each row": any(op.operands[2].ndim for op in writes),
        "NaN": np.isnan(numbers).any(),
        "infinities": np.isposinf(numbers).any() and np.isneginf(numbers).any(),
        "both zeros": (np.signbit(numbers) & (numbers == 0)).any() and (~np.signbit(numbers) & (numbers == 0)).any(),
        "the largest": (numbers == np.finfo(np.float32).max).any(),
        "subnormal numbers": any((abs(a) < np.finfo(np.float32).tiny).any() for a in subnormal),
    }
    assert [name for name, found in seen.items() if not found] == []


def test_random_graphs_are_good_graphs_and_a_function_of_their_seed(drawn):
    for seed in SEEDS[:50]:
        again = random_graph(seed)
        verify(again.graph)
        assert structurally_equal(drawn[seed].graph, again.graph, names=False)  # names are those of the line that draws
        assert all(again.leaves[name].tobytes() == array.tobytes() for name, array in drawn[seed].leaves.items())


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_the_strategy_gives_good_graphs(case):
    verify(case.graph)
    assert set(case.leaves) == {op.attributes["name"] for op in case.graph.ops if op.definition.has_identity}


@pytest.mark.parametrize("operator", ["cumsum", "argmax", "scatter_add", "cross_entropy"])
def test_a_graph_with_an_operator_is_made_smaller_to_little_else(operator):
    case = find(graphs(), lambda case: operator in operators(case), settings=_FIND)
    assert len(operators(case)) <= 4
    assert len(case.graph.outputs) == 1 and not case.graph.updates


def _forgets_a_flip(op, operands):
    return operands[0] if op.name == "flip" else None


def _swaps_operands(op, operands):
    return operands[1] - operands[0] if op.name == "subtract" else None


def _forgets_a_sign(op, operands):
    return operands[0] if op.name == "negative" else None


@pytest.mark.parametrize("rule", [_forgets_a_flip, _swaps_operands, _forgets_a_sign])
def test_a_wrong_pass_is_made_smaller_to_what_it_breaks(rule):
    def run(graph):
        rebuild = Rebuild(graph, "wrong")
        for op in rebuild:
            value = rule(op, rebuild.operands(op))
            rebuild.copy(op) if value is None else rebuild.replace(op, (value,))
        return rebuild.finish()

    def breaks(case):
        before, after = (interpreter.run(graph, case.leaves) for graph in (case.graph, run(case.graph)))
        return any(difference(old[name], new[name]) for old, new in zip(before, after) for name in old)

    case = find(graphs(), breaks, settings=_FIND)
    assert len(operators(case)) <= 4
    assert all(value.size <= 4 for op in case.graph.ops for value in op.results)


def test_without_the_strategy_hypothesis_is_not_needed():
    script = "import sys, euler_ir.testing as t; t.random_graph(1); print('hypothesis' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ast.literal_eval(ran.stdout) is False


# -- cases as files ----------------------------------------------------------------------------------------------------


def test_cases_are_kept_bit_for_bit(drawn, tmp_path):
    for case in drawn[:60]:
        write_case(tmp_path / "case.eir", case, "Why:\n\nits reason.")
        again = read_case(tmp_path / "case.eir")
        assert structurally_equal(case.graph, again.graph)
        assert list(again.inputs) == [leaf.op.attributes["name"] for leaf in case.graph.inputs]
        for name, array in case.leaves.items():
            kept = again.leaves[name]
            assert (kept.dtype, kept.shape, kept.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert (tmp_path / "case.eir").read_text().startswith("// Why:\n//\n// its reason.\n//= ")


def test_a_case_that_lacks_an_array_says_which(tmp_path):
    path = tmp_path / "case.eir"
    path.write_text('eir 1\ngraph @g {\n  %x = input {name = "x"} : f32[2]\n  output "y" = %x\n}\n')
    with pytest.raises(GraphError, match="gives no array for 'x'"):
        read_case(path)
    path.write_text("//= eir 1\n//= grph @given {}\neir 1\ngraph @g {}\n")
    with pytest.raises(ParseError):
        read_case(path)
