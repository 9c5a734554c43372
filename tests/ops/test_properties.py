"""Shapes and dtypes against numpy and torch over random examples: indexing, broadcasting, promotion."""

import itertools

import numpy as np
import pytest
import torch
from cases import ALL
from harness import as_torch, run
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import euler_ir as ei
from euler_ir import tensor as T
from euler_ir.dtypes import as_dtype


def evaluate(build, *arrays):
    graph = ei.Graph("property")
    inputs = [graph.input(f"x{position}", array.shape, array.dtype) for position, array in enumerate(arrays)]
    graph.set_outputs(value=build(*inputs))
    return run(graph, {f"x{position}": array for position, array in enumerate(arrays)}, "interpreter")["value"]


SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_basic_indexing_is_numpys(data):
    shape = data.draw(SHAPES)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    np.testing.assert_array_equal(evaluate(lambda x: x[index], array), array[index], strict=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_gradient_of_indexing_puts_back_what_was_taken(data):
    shape = data.draw(SHAPES)
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    index = data.draw(hnp.basic_indices(shape))
    want = np.zeros(shape)
    want[index] = array[index] + 1
    got = evaluate(lambda x: ei.gradient(T.sum(x[index] * (array[index] + 1)), [x])[0], array)
    np.testing.assert_array_equal(got, want)


@settings(max_examples=200, deadline=None)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=4))
def test_broadcasting_and_its_gradient_are_numpys(shapes):
    left, right = (
        np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape) for shape in shapes.input_shapes
    )
    product = evaluate(T.multiply, left, right)
    assert product.shape == shapes.result_shape
    np.testing.assert_array_equal(product, left * right)
    tensors = [torch.from_numpy(np.array(array)).requires_grad_() for array in (left, right)]
    torch.sum(tensors[0] * tensors[1]).backward()
    for position, tensor in enumerate(tensors):
        got = evaluate(lambda *xs, at=position: ei.gradient(T.sum(xs[0] * xs[1]), [xs[at]])[0], left, right)
        np.testing.assert_array_equal(got, tensor.grad.numpy())


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_reductions_over_any_axes_are_numpys(data):
    shape = data.draw(SHAPES)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else ()
    axes = tuple(axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes)
    keepdims = data.draw(st.booleans())
    got = evaluate(lambda x: T.sum(x, axes, keepdims), array)
    np.testing.assert_array_equal(got, np.sum(array, axis=axes, keepdims=keepdims), strict=True)


@pytest.mark.parametrize("left,right", list(itertools.product(ALL, ALL)))
def test_promotion_is_torchs(left, right):
    """Except that u8 with i8 gives i32, for want of an i16."""
    graph = ei.Graph("promotion")
    value = graph.input("a", (2,), left) + graph.input("b", (2,), right)
    tensors = [as_torch(np.ones(2, as_dtype(name).numpy)) for name in (left, right)]
    want = "int32" if {left, right} == {"u8", "i8"} else str((tensors[0] + tensors[1]).dtype).removeprefix("torch.")
    assert value.dtype.numpy == as_dtype(want).numpy
    both = (
        T.where(graph.input("c", (2,), "bool"), graph.leaf("a"), graph.leaf("b")),
        T.maximum(graph.leaf("a"), graph.leaf("b")),
    )
    assert {other.dtype for other in both} == {value.dtype}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("number", [True, 2, 2.5, np.float64(2.5), np.int8(2)])
def test_numbers_never_widen_a_tensor_of_their_kind(dtype, number):
    value = ei.Graph("promotion").input("a", (), dtype) + number
    plain = number.item() if isinstance(number, np.generic) else number
    want = (as_torch(np.ones(1, as_dtype(dtype).numpy)) + plain).dtype
    assert str(want).removeprefix("torch.") == value.dtype.numpy.name
