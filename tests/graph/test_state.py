"""How parameters and state begin: a function of (seed, name), whatever else there is and on how many threads."""

import hashlib

import ml_dtypes
import numpy as np
import pytest

import euler_ir as ei
from euler_ir.initializers import Full, Initializer, Normal, Ones, Uniform, Zeros

NUMPY = {ei.f32: np.float32, ei.f64: np.float64, ei.bf16: ml_dtypes.bfloat16}


def state_of(*parameters, seed=0):
    with ei.Graph() as graph:
        for name, shape, initializer, dtype in parameters:
            ei.parameter(name, shape, initializer, dtype)
    return ei.initial_state(graph, seed=seed)


def generator(name, seed):
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "little")
    return np.random.Generator(np.random.Philox(key=key))


@pytest.mark.parametrize("dtype", [ei.f32, ei.f64, ei.bf16])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (128, 128), (3, 5, 5001)])
def test_numbers_are_those_of_one_draw(shape, dtype):
    state = state_of(("w", shape, Normal(0.5), dtype), ("u", shape, Uniform(2.0), dtype), seed=4)
    draws = {"w": generator("w", 4).standard_normal(shape) * 0.5, "u": generator("u", 4).uniform(-2, 2, shape)}
    for name, expected in draws.items():
        assert state[name].dtype == NUMPY[dtype]
        np.testing.assert_array_equal(state[name], np.asarray(expected).astype(NUMPY[dtype]))


def test_other_parameters_change_nothing():
    many = [(f"w{number}", (40, number), Normal(), ei.f32) for number in range(1, 60)]
    alone = state_of(many[30])
    together = state_of(*many, ("zeros", (5,), Zeros(), ei.i32), ("ones", (5,), Ones(), ei.f16))
    np.testing.assert_array_equal(alone["w31"], together["w31"])
    assert list(together) == [*(name for name, *_ in many), "zeros", "ones"]
    assert not np.array_equal(alone["w31"], state_of(many[30], seed=1)["w31"])
    np.testing.assert_array_equal(together["zeros"], np.zeros(5, np.int32))
    np.testing.assert_array_equal(together["ones"], np.ones(5, np.float16))


def test_arrays_are_writable_and_on_cache_lines():
    state = state_of(*[(f"w{size}", (size,), Full(3), ei.u8) for size in range(1, 9)])
    for array in [*state.values(), *state.copy().values()]:
        assert array.flags.writeable and array.flags.c_contiguous and array.ctypes.data % 64 == 0
        assert (array == 3).all()


def test_a_failing_initializer_adds_nothing():
    class Failing(Initializer):
        def fill(self, array, name, seed):
            raise ValueError(f"cannot begin {name}")

    with ei.Graph() as graph:
        ei.parameter("w", (3,), Ones())
        ei.parameter("broken", (3,), Failing())
    state = ei.State()
    with pytest.raises(ValueError, match="cannot begin broken"):
        state.add(graph)
    assert len(state) == 0
