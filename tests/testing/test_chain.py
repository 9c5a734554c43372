"""Random graphs mean the same everywhere: after every pass, on every backend; and the chain says where they do not."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import euler_ir as ei
from euler_ir.compiler import Executable
from euler_ir.errors import ExecutionError
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.ops import OPS
from euler_ir.passes import PIPELINE, MergeEqual, Pass
from euler_ir.rebuild import Rebuild
from euler_ir.testing import BrokenLink, check_chain, graphs, random_graph
from euler_ir.testing.limits import tight_limits

_SETTINGS = dict(deadline=None, suppress_health_check=list(HealthCheck))


def check_seeds(seeds, most_ops: int = 20) -> None:
    for seed in seeds:
        case = random_graph(seed, most_ops)
        try:
            check_chain(case.graph, case.leaves)
        except Exception as error:
            error.add_note(f"random_graph({seed}, {most_ops})")
            raise


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_random_graphs_mean_the_same_everywhere(first):
    check_seeds(range(first, first + 25))


@pytest.mark.parametrize("first", range(200, 300, 25))
def test_random_graphs_at_every_limit_mean_the_same_everywhere(first):
    with tight_limits():
        check_seeds(range(first, first + 25))


@pytest.mark.slow
@settings(max_examples=1000, **_SETTINGS)
@given(graphs())
def test_random_graphs_of_hypothesis_mean_the_same_everywhere(case):
    check_chain(case.graph, case.leaves)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 250))
def test_thousands_of_random_graphs_mean_the_same_everywhere(first):
    check_seeds(range(first, first + 250), most_ops=30)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(5000, 7000, 250))
def test_thousands_of_random_graphs_at_every_limit_mean_the_same_everywhere(first):
    with tight_limits():
        check_seeds(range(first, first + 250), most_ops=30)


# -- what the chain says -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replace(Pass):
    """Put one operator in the place of another."""

    name = "replace"
    old: str = "tanh"
    new: str = "sin"

    def run(self, graph):
        rebuild = Rebuild(graph, self.name)
        for op in rebuild:
            if op.name == self.old:
                rebuild.replace(op, (rebuild.target.emit(self.new, rebuild.operands(op)),))
            else:
                rebuild.copy(op)
        return rebuild.finish()


def tanh_graph():
    with ei.Graph("g") as graph:
        ei.output(y=ei.tanh(ei.input("x", (3,))) * 2)
    return graph, {"x": np.array([0.5, -1.0, 2.0], np.float32)}


def test_a_wrong_pass_of_the_user_is_named():
    graph, leaves = tanh_graph()
    check_chain(graph, leaves)
    with pytest.raises(BrokenLink, match=r"pass replace, number 1 of .*output 'y'") as caught:
        check_chain(graph, leaves, passes=(Replace(), *PIPELINE))
    assert caught.value.link.startswith("pass replace")


def test_a_pass_that_fails_is_named_with_its_error(monkeypatch):
    def fail(self, graph):
        raise KeyError("merge")

    monkeypatch.setattr(MergeEqual, "run", fail)
    with pytest.raises(BrokenLink, match="pass cse alone: KeyError: 'merge'"):
        check_chain(*tanh_graph())


def test_a_wrong_backend_is_named(monkeypatch):
    call = Executable.__call__

    def one_off(self, state=None, /, **inputs):
        found = call(self, state, **inputs)
        if "Cpu" in type(self.program).__name__:
            found["y"][0] += 1
        return found

    monkeypatch.setattr(Executable, "__call__", one_off)
    with pytest.raises(BrokenLink, match="cpu, 1 thread: output 'y'"):
        check_chain(*tanh_graph())


def test_a_wrong_meaning_in_one_type_is_named(monkeypatch):
    """Four digits of f32: nearer than any other check of a graph by itself would see."""
    tanh = OPS["tanh"]

    def four_digits(attributes, x):
        return tanh.evaluate(attributes, x) if x.dtype == np.float64 else np.round(np.tanh(x), 4)

    monkeypatch.setitem(OPS, "tanh", replace(tanh, evaluate=four_digits))
    with pytest.raises(BrokenLink, match="interpreter in f64: output 'y' at"):
        check_chain(*tanh_graph())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_that_overflows_may_be_fused_with_a_sum_that_is_infinite(dtype):
    """-inf * -2 + largest * -2 is infinite by fused multiply-adds, and NaN where products are rounded first."""
    largest = np.finfo(dtype).max
    leaves = {"x": np.array([[1, -np.inf, 1, largest]], dtype), "w": np.array([[-2, 1]] * 4, dtype)}
    with ei.Graph("g") as graph:
        ei.output(y=ei.matmul(*(ei.input(name, array.shape, array.dtype) for name, array in leaves.items())))
    agreement = Agreement(graph, leaves)
    for first in (np.nan, np.inf):
        assert agreement.fault(({"y": np.array([[first, -np.inf]], dtype)}, {})) is None
    assert agreement.fault(({"y": np.array([[np.inf, 5]], dtype)}, {})) is not None


def test_below_the_least_normal_number_rounding_is_by_steps_of_the_least():
    """A third of the least number is 0, or the least where another way of computing it rounds up."""
    least = np.finfo(np.float32).smallest_subnormal
    leaves = {"x": np.array([[least]]), "w": np.array([[1 / 3]], np.float32)}
    with ei.Graph("g") as graph:
        ei.output(y=ei.matmul(*(ei.input(name, array.shape) for name, array in leaves.items())))
    agreement = Agreement(graph, leaves)
    assert all(agreement.fault(({"y": np.array([[y]], np.float32)}, {})) is None for y in (0, least))
    assert agreement.fault(({"y": np.array([[10 * least]], np.float32)}, {})) is not None


def test_attention_may_pass_over_what_a_query_must_not_see_and_nothing_else_may():
    """The first query sees one key, whose value is infinite; numpy multiplies the other, -inf, by 0."""
    leaves = {name: np.ones((2, 1), np.float32) for name in "qk"}
    leaves |= {"v": np.array([[np.inf], [-np.inf]], np.float32), "x": np.array([np.inf], np.float32)}
    with ei.Graph("g") as graph:
        q, k, v, x = (ei.input(name, array.shape) for name, array in leaves.items())
        ei.output(y=graph.emit("attention", (q, k, v), causal=True, scale=1.0)[0], z=x * 0.0)
    agreement = Agreement(graph, leaves)

    def fault(first, second, product):
        arrays = {"y": np.array([[first], [second]], np.float32), "z": np.array([product], np.float32)}
        return agreement.fault((arrays, {}))

    assert fault(np.nan, np.nan, np.nan) is None and fault(np.inf, np.nan, np.nan) is None
    assert "'y' at [1, 0]" in fault(np.inf, 0, np.nan)
    assert "'z' at [0]" in fault(np.inf, np.nan, 0)


@pytest.mark.parametrize("unseen", [True, False])
def test_a_gradient_may_pass_over_queries_that_see_no_key(unseen):
    """Their weights are 0; with a logsumexp of NaN they are NaN in numpy. The other query's weight is exp(2 * 3)."""
    logsumexp = np.array([np.nan, 0] if unseen else [0, np.nan], np.float32)
    leaves = {"q": np.full((2, 1), 2, np.float32), "k": np.array([[3]], np.float32), "v": np.array([[5]], np.float32)}
    leaves |= {"logsumexp": logsumexp, "d_output": np.ones((2, 1), np.float32), "delta": np.zeros(2, np.float32)}
    with ei.Graph("g") as graph:
        operands = tuple(ei.input(name, array.shape) for name, array in leaves.items())
        ei.output(d_value=graph.emit("attention_gradient", operands, causal=True, scale=1.0)[2])
    passed_over = {"d_value": np.array([[np.exp(6)]], np.float32)}
    found = Agreement(graph, leaves).fault((passed_over, {}))
    assert found is None if unseen else "not nan" in found


def test_a_graph_that_the_interpreter_refuses_breaks_no_link():
    graph, _ = tanh_graph()
    with pytest.raises(ExecutionError, match="'x' is missing"):
        check_chain(graph, {})
