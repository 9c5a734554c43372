"""Which nests after a product the library does itself, and that it computes what numpy says of them in f64."""

import math
from dataclasses import replace

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.backends.cuda.calls import BufferPointer, Launch
from euler_ir.backends.cuda.emulator import cublaslt as emulated
from euler_ir.backends.cuda.gemm import Product, ProductOptions, product_calls
from euler_ir.backends.cuda.gemm.api import Api, Epilogue
from euler_ir.backends.cuda.gemm.calls import choose_epilogue
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt
from euler_ir.backends.cuda.gemm.epilogues import Matched
from euler_ir.backends.cuda.gemm.reasons import REASONS, Declined
from euler_ir.compiler import lower
from euler_ir.dtypes import bf16, f16, f32, f64
from euler_ir.errors import LoweringError
from euler_ir.index import Index
from euler_ir.loops.kernel import Store
from euler_ir.plan.plan import MatmulStep

ROWS, INNER, COLUMNS = 6, 12, 16


def gate(x):
    """GELU(x) / x; arXiv:1606.08415, section 2."""
    return 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slope(x):
    """The derivative of GELU, by a central difference in f64."""
    step = 1e-5
    return ((x + step) * gate(x + step) - (x - step) * gate(x - step)) / (2 * step)


class Tensors:
    """Inputs of a graph by name, made when asked for."""

    def __init__(self, dtype, columns=COLUMNS):
        self.product = ei.input("x", (ROWS, INNER), dtype) @ ei.input("w", (INNER, columns), dtype)
        self.dtype, self.columns = dtype, columns

    def bias(self, dtype=None):
        return ei.input("bias", (self.columns,), dtype or self.dtype)

    def matrix(self, dtype=None):
        return ei.input("matrix", (ROWS, self.columns), dtype or self.dtype)


def bias(t):
    return {"y": t.product + t.bias()}


def cast_bias(t):
    return {"y": t.product + t.bias(f64 if t.dtype == f32 else f32).cast(t.dtype)}


def scale(t):
    return {"y": t.product * 0.5}


def scale_and_bias(t):
    return {"y": t.bias() - 0.25 * t.product}


def residual(t):
    return {"y": t.matrix() + t.product}


def residual_and_bias(t):
    return {"y": t.matrix() * 2 - (t.product - t.bias())}


def gelu(t):
    return {"y": ei.gelu(t.product, "tanh")}


def gelu_and_bias(t):
    return {"y": ei.gelu(t.product + t.bias(), "tanh")}


def gelu_by_hand(t):
    h = t.product.cast(f32)
    y = 0.5 * h * (1 + ei.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    return {"y": y.cast(t.dtype)}


def gelu_and_saved(t):
    h = t.product * 0.5
    return {"y": ei.gelu(h, "tanh"), "saved": h}


def gelu_saved_and_bias(t):
    h = t.product + t.bias()
    return {"saved": h, "y": ei.gelu(h, "tanh")}


def gelu_gradient(t):
    h = t.matrix()
    (y,) = ei.gradient(ei.sum((ei.gelu(h, "tanh") * t.product).cast(f32)), [h])
    return {"y": y}


WANTED = {
    bias: lambda p, b, m: {"y": p + b},
    cast_bias: lambda p, b, m: {"y": p + b},
    scale: lambda p, b, m: {"y": p / 2},
    scale_and_bias: lambda p, b, m: {"y": b - p / 4},
    residual: lambda p, b, m: {"y": m + p},
    residual_and_bias: lambda p, b, m: {"y": 2 * m - p + b},
    gelu: lambda p, b, m: {"y": p * gate(p)},
    gelu_and_bias: lambda p, b, m: {"y": (p + b) * gate(p + b)},
    gelu_by_hand: lambda p, b, m: {"y": p * gate(p)},
    gelu_and_saved: lambda p, b, m: {"y": p / 2 * gate(p / 2), "saved": p / 2},
    gelu_saved_and_bias: lambda p, b, m: {"y": (p + b) * gate(p + b), "saved": p + b},
    gelu_gradient: lambda p, b, m: {"y": p * slope(m)},
}
KINDS = {
    bias: Epilogue.BIAS,
    cast_bias: Epilogue.BIAS,
    scale: Epilogue.NONE,
    scale_and_bias: Epilogue.BIAS,
    residual: Epilogue.NONE,
    residual_and_bias: Epilogue.BIAS,
    gelu: Epilogue.GELU,
    gelu_and_bias: Epilogue.GELU_BIAS,
    gelu_by_hand: Epilogue.GELU,
    gelu_and_saved: Epilogue.GELU_AUX,
    gelu_saved_and_bias: Epilogue.GELU_AUX_BIAS,
    gelu_gradient: Epilogue.DGELU,
}


def product_of(build, dtype, columns=COLUMNS):
    """The plan of a graph, and its one product."""
    with ei.Graph("epilogue") as graph:
        ei.output(**build(Tensors(dtype, columns)))
    plan = lower(graph, passes="cuda").plan
    (step,) = (step for step in plan.steps() if isinstance(step, MatmulStep))
    return plan, step


def chosen(build, dtype, columns=COLUMNS):
    plan, step = product_of(build, dtype, columns)
    return choose_epilogue(step, plan, FUSED)


FUSED = ProductOptions(fuses_gelu=lambda step, plan: True)
HALVES = pytest.mark.parametrize("dtype", [bf16, f16], ids=str)


@HALVES
@pytest.mark.parametrize("build", KINDS)
def test_the_library_does_it(build, dtype):
    found = chosen(build, dtype)
    assert isinstance(found, Matched) and found.kind == KINDS[build]


@pytest.mark.parametrize("build", KINDS)
def test_in_f32_all_but_gelu(build):
    found = chosen(build, f32)
    if "gelu" in build.__name__:
        assert found == Declined("epilogue-gelu-f32")
    else:
        assert isinstance(found, Matched) and found.kind == KINDS[build]


@pytest.mark.parametrize("build", [build for build in KINDS if "gelu" in build.__name__])
def test_gelu_is_left_to_a_kernel_unless_measured_to_be_faster(build):
    plan, step = product_of(build, bf16)
    assert choose_epilogue(step, plan) == Declined("epilogue-gelu-slower")


def inputs_of(plan, seed=0):
    """Flat arrays of numbers for the inputs of ``plan``, and the same in f64 as matrices, by name."""
    random = np.random.default_rng(seed)
    flat, wide = {}, {}
    for number, buffer in enumerate(plan.buffers):
        if buffer.place == "input":
            values = random.normal(size=buffer.type.shape).astype(buffer.type.dtype.numpy)
            flat[number], wide[buffer.name] = aligned(values.reshape(-1)), values.astype(np.float64)
    return flat, wide


def aligned(values):
    """A copy of ``values`` that begins at a multiple of 256 bytes, as memory of a device does."""
    memory = np.empty(values.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    copy = memory[start : start + values.nbytes].view(values.dtype)
    copy[...] = values
    return copy


@HALVES
@pytest.mark.parametrize("build", [build for build in KINDS if build is not cast_bias])
def test_it_computes_what_numpy_says(build, dtype):
    plan, step = product_of(build, dtype)
    flat, wide = inputs_of(plan)
    for number, buffer in enumerate(plan.buffers):
        if number not in flat:
            flat[number] = aligned(np.full(buffer.type.size, np.nan, buffer.type.dtype.numpy))
    library, workspace = CublasLt(Api(emulated.load()), 1 << 16), aligned(np.zeros(1 << 16, np.uint8))
    (product,) = product_calls(step, plan, FUSED).calls
    assert isinstance(product, Product)
    addresses = [flat[pointer.number].ctypes.data + pointer.offset for pointer in product.pointers]
    product.prepare(library, addresses, workspace.ctypes.data)(0)
    wanted = WANTED[build](wide["x"] @ wide["w"], wide.get("bias"), wide.get("matrix"))
    size = abs(wide["x"]) @ abs(wide["w"]) + 3
    for name, number in plan.outputs.items():
        found = flat[number].reshape(ROWS, COLUMNS).astype(np.float64)
        rounding = {bf16: 2.0**-8, f16: 2.0**-11}[dtype] * abs(wanted[name])
        assert (abs(found - wanted[name]) <= rounding + 1e-6 * size).all()


def over_rows(t):
    return {"y": t.product + ei.input("other", (ROWS, 1), t.dtype)}


def twice_the_bias(t):
    return {"y": t.product + 2 * t.bias()}


def two_biases(t):
    return {"y": t.product + t.bias() + ei.input("other", (t.columns,), t.dtype)}


def two_matrices(t):
    return {"y": t.matrix() + t.product + 2 * ei.input("other", (ROWS, t.columns), t.dtype)}


def with_constant(t):
    return {"y": t.product + 1}


def rectified(t):
    return {"y": ei.relu(t.product + t.bias())}


def exact_gelu(t):
    return {"y": ei.gelu(t.product + t.bias(), "none")}


def squared(t):
    h = t.product + t.bias()
    return {"y": h * h}


def gelu_of_another(t):
    return {"y": t.product * ei.gelu(t.matrix(), "tanh")}


def twice_gelu_gradient(t):
    return {"y": 2 * gelu_gradient(t)["y"]}


def padded(t):
    return {"y": t.product + ei.pad(ei.input("other", (ROWS - 1, t.columns), t.dtype), ((0, 1), (0, 0)))}


def noisy(t):
    """Two draws of one shape, seed and step, which differ all the same."""
    one, other = (ei.random_uniform((ROWS, t.columns), 1, 2) for _ in range(2))
    return {"y": (t.product.cast(f32) + one - other).cast(t.dtype)}


def wide_residual(t):
    return {"y": (t.matrix(f32) + t.product.cast(f32)).cast(t.dtype)}


def gelu_and_slope(t):
    """What a training step saves where the derivative has more digits than the product."""
    h = t.product + t.bias()
    (slope,) = ei.gradient(ei.sum(ei.gelu(h, "tanh").cast(f32)), [h])
    return {"y": ei.gelu(h, "tanh"), "slope": slope}


def gradient_of_exact_gelu(t):
    h = t.matrix()
    (y,) = ei.gradient(ei.sum((ei.gelu(h, "none") * t.product).cast(f32)), [h])
    return {"y": y}


@pytest.mark.parametrize(
    "build, dtype, code",
    [
        (over_rows, bf16, "epilogue-reads"),
        (twice_the_bias, bf16, "epilogue-other"),
        (two_biases, bf16, "epilogue-other"),
        (two_matrices, bf16, "epilogue-other"),
        (with_constant, bf16, "epilogue-other"),
        (rectified, bf16, "epilogue-other"),
        (exact_gelu, bf16, "epilogue-other"),
        (squared, bf16, "epilogue-other"),
        (gradient_of_exact_gelu, bf16, "epilogue-other"),
        (gelu_of_another, bf16, "epilogue-other"),
        (twice_gelu_gradient, bf16, "epilogue-other"),
        (padded, bf16, "epilogue-other"),
        (noisy, bf16, "epilogue-other"),
        (wide_residual, bf16, "epilogue-type"),
        (gelu_and_slope, bf16, "epilogue-outputs"),
        (gelu_and_bias, f32, "epilogue-gelu-f32"),
        (bias, f64, "epilogue-f64"),
    ],
)
def test_a_kernel_does_what_the_library_does_not(build, dtype, code):
    plan, step = product_of(build, dtype)
    found = choose_epilogue(step, plan, FUSED)
    assert isinstance(found, Declined) and found.code == code
    assert "{}" not in found.why and found.hint
    assert not isinstance(product_calls(step, plan).calls[-1], Product)


def with_nest(step, nest=None, shared=None):
    """``step`` with another nest as its epilogue, or other parameters that share memory with an output."""
    epilogue = step.epilogue
    kernel = epilogue.kernel if nest is None else replace(epilogue.kernel, nests=(nest,))
    in_place = epilogue.shared if shared is None else (shared,)
    return replace(step, epilogue=replace(epilogue, kernel=kernel, shared=in_place))


def test_an_output_in_another_order_is_written_by_a_kernel():
    plan, step = product_of(gelu_saved_and_bias, bf16)
    (nest,) = step.epilogue.kernel.nests
    row, column = map(Index.of, nest.axes)
    moved = [replace(each, index=column * ROWS + row) if isinstance(each, Store) else each for each in nest.body]
    for place in (place for place, each in enumerate(nest.body) if isinstance(each, Store)):
        body = (*nest.body[:place], moved[place], *nest.body[place + 1 :])
        found = choose_epilogue(with_nest(step, replace(nest, body=body)), plan, FUSED)
        assert isinstance(found, Declined) and found.code == "epilogue-other"


def test_an_output_in_the_memory_of_what_the_library_reads_is_written_by_a_kernel():
    plan, step = product_of(residual, bf16)
    matrix = next(n for n, number in enumerate(step.epilogue.arguments[0]) if plan.buffers[number].name == "matrix")
    found = choose_epilogue(with_nest(step, shared=frozenset((matrix,))), plan, FUSED)
    assert found == Declined("epilogue-in-place", ("matrix",))


@HALVES
def test_what_gelu_is_taken_of_lies_in_rows_of_16_bytes(dtype):
    assert chosen(gelu_saved_and_bias, dtype, columns=24).kind == Epilogue.GELU_AUX_BIAS
    for build in (gelu_saved_and_bias, gelu_gradient):
        assert chosen(build, dtype, columns=20) == Declined("epilogue-alignment", (20, dtype))
    assert chosen(gelu_and_bias, dtype, columns=20).kind == Epilogue.GELU_BIAS


def test_reasons_are_sentences_with_a_hint():
    for code, (why, hint) in REASONS.items():
        assert code == code.lower() and not why.endswith(".") and hint


def test_an_epilogue_that_the_library_has_no_algorithm_for_is_a_kernel():
    plan, step = product_of(bias, bf16)
    tried = []
    options = ProductOptions(supports=tried.append)  # None: it does not
    product, launch = product_calls(step, plan, options).calls
    assert [each.epilogue.kind for each in tried] == [Epilogue.BIAS] and isinstance(launch, Launch)
    assert product.epilogue.kind == Epilogue.NONE and product.declined == Declined("epilogue-unsupported", ("BIAS",))
    plan, step = product_of(lambda t: {"y": t.product}, bf16)
    assert len(product_calls(step, plan, options).calls) == 1 == len(tried)


def test_whether_the_library_has_an_algorithm_is_asked_without_memory():
    library = CublasLt(Api(emulated.load()), 1 << 16)
    plan, step = product_of(bias, bf16)
    (product,) = product_calls(step, plan).calls
    assert product.is_supported(library)
    elsewhere = replace(product, epilogue=replace(product.epilogue, bias=BufferPointer(0, 8)))
    assert not elsewhere.is_supported(library)
    with pytest.raises(LoweringError) as caught:
        elsewhere.prepare(library, [4096] * 4 + [4104], 4096)
    assert caught.value.message == "cuBLASLt does not do bf16 6 x 12 x 16 with BIAS"
    assert "NOT_SUPPORTED" in caught.value.details[0] and caught.value.location.file == __file__
