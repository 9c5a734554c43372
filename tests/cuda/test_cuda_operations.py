"""Every operation on every dtype in generated CUDA, run by the emulator, against its meaning in numpy.

Nothing here says how accurate the functions of a GPU are: the emulator calls the C library's.
"""

import numpy as np
import pytest
from nest_launches import emulate, outputs, run_of
from operations import (
    BINARY,
    BINARY_FLOAT,
    BINARY_NUMBER,
    COMPARISONS,
    FLOATS,
    INTEGERS,
    UNARY,
    UNARY_FLOAT,
    assert_close,
    cast_values,
    elementwise,
    float_values,
    is_nan,
    meaning,
    pairs_of,
    values_of,
)

from euler_ir.backends.cuda.codegen.operations import apply
from euler_ir.dtypes import DTYPES, bf16, bool_, f16, f32, f64, i64
from euler_ir.errors import LoweringError
from euler_ir.index import Axis, Index
from euler_ir.loops.kernel import Buffer, Compute, IndexValue, Load, Nest, Store
from euler_ir.ops.random import uniform_array

# The largest distance from numpy's result, in units in the last place; numpy's own error included.
ULP = {
    "exp": 2, "log": 2, "sin": 2, "cos": 2, "tanh": 2, "erf": 2, "erfc": 2, "normal_cdf": 4,
    "normal_pdf": 3, "normal_cdf_tanh": 4, "sigmoid": 3, "rsqrt": 1, "power": 2,
}  # fmt: skip


def run_of_operation(operation, dtype, arrays, dtypes):
    """A run of ``operation`` on flat arrays of the given dtypes."""
    return run_of(elementwise(operation, dtype, arrays[0].size, dtypes), *arrays)


def check(cases, contract=True):
    """Of (operation, dtype of the result, arrays, dtypes): all in one launch, each as near as its ULP says."""
    runs = emulate([run_of_operation(*case) for case in cases], contract=contract)
    for (operation, dtype, arrays, dtypes), run in zip(cases, runs, strict=True):
        (ours,) = outputs(run)
        theirs = meaning(operation, arrays, dtype)
        if operation in ("maximum", "minimum") and dtype.is_float:
            # Which of two zeros it is depends on numpy's own vectors.
            ours, theirs = ours + dtype.numpy.type(0), theirs + dtype.numpy.type(0)
        ulp = ULP.get(operation, 0)
        try:
            assert_close(ours, theirs, min(ulp, 1) if dtype.is_half else ulp)
        except AssertionError as error:
            error.add_note(f"{operation} of {dtypes} to {dtype}")
            raise


@pytest.mark.parametrize("dtype, contract", [*((dtype, True) for dtype in FLOATS), (f32, False)], ids=str)
def test_operations_of_floats(dtype, contract):
    unary = [(operation, dtype, (float_values(dtype),), (dtype,)) for operation in UNARY_FLOAT + UNARY]
    binary = [
        (operation, bool_ if operation in COMPARISONS else dtype, pairs_of(dtype), (dtype, dtype))
        for operation in BINARY_FLOAT + BINARY_NUMBER + BINARY
    ]
    check(unary + binary, contract)


def test_operations_of_integers_and_bool():
    cases = []
    for dtype in (*INTEGERS, bool_):
        is_bool = dtype == bool_
        for operation in ("stop_gradient", "logical_not") if is_bool else UNARY:
            cases.append((operation, dtype, (values_of(dtype),), (dtype,)))
        for operation in BINARY + (["logical_and", "logical_or", "logical_xor"] if is_bool else BINARY_NUMBER):
            target = bool_ if operation in COMPARISONS else dtype
            cases.append((operation, target, pairs_of(dtype), (dtype, dtype)))
    check(cases)


def test_where():
    cases = []
    for dtype in DTYPES.values():
        chosen, other = pairs_of(dtype)
        condition = np.arange(chosen.size) % 3 == 0
        cases.append(("where", dtype, (condition, chosen, other), (bool_, dtype, dtype)))
    check(cases)


def test_casts():
    cases = []
    for source in DTYPES.values():
        values = cast_values(source)
        cases += [("cast", target, (values,), (source,)) for target in DTYPES.values()]
    check(cases)


def test_every_half_survives_memory_and_rounding():
    halves = np.arange(65536, dtype=np.uint16)
    for dtype in (f16, bf16):
        values = halves.view(dtype.numpy)
        wide = values.astype(np.float32)
        with np.errstate(all="ignore"):
            middles = (wide.astype(np.float64) + np.roll(wide, -1)).astype(np.float32) / 2
            exact = np.concatenate([wide, middles])
            near = np.concatenate([exact, *(np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf))])
        kept, rounded = emulate(
            [
                run_of_operation("stop_gradient", dtype, (values,), (dtype,)),
                run_of_operation("cast", dtype, (near,), (f32,)),
            ]
        )
        nan = is_nan(values)
        (ours,) = outputs(kept)
        assert np.array_equal(ours[~nan].view(np.uint16), halves[~nan]) and np.all(is_nan(ours[nan]))
        with np.errstate(all="ignore"):
            assert_close(outputs(rounded)[0], near.astype(dtype.numpy), 0)


def test_functions_between_their_special_values():
    """Arguments over all of the range where the results are neither 0 nor infinite, tails included."""
    cases = []
    for dtype in (f32, f64):
        reach = {"normal_cdf": 13 if dtype == f32 else 37, "normal_pdf": 13 if dtype == f32 else 37, "erfc": 9}
        for operation in ("exp", "tanh", "erf", "erfc", "sigmoid", "normal_cdf", "normal_pdf", "normal_cdf_tanh"):
            end = reach.get(operation, 15)
            cases.append((operation, dtype, (np.linspace(-end, end, 5000).astype(dtype.numpy),), (dtype,)))
    check(cases)


@pytest.mark.parametrize("seed, step", [(0, 0), (-1, 2**40 + 3), (2**63 - 1, -5)])
def test_philox(seed, step):
    size, stream, v = 1003, 2**32 - 2, Axis("v", 1003)
    runs = []
    for dtype in (f32, f64):
        body = (
            Load("seed", i64, "seed", Index()),
            Load("step", i64, "step", Index()),
            IndexValue("n", i64, Index.of(v)),
            Compute("r", dtype, "philox", ("seed", "step", "n"), stream),
            Store("y", Index.of(v), "r"),
        )
        buffers = (Buffer("seed", i64, 1, "input"), Buffer("step", i64, 1, "input"), Buffer("y", dtype, size, "output"))
        runs.append(run_of(Nest(buffers, (v,), body, True), seed, step))
    for dtype, run in zip((f32, f64), emulate(runs)):
        assert outputs(run)[0].tobytes() == uniform_array((size,), dtype.numpy, stream, seed, step).tobytes()


def test_unknown_operations_are_refused():
    with pytest.raises(LoweringError, match="no operation 'transmogrify' of f32"):
        apply("transmogrify", f32, ["x"])
