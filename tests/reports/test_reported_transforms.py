"""What passes, plans and programs of other compilers were reported to break: docs/reports.md says where."""

import pickle
import warnings

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.graph_equality import structurally_equal
from euler_ir.initializers import Zeros
from euler_ir.passes import PIPELINE, MergeEqual, Rematerialize

F32 = np.float32


def test_a_product_with_all_that_runs_inside_of_it(run):
    random = np.random.default_rng(0)
    x, w, b, r = (random.standard_normal(shape).astype(F32) for shape in ((33, 70), (70, 45), (45,), (33, 45)))
    found = run(lambda x, w, b, r: ei.gelu(x @ w + b) * 2 + r, x, w, b, r)
    wide = [array.astype(np.float64) for array in (x, w, b, r)]
    exact = interpreter_of(lambda x, w, b, r: ei.gelu(x @ w + b) * 2 + r, *wide)
    # A sum of 70 products of size 1 errs by some ten roundings of its size; GELU and the factor at most triple that.
    size = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
    assert (np.abs(found - exact) <= 3 * 70 * np.finfo(F32).eps * size).all()


def interpreter_of(build, *arrays):
    with ei.Graph("exact") as graph:
        ei.output(y=build(*(ei.input(f"x{place}", array.shape, array.dtype) for place, array in enumerate(arrays))))
    return interpreter.run(graph, {f"x{place}": array for place, array in enumerate(arrays)})[0]["y"]


def test_a_product_added_to_halves(run):
    x, w, c = (np.full((4, 4), value).astype(ei.bf16.numpy) for value in (1.5, 0.25, 3.0))
    found = run(lambda x, w, c: x @ w + c, x, w, c)
    np.testing.assert_array_equal(found.astype(F32), np.full((4, 4), 4.5))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_an_input_that_is_the_state_itself(backend):
    with ei.Graph("overlap") as graph:
        x = ei.input("x", (4,))
        weight = ei.parameter("weight", (4,), Zeros())
        ei.update(weight, weight + x)
        ei.output(y=x * 10)
    state = ei.initial_state(graph)
    state["weight"] = np.arange(4, dtype=F32)
    step = ei.compile(graph, backend)
    for view in (lambda: state["weight"], lambda: np.flip(state["weight"])):
        before = np.array(state["weight"])
        given = np.array(view())
        y = step(state, x=view())["y"]
        np.testing.assert_array_equal(y, given * 10)
        np.testing.assert_array_equal(state["weight"], before + given)


def test_merging_does_not_undo_what_is_computed_again():
    with ei.Graph("again") as graph:
        x = hidden = ei.input("x", (8, 16))
        for layer in range(6):
            hidden = ei.tanh(hidden @ ei.parameter(f"w{layer}", (16, 16), Zeros()))
        ei.output(**{name: ei.gradient(ei.sum(hidden), [x])[0] for name in ("dx",)})
    plain = ei.compile(graph).memory.total
    again = ei.compile(graph, passes=(*PIPELINE, Rematerialize(products=True, long_pieces=True))).memory.total
    assert again <= plain


def test_two_calls_that_draw_are_two(run):
    seed, step = np.array(1, np.int64), np.array(2, np.int64)
    first, second = run(lambda seed, step: tuple(ei.random_uniform((64,), seed, step) for _ in range(2)), seed, step)
    assert not np.array_equal(first, second)


def test_what_draws_and_is_not_read_goes():
    with ei.Graph("dead") as graph:
        ei.random_uniform((64,), 1, 2)
        ei.output(y=ei.input("x", (4,)) * 2)
    assert "random" not in str(ei.compiler.lower(graph).optimized)


def test_a_graph_is_pickled_whole():
    with ei.Graph("pickled") as graph:
        x = ei.input("x", (4, 4))
        w = ei.parameter("w", (4, 4), Zeros())
        ei.output(loss=ei.sum(ei.softmax(x @ w) * np.array([np.nan, -0.0, 1e-45, 3.0], F32)))
        ei.update(w, w - ei.gradient(ei.sum(x @ w), [w])[0])
    again = pickle.loads(pickle.dumps(graph))
    assert structurally_equal(graph, again, locations=True) and str(again) == str(graph)


def test_a_maximum_of_a_stack_is_no_sum(run):
    x, y = np.array([1, 5], F32), np.array([3, 2], F32)
    np.testing.assert_array_equal(run(lambda x, y: ei.max(ei.stack([x, y]), 0), x, y), [3, 5])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_state_moved_within_itself(backend):
    moves = {
        "shifted": lambda a: ei.concatenate([a[:1], a[:-1]]),
        "flipped": lambda a: ei.flip(a),
        "permuted": lambda a: ei.reshape(ei.reshape(a, (4, 4)).T, (16,)),
    }
    with ei.Graph("moves") as graph:
        for name, move in moves.items():
            state = ei.state(name, (16,), Zeros())
            ei.update(state, move(state))
    state, a = ei.initial_state(graph), np.arange(16, dtype=F32)
    for name in moves:
        state[name] = a.copy()
    ei.compile(graph, backend)(state)
    np.testing.assert_array_equal(state["shifted"], np.concatenate([a[:1], a[:-1]]))
    np.testing.assert_array_equal(state["flipped"], a[::-1])
    np.testing.assert_array_equal(state["permuted"], a.reshape(4, 4).T.ravel())


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_readers_see_the_value_from_before_the_update(backend):
    with ei.Graph("order") as graph:
        x = ei.state("x", (8,), Zeros())
        ei.output(y=x + 10, z=(x * 2 + 3) * 1.5)
        ei.update(x, x * 2 + 3)
    state = ei.initial_state(graph)
    state["x"] = np.arange(8, dtype=F32)
    step, x = ei.compile(graph, backend), np.arange(8, dtype=F32)
    for _ in range(3):
        result = step(state)
        np.testing.assert_array_equal(result["y"], x + 10)
        x = x * 2 + 3
        np.testing.assert_array_equal(state["x"], x)
        np.testing.assert_array_equal(result["z"], x * F32(1.5))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_each_call_gives_arrays_of_its_own(backend):
    with ei.Graph("outputs") as graph:
        x = ei.input("x", (4,))
        ei.output(y=x * 2, x=x, again=x)
    step, a = ei.compile(graph, backend), np.arange(4, dtype=F32)
    first, second = step(x=a), step(x=a + 1)
    np.testing.assert_array_equal(first["y"], a * 2)
    np.testing.assert_array_equal(second["y"], (a + 1) * 2)
    second["x"][:] = -1
    assert not np.shares_memory(second["x"], second["again"]) and a[0] == 0


def test_shared_parts_are_walked_once():
    def doublings(n):
        with ei.Graph("ladder") as graph:
            value = ei.input("x", ())
            for _ in range(n):
                value = ei.sin(value) + value * value
            ei.output(y=value, dx=ei.gradient(value, [graph.leaf("x")])[0])
        return len(ei.compiler.lower(graph).optimized.ops)

    # 2**200 ways lead through this ladder; the work follows its rungs.
    assert doublings(200) <= 4.2 * doublings(50)


def test_many_parameters_in_one_kernel(run):
    arrays = [np.array([float(number)], F32) for number in range(300)]
    total = run(lambda *xs: sum(xs[1:], xs[0]), *arrays)
    assert total[0] == sum(range(300))


def test_large_constants_are_left_as_they_are():
    table = np.arange(1_000_000, dtype=F32)
    with warnings.catch_warnings(), ei.Graph("table") as graph:
        warnings.simplefilter("ignore")
        ei.output(y=ei.exp(graph.constant(table) * 2) + ei.input("x", (1_000_000,)))
    optimized = ei.compiler.lower(graph).optimized
    assert any(op.name == "exp" for op in optimized.ops), "not computed while compiling"
    assert ei.compile(graph).memory.total >= table.nbytes


def test_merging_alone_keeps_every_result():
    with ei.Graph("merge") as graph:
        x = ei.input("x", (8,))
        ei.output(a=ei.maximum(x, 0.0), b=ei.maximum(0.0, x), c=x - 1, d=1 - x, e=x + 1.0, f=1.0 + x)
    given = {"x": np.array([np.nan, 0.0, -0.0, 1, -1, np.inf, -np.inf, 1e-45], F32)}
    before, after = (interpreter.run(each, given)[0] for each in (graph, MergeEqual().run(graph)))
    for name in before:
        assert before[name].tobytes() == after[name].tobytes()
