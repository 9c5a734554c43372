"""Shapes that other compilers were reported to get wrong: docs/reports.md says where."""

import numpy as np
import pytest

import euler_ir as ei

F32 = np.float32


@pytest.mark.parametrize("axis", [0, 1, 2, 3, (1, 3), None])
def test_reductions_of_nothing(run, axis):
    x = np.ones((3, 4, 0, 5), F32)
    total, product, mean = run(lambda x: (ei.sum(x, axis), ei.prod(x, axis), ei.mean(x, axis)), x)
    np.testing.assert_array_equal(total, x.sum(axis))
    np.testing.assert_array_equal(product, x.prod(axis))
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if axis in (2, None) else np.errstate():
        np.testing.assert_array_equal(mean, x.mean(axis))


def test_the_largest_of_nothing_names_the_axis(run):
    for function in (ei.max, ei.min, ei.argmax):
        with pytest.raises(ei.EulerError, match="axis 2|of size 0|empty|nothing"):
            run(lambda x: function(x, 2), np.ones((3, 4, 0, 5), F32))
    assert run(lambda x: ei.max(x, 1), np.ones((3, 4, 0, 5), F32)).shape == (3, 0, 5)


def test_rows_of_nothing_move(run):
    x = np.ones((0, 3), F32)
    found = run(
        lambda x: (
            ei.flip(x), x.T, ei.reshape(x, (3, 0)), ei.concatenate([x, x]), ei.cumsum(x, 0), ei.softmax(x, 1),
            ei.softmax(x.T, 1), x[:, 1:], ei.pad(x, [(1, 0), (0, 0)], value=7), ei.exp(x) + 1,
        ),
        x,
    )  # fmt: skip
    assert [array.shape for array in found] == [
        (0, 3), (3, 0), (3, 0), (0, 3), (0, 3), (0, 3), (3, 0), (0, 2), (1, 3), (0, 3),
    ]  # fmt: skip
    np.testing.assert_array_equal(found[8], [[7, 7, 7]])


def test_no_rows_are_taken_and_none_added(run):
    table, rows = np.ones((4, 2), F32), np.zeros((0,), np.int64)
    taken, slope = run(lambda t, r: (ei.take(t, r), ei.gradient(ei.sum(ei.take(t, r)), [t])[0]), table, rows)
    assert taken.shape == (0, 2)
    np.testing.assert_array_equal(slope, np.zeros((4, 2)))


def test_scalars_are_tensors(run):
    x, h = np.array(2.0, F32), np.array(0.5, np.float16)
    found = run(
        lambda x, h: (
            ei.exp(x), ei.sum(x), ei.max(x), x * 3, ei.softmax(ei.reshape(x, (1,))), x.broadcast_to((2, 2)),
            ei.where(x > 1, x, 0), h * 3.7, ei.argmax(x),
        ),
        x, h,
    )  # fmt: skip
    assert [array.shape for array in found] == [(), (), (), (), (1,), (2, 2), (), (), ()]
    assert found[7].dtype == np.float16, "a number does not widen a half"


@pytest.mark.parametrize("size", [1, 3, 15, 16, 17, 31, 33, 63, 65, 130])
def test_sizes_that_are_no_multiple_of_anything(run, size):
    x = np.random.default_rng(size).standard_normal((3, 5, size)).astype(F32)
    total, row, shifted = run(lambda x: (ei.sum(x, 2), ei.max(ei.exp(x), 2), x - ei.mean(x, 2, keepdims=True)), x)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(total, wide.sum(2), atol=1e-4)
    np.testing.assert_allclose(row, np.exp(wide).max(2), rtol=1e-6)
    np.testing.assert_allclose(shifted, wide - wide.mean(2, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "width", "causal"),
    [(5, 5, 63, True), (3, 7, 8, True), (7, 3, 8, True), (1, 9, 16, True), (9, 1, 16, False), (67, 67, 32, True)],
)
def test_attention_of_odd_sizes(run, queries, keys, width, causal):
    random = np.random.default_rng(queries)
    shapes = [(2, queries, width), (2, keys, width), (2, keys, width), (2, queries, width)]
    q, k, v, weight = (random.standard_normal(shape) for shape in shapes)

    def attend(q, k, v, weight):
        y = ei.attention(q, k, v, causal=causal)
        return (y, *ei.gradient(ei.sum(y * weight), [q, k, v]))

    found = run(attend, q, k, v, weight)
    for array, want in zip(found, by_torch(q, k, v, weight, causal), strict=True):
        np.testing.assert_allclose(array, want, rtol=1e-7, atol=1e-9)


def by_torch(q, k, v, weight, causal):
    """Attention spelled out, its gradients by torch; the last query sees all keys, and one that sees none gives 0."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.tensor(array, requires_grad=True) for array in (q, k, v))
    scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[1:], dtype=torch.bool)
    if causal:
        seen = seen.tril(k.shape[1] - q.shape[1])
    weights = torch.softmax(scores.masked_fill(~seen, -1e300), -1) * seen
    y = weights @ v
    (y * torch.tensor(weight)).sum().backward()
    return [array.detach().numpy() for array in (y, q.grad, k.grad, v.grad)]


def test_a_transposed_left_operand(run):
    a, b = np.arange(6, dtype=F32).reshape(2, 3), np.arange(4, dtype=F32).reshape(2, 2)
    np.testing.assert_array_equal(run(lambda a, b: a.T @ b, a, b), a.T @ b)
    np.testing.assert_array_equal(run(lambda a, b: ei.exp(a * 0).T @ b, a, b), np.ones((3, 2)) @ b)


def test_new_axes_come_first(run):
    x = np.arange(3, dtype=F32)
    np.testing.assert_array_equal(run(lambda x: x.broadcast_to((2, 4, 3)), x), np.broadcast_to(x, (2, 4, 3)))
    with pytest.raises(ei.ShapeError):
        run(lambda x: x.broadcast_to((3, 4)), x)


def test_batched_products_are_no_matrices(run):
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 3, 4)), random.standard_normal((2, 4, 5))
    np.testing.assert_allclose(run(lambda x, y: x @ y, x, y), x @ y, rtol=1e-12)
    np.testing.assert_allclose(run(lambda x, y: x[0] @ y[0], x, y), x[0] @ y[0], rtol=1e-12)


def test_a_sum_of_squares_is_no_product(run):
    x = np.random.default_rng(0).standard_normal((4, 6, 8))
    found = run(lambda x: (ei.sum(x * x, 2), ei.sum(x * x, 1), ei.sum(x * ei.flip(x, 2), 2)), x)
    for array, want in zip(found, ((x * x).sum(2), (x * x).sum(1), (x * x[:, :, ::-1]).sum(2)), strict=True):
        np.testing.assert_allclose(array, want, rtol=1e-12)


def test_rows_of_a_view_are_taken_from_the_view(run):
    table, rows = np.arange(24, dtype=F32).reshape(4, 6), np.array([[3, 0], [1, 1]], np.int32)
    views = lambda t: (t, t.T, t[:, ::2], t[1:], ei.reshape(t, (6, 4)))  # noqa: E731
    found = run(lambda t, r: tuple(ei.take(view, ei.remainder(r, view.shape[0])) for view in views(t)), table, rows)
    wanted = (table, table.T, table[:, ::2], table[1:], table.reshape(6, 4))
    for array, view in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array, view[rows % view.shape[0]])
        assert array.dtype == np.float32, "the elements' type, not the indices'"


def test_a_mask_is_no_index(run):
    with pytest.raises(ei.EulerError, match="bool"):
        run(lambda x, mask: ei.take(x, mask), np.ones(3, F32), np.array([False, False, False]))
