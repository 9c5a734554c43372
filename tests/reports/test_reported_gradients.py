"""Gradients that other compilers were reported to get wrong: docs/reports.md says where."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import optim
from euler_ir.initializers import Full
from euler_ir.passes import PIPELINE, Rematerialize

F32 = np.float32


def slope(build):
    """The gradient of the sum of what ``build`` makes of its operands, for all of them."""
    return lambda *operands: tuple(ei.gradient(ei.sum(build(*operands)), list(operands)))


def test_the_norm_of_zeros(run):
    # The slope of the root is infinite at 0, that of the squares 0: there is no derivative, and no number is made up.
    (found,) = run(slope(lambda x: ei.sqrt(ei.sum(x * x))), np.zeros(3, F32))
    assert np.isnan(found).all()
    (found,) = run(slope(lambda x: ei.where(ei.sum(x * x) > 0, ei.sqrt(ei.sum(x * x)), 0)), np.zeros(3, F32))
    assert (found == 0).all()


def test_a_broadcast_of_one_row_sums_its_gradient(run):
    x, y = np.arange(3, dtype=F32).reshape(1, 3), np.arange(12, dtype=F32).reshape(4, 3)
    for shape in ((1, 3), (3,)):
        found = run(slope(lambda x, y: x * y), x.reshape(shape), y)
        assert [array.shape for array in found] == [shape, (4, 3)]
        np.testing.assert_array_equal(found[0], y.sum(0).reshape(shape))


@pytest.mark.parametrize("function", [ei.sum, ei.prod, ei.max, ei.logsumexp])
def test_axes_counted_from_the_end(run, function):
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    back = run(slope(lambda x: function(function(x, -1), -1)), x)
    front = run(slope(lambda x: function(function(x, 2), 1)), x)
    np.testing.assert_array_equal(back, front)


def test_the_same_tensor_given_several_times(run):
    x = np.random.default_rng(0).standard_normal((3, 3))
    (square,) = run(slope(lambda x: x * x), x)
    np.testing.assert_allclose(square, 2 * x, rtol=1e-15)
    (product,) = run(slope(lambda x: x @ x), x)
    ones = np.ones((3, 3))
    np.testing.assert_allclose(product, ones @ x.T + x.T @ ones, rtol=1e-12)
    (gram,) = run(slope(lambda x: x @ x.T), x)
    np.testing.assert_allclose(gram, 2 * ones @ x, rtol=1e-12)


def test_attention_of_a_tensor_with_itself(run):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 5, 4))
    (found,) = run(slope(lambda x: ei.attention(x, x, x) * x), x)
    given = torch.tensor(x, requires_grad=True)
    attended = torch.nn.functional.scaled_dot_product_attention(given, given, given, is_causal=True)
    (attended * given).sum().backward()
    np.testing.assert_allclose(found, given.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_dropout_keeps_its_mask_where_it_is_computed_again():
    def training(passes):
        with ei.Graph("step") as graph:
            x, step = ei.input("x", (16, 32)), ei.input("step", (), ei.i64)
            hidden = x
            for layer in range(4):
                weight = ei.parameter(f"w{layer}", (32, 32), Full(0.05 + 0.01 * layer))
                hidden = ei.dropout(ei.tanh(hidden @ weight), 0.5, 7, step)
            loss = ei.mean(hidden * hidden)
            optim.SGD(0.5).step(loss)
            ei.output(loss=loss)
        state = ei.initial_state(graph)
        executable = ei.compile(graph, passes=passes)
        x = np.random.default_rng(0).standard_normal((16, 32)).astype(F32)
        for step in range(3):
            executable(state, x=x, step=np.int64(step))
        return {name: np.array(state[name]) for name in state}

    kept = training(PIPELINE)
    again = training((*PIPELINE, Rematerialize(products=True, long_pieces=True)))
    assert all(np.array_equal(kept[name], again[name]) for name in kept) and len(kept) == 4


def test_parameters_that_look_alike_are_two():
    with ei.Graph("alike") as graph:
        first, second = (ei.parameter(name, (), Full(3.0)) for name in ("first", "second"))
        unused = ei.parameter("unused", (2, 3), Full(1.0))
        gradients = ei.gradient(first + second, [first, second, unused])
        ei.output(**dict(zip(("first", "second", "unused"), gradients)))
    found = ei.compile(graph)(ei.initial_state(graph))
    assert found["first"] == 1 and found["second"] == 1
    np.testing.assert_array_equal(found["unused"], np.zeros((2, 3)))


def test_powers_at_the_ends(run):
    x = np.array([0, np.inf, -np.inf, 2], np.float64)
    value, (gradient,) = run(lambda x: x**0, x), run(slope(lambda x: x**0), x)
    np.testing.assert_array_equal(value, 1)
    np.testing.assert_array_equal(gradient, 0)


def test_a_permuted_and_broadcast_operand(run):
    x, y = np.arange(6, dtype=F32).reshape(2, 3), np.arange(24, dtype=F32).reshape(4, 3, 2)
    found = run(slope(lambda x, y: x.T * y), x, y)
    np.testing.assert_array_equal(found[0], y.sum(0).T)
    np.testing.assert_array_equal(found[1], np.broadcast_to(x.T, (4, 3, 2)))


def test_products_without_columns_or_terms(run):
    for inner, columns in ((4, 0), (0, 4), (0, 0)):
        x, y = np.ones((3, inner), F32), np.ones((inner, columns), F32)
        np.testing.assert_array_equal(run(lambda x, y: x @ y, x, y), np.zeros((3, columns)))
        dx, dy = run(slope(lambda x, y: x @ y), x, y)
        np.testing.assert_array_equal(dx, np.zeros((3, inner)))
        np.testing.assert_array_equal(dy, np.full((inner, columns), 3))


def test_an_embedding_read_twice_adds_up_and_reads_rows_only(run):
    table, rows = np.arange(8, dtype=F32).reshape(4, 2), np.array([1, 3, 1])
    found = run(lambda table, rows: ei.gradient(ei.sum(ei.take(table, rows)), [table])[0], table, rows)
    np.testing.assert_array_equal(found, [[0, 0], [2, 2], [0, 0], [1, 1]])
    with ei.Graph("embedding") as graph:
        ei.output(y=ei.take(ei.input("table", (50257, 8)), ei.input("rows", (3,), ei.i64)))
    sizes = [value.size for op in graph.ops for value in op.results if op.definition.family != "leaf"]
    assert max(sizes) == 24, "no one-hot rows, no copy of the table"
