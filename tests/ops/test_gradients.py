"""Gradients of every differentiable operator: against torch's autograd and against central differences, in f64, first
and second order; and the conventions where a derivative is a choice."""

import dataclasses
import functools
import zlib

import numpy as np
import pytest
import torch
from cases import CASES, FLOATS
from harness import BACKENDS, arrays_of, as_torch, executable, feeds, operands, run

import euler_ir as ei
from euler_ir import tensor as T

STEP = 1e-5


def _in_f64():
    """The differentiable cases with their f32 operands made f64, so that every shape is checked to f64's precision."""
    widened = {}
    for case in CASES:
        floats = [spec.dtype for spec in case.inputs if spec.dtype in FLOATS]
        if not case.orders or not floats or not set(floats) <= {"f32", "f64"}:
            continue
        inputs = tuple(dataclasses.replace(spec, dtype="f64") if spec.dtype in FLOATS else spec for spec in case.inputs)
        name = case.name.replace("f32[", "f64[")
        widened[name] = dataclasses.replace(case, name=name, inputs=inputs)
    return list(widened.values())


DIFFERENTIABLE = _in_f64()


def _float_operands(case):
    return [position for position, spec in enumerate(case.inputs) if spec.dtype in FLOATS]


def _projection(case, role, shape):
    """Fixed weights that turn a tensor into a number, so that a wrong element cannot hide in a sum."""
    return np.random.default_rng(zlib.crc32(f"{case.name} {role}".encode())).standard_normal(shape)


def _build(graph, index, case):
    """``loss`` and its gradients; for a smooth case also ``slope``, a projection of those, and its gradients."""
    with graph:
        inputs, prepared = operands(graph, index, case)
        value = case.build(*prepared)
        wrt = [inputs[position] for position in _float_operands(case)]
        loss = T.sum(value * _projection(case, "loss", value.shape))
        first = ei.gradient(loss, wrt)
        outputs = {"loss": loss} | {f"first{position}": gradient for position, gradient in enumerate(first)}
        if case.orders == 2:
            slope = sum(
                T.sum(gradient * _projection(case, f"slope{position}", gradient.shape))
                for position, gradient in enumerate(first)
            )
            second = ei.gradient(slope, wrt)
            outputs |= {"slope": slope} | {f"second{position}": gradient for position, gradient in enumerate(second)}
    for position, value in enumerate(wrt):
        assert all(
            outputs[kind].type == value.type for kind in (f"first{position}", f"second{position}") if kind in outputs
        )
    return outputs


def _directions(case):
    """A random direction of unit length in the space of all float operands, as they are fed."""
    shapes = [
        case.inputs[position].shape[::-1] if case.inputs[position].permuted else case.inputs[position].shape
        for position in _float_operands(case)
    ]
    parts = [_projection(case, f"direction{position}", shape) for position, shape in enumerate(shapes)]
    length = np.sqrt(sum(np.sum(part**2) for part in parts)) or 1
    return [part / length for part in parts]


def _measure(cases, backend):
    """For each case what its graph gives at its operands, and the losses a step to both sides along its direction."""
    graph, fed = ei.Graph("gradients"), {}
    for index, case in cases:
        outputs = _build(graph, index, case)
        graph.set_outputs(**{f"out{index}_{kind}": value for kind, value in outputs.items()})
        fed.update(feeds(index, case, arrays_of(case)))
    compiled = executable(graph, backend)
    moved = {}
    for side in (-1, 1):
        arrays = dict(fed)
        for index, case in cases:
            for position, direction in zip(_float_operands(case), _directions(case)):
                arrays[f"case{index}_{position}"] = fed[f"case{index}_{position}"] + side * STEP * direction
        moved[side] = compiled(None, **arrays)
    here = compiled(None, **fed)
    prefixes = {index: f"out{index}_" for index, _ in cases}
    return {
        index: [
            {name.removeprefix(prefix): array for name, array in results.items() if name.startswith(prefix)}
            for results in (here, moved[-1], moved[1])
        ]
        for index, prefix in prefixes.items()
    }


@functools.cache
def _family_measures(family, backend):
    members = [(index, case) for index, case in enumerate(DIFFERENTIABLE) if case.family == family]
    try:
        return _measure(members, backend)
    except Exception:
        return None


def _measures(index, backend):
    case = DIFFERENTIABLE[index]
    measures = _family_measures(case.family, backend)
    return (measures or _measure([(index, case)], backend))[index]


def _autograd(case):
    """The gradients of first and second order by torch, in the shapes in which the operands are fed."""
    tensors = [as_torch(array) for array in arrays_of(case)]
    wrt = [tensors[position].requires_grad_() for position in _float_operands(case)]
    turned = [case.inputs[position].permuted for position in _float_operands(case)]
    value = case.reference(*tensors)
    loss = torch.sum(value * torch.from_numpy(np.asarray(_projection(case, "loss", tuple(value.shape)))))
    found = {}
    for order in ("first", "second")[: case.orders]:
        as_fed = [g.T if flip else g for g, flip in zip(_torch_gradients(loss, wrt), turned)]
        found |= {f"{order}{position}": gradient.detach().numpy() for position, gradient in enumerate(as_fed)}
        loss = sum(
            torch.sum(g * torch.from_numpy(np.asarray(_projection(case, f"slope{position}", tuple(g.shape)))))
            for position, g in enumerate(as_fed)
        )
    return found


def _torch_gradients(output, wrt):
    if not output.requires_grad:
        return [torch.zeros_like(tensor) for tensor in wrt]
    found = torch.autograd.grad(output, wrt, create_graph=True, allow_unused=True)
    return [torch.zeros_like(tensor) if gradient is None else gradient for tensor, gradient in zip(wrt, found)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", range(len(DIFFERENTIABLE)), ids=[case.name for case in DIFFERENTIABLE])
def test_gradient(index, backend):
    case = DIFFERENTIABLE[index]
    here, before, after = _measures(index, backend)
    for kind, want in _autograd(case).items():
        size = np.abs(want).max(initial=1)
        np.testing.assert_allclose(here[kind], want, rtol=1e-10, atol=1e-12 * size, err_msg=kind)
    for number, order in (("loss", "first"), ("slope", "second"))[: case.orders]:
        gradients = [here[f"{order}{position}"] for position in range(len(_float_operands(case)))]
        along = sum(np.sum(g * direction) for g, direction in zip(gradients, _directions(case)))
        if not np.isfinite(here[number]):  # a mean or a logsumexp of nothing
            assert np.all(np.isfinite(gradients[0]))
            continue
        difference = (after[number] - before[number]) / (2 * STEP)
        length = np.sqrt(sum(np.sum(g**2) for g in gradients))
        assert abs(along - difference) <= 1e-6 * max(length, 1), order


def test_every_gradient_rule_is_reached():
    graph = ei.Graph("all")
    for index, case in enumerate(DIFFERENTIABLE):
        with graph:
            case.build(*operands(graph, index, case)[1])
    differentiable = {name for name, definition in ei.ops.OPS.items() if definition.vjp is not None}
    assert differentiable - {"remainder"} <= {op.name for op in graph.ops}


# -- conventions -------------------------------------------------------------------------------------------------------


def gradients(build, arrays, backend, cotangent=None):
    """The gradients of the sum of ``build`` (weighted by ``cotangent``) with respect to each array."""
    graph = ei.Graph("convention")
    with graph:
        inputs = [graph.input(f"x{position}", array.shape, array.dtype) for position, array in enumerate(arrays)]
        value = build(*inputs)
        weights = None if value.shape == () and cotangent is None else T.full_like(value, 1)
        if cotangent is not None:
            weights = graph.constant(np.asarray(cotangent, value.dtype.numpy))
        found = ei.gradient(value, inputs, weights)
        graph.set_outputs(**{f"gradient{position}": gradient for position, gradient in enumerate(found)})
    results = run(graph, {f"x{position}": array for position, array in enumerate(arrays)}, backend)
    return [results[f"gradient{position}"] for position in range(len(arrays))]


INF, NAN = np.inf, np.nan
CONVENTIONS = {
    "max ties": (T.max, [1, 3, 3, 3], [0, 1 / 3, 1 / 3, 1 / 3]),
    "max all equal": (T.max, [1, 1, 1, 1], [0.25] * 4),
    "min ties": (T.min, [1, 1, 3], [0.5, 0.5, 0]),
    "max of -inf": (T.max, [-INF, -INF], [0.5, 0.5]),
    "maximum with itself": (lambda x: T.sum(T.maximum(x, x)), [1, 2], [1, 1]),
    "relu": (lambda x: T.sum(T.relu(x)), [-1, 0, 2], [0, 0.5, 1]),
    "abs": (lambda x: T.sum(abs(x)), [-2, 0, 3], [-1, 0, 1]),
    "prod one zero": (T.prod, [0, 2, 3], [6, 0, 0]),
    "prod two zeros": (T.prod, [0, 0, 3], [0, 0, 0]),
    "prod one": (T.prod, [5], [1]),
    "prod nothing": (T.prod, [], []),
    "logsumexp of -inf": (T.logsumexp, [-INF, -INF], [0, 0]),
    "logsumexp partly -inf": (T.logsumexp, [-INF, 1], [0, 1]),
    "where sqrt": (lambda x: T.sum(T.where(x > 0, T.sqrt(x), 0)), [0, 1, 4], [0, 0.5, 0.25]),
    "where log": (lambda x: T.sum(T.where(x > 0, T.log(x), 0)), [0, 1, 4], [0, 1, 0.25]),
    "where rsqrt": (lambda x: T.sum(T.where(x > 0, T.rsqrt(x), 0)), [0, 1], [0, -0.5]),
    "where exp": (lambda x: T.sum(T.where(x < 100, T.exp(x), 0)), [0, 1000], [1, 0]),
    "where divide": (lambda x: T.sum(T.where(T.not_equal(x, 0), 1 / x, 0)), [0, 2], [0, -0.25]),
    "where divide by": (lambda x: T.sum(T.where(T.not_equal(x, 0), x / x, 0)), [0, 2], [0, 0]),
    "where power": (lambda x: T.sum(T.where(x > 0, x**0.5, 0)), [0, 4], [0, 0.25]),
    "where log of negative": (lambda x: T.sum(T.where(x > 0, T.log(x), x)), [-1, 2], [1, 0.5]),
    "where nested": (lambda x: T.sum(T.where(x > 0, T.log(T.sqrt(x) * 2), 0)), [0, 1], [0, 0.5]),
    "power 0": (lambda x: T.sum(x**0), [0, 2, INF], [0, 0, 0]),
    "power 1": (lambda x: T.sum(x**1), [0, -2], [1, 1]),
    "power 2": (lambda x: T.sum(x**2), [0, -3], [0, -6]),
    "power 3 of negative": (lambda x: T.sum(x**3), [-2, 0], [12, 0]),
    "floor": (lambda x: T.sum(T.floor(x) + T.sign(x)), [0.5, -1.5], [0, 0]),
    "stop_gradient": (lambda x: T.sum(T.stop_gradient(x) * x), [3, 4], [3, 4]),
    "softmax partly -inf": (lambda x: T.sum(T.softmax(x) * [1.0, 2.0, 3.0]), [-INF, 1, 1], [0, -0.25, 0.25]),
    "sigmoid tails": (lambda x: T.sum(T.sigmoid(x)), [-1e4, 1e4], [0, 0]),
    "tanh tails": (lambda x: T.sum(T.tanh(x)), [-1e4, 1e4], [0, 0]),
    "cast to int": (lambda x: T.sum(T.cast(T.cast(x, "i64"), "f64") + x), [1.5, 2.5], [1, 1]),
    "cast to f32 and back": (lambda x: T.sum(T.cast(T.cast(x, "f32"), "f64")), [1.5, 2.5], [1, 1]),
    "same operand": (lambda x: T.sum(x * x * x), [2, -1], [12, 3]),
    "remainder": (lambda x: T.sum(x % 3), [4, -4], [1, 1]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CONVENTIONS)
def test_convention(name, backend):
    build, at, want = CONVENTIONS[name]
    (got,) = gradients(build, [np.array(at, np.float64)], backend)
    np.testing.assert_allclose(got, np.array(want, np.float64), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [T.maximum, T.minimum])
def test_extremum_of_equals_is_shared_by_halves(function, backend):
    left, right = gradients(function, [np.array([1.0, 2, 3]), np.array([1.0, 3, 2])], backend)
    assert left[0] == right[0] == 0.5
    np.testing.assert_array_equal(left + right, 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_divide_where_both_are_zero_and_nothing_depends_on_it(backend):
    build = lambda a, b: T.where(T.equal(b, 0), 0, a / b)  # noqa: E731
    left, right = gradients(build, [np.array([0.0, 6]), np.array([0.0, 2])], backend)
    np.testing.assert_array_equal(left, [0, 0.5])
    np.testing.assert_array_equal(right, [0, -1.5])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "function,slope",
    [(T.log, 0.5), (T.sqrt, 0.5 / 2**0.5), (T.exp, np.e**2), (lambda x: 1 / x, -0.25), (lambda x: x**3, 12)],
)
def test_mixed_derivative_where_the_other_factor_is_zero(function, slope, backend):
    """d/dy d/dx of y * f(x) is f'(x), also at y = 0: masking a zero cotangent must not mask its own derivative."""

    def build(x, y):
        (first,) = ei.gradient(T.sum(y * function(x)), [x])
        return first

    _, by_y = gradients(build, [np.array([2.0]), np.array([0.0])], backend)
    np.testing.assert_allclose(by_y, [slope], rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_derivative_of_prod_at_zeros(backend):
    def build(x):
        (first,) = ei.gradient(T.prod(x), [x])
        return first

    (got,) = gradients(build, [np.array([0.0, 2, 3])], backend, [1, 10, 100])
    np.testing.assert_array_equal(got, [3 * 10 + 2 * 100, 3 + 0, 2 + 0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_has_the_type_of_its_input(dtype, backend):
    array = np.ones((2, 3), ei.dtypes.as_dtype(dtype).numpy)
    build = lambda x: T.cast(T.sum(T.softmax(T.layer_norm(T.gelu(x), x[0], x[1])) * T.exp(x)), "f32")  # noqa: E731
    (got,) = gradients(build, [array], backend)
    assert got.dtype == array.dtype and got.shape == array.shape


@pytest.mark.parametrize("backend", BACKENDS)
def test_unused_and_equal_parameters(backend):
    graph = ei.Graph("parameters")
    with graph:
        values = [graph.parameter(name, (2,), ei.initializers.Zeros()) for name in ("a", "b", "unused")]
        loss = T.sum(values[0] + 3 * values[1])
        found = ei.gradient(loss, values)
        graph.set_outputs(a=found[0], b=found[1], unused=found[2])
    results = run(graph, {}, backend)
    np.testing.assert_array_equal(results["a"], [1, 1])
    np.testing.assert_array_equal(results["b"], [3, 3])
    np.testing.assert_array_equal(results["unused"], [0, 0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_an_output_that_is_an_input(backend):
    (got,) = gradients(lambda x: x, [np.array(3.0)], backend)
    assert got == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_f16_max_counts_more_ties_than_f16_holds(backend):
    (got,) = gradients(T.max, [np.ones(70_000, np.float16)], backend)
    np.testing.assert_array_equal(got, np.float16(1 / 70_000))


@pytest.mark.parametrize("backend", BACKENDS)
def test_embedding_gradient_adds_duplicates(backend):
    graph = ei.Graph("embedding")
    with graph:
        table = graph.input("table", (4, 2), "f64")
        rows = T.take(table, graph.constant([1, 3, 1, 1]))
        weights = graph.constant(np.arange(8.0).reshape(4, 2))
        (got,) = ei.gradient(T.sum(rows * weights), [table])
        graph.set_outputs(got=got)
    got = run(graph, {"table": np.zeros((4, 2))}, backend)["got"]
    np.testing.assert_array_equal(got, [[0, 0], [10, 13], [0, 0], [2, 3]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_rows_without_a_key_have_no_gradient(backend):
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((rows, 4)) for rows in (5, 2, 2)]
    query, key, value = gradients(T.attention, arrays, backend)
    np.testing.assert_array_equal(query[:3], 0)
    assert np.isfinite(query).all() and np.isfinite(key).all() and np.isfinite(value).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_ignored_labels_have_no_gradient_even_beside_nan(backend):
    graph = ei.Graph("loss")
    with graph:
        logits = graph.input("logits", (2, 3), "f64")
        (got,) = ei.gradient(T.sum(T.cross_entropy(logits, graph.constant([-100, 1]))), [logits])
        graph.set_outputs(got=got)
    got = run(graph, {"logits": np.array([[NAN, 0, 1], [0, 0, 0]])}, backend)["got"]
    np.testing.assert_allclose(got, [[0, 0, 0], [1 / 3, -2 / 3, 1 / 3]], rtol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_exact_gelu_gradient_in_the_tail(backend):
    x = np.linspace(-9, -4, 21)
    (got,) = gradients(lambda x: T.gelu(x, "none"), [x.astype(np.float32)], backend)
    wide = torch.from_numpy(x.astype(np.float32).astype(np.float64)).requires_grad_()
    (0.5 * wide * torch.erfc(-wide * 0.5**0.5)).sum().backward()
    # exp(-x*x/2) sees the rounding of its argument magnified by x*x, and the two terms cancel by up to x*x.
    np.testing.assert_allclose(got, wide.grad.numpy(), rtol=4 * 81 * 2**-24)
