"""Random graphs on the emulated device: as near to the interpreter as rounding explains."""

import numpy as np
import pytest

from euler_ir import interpreter
from euler_ir.backends.cuda.emulator import build
from euler_ir.backends.cuda.step import planned_calls
from euler_ir.compiler import compile, lower
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.state import State
from euler_ir.testing import random_graph

ARCHITECTURE = "sm_90"


def assert_agree(seeds, most_ops=20):
    """The graphs of ``seeds``, whose kernels are compiled together.

    But for those of attention that gets NaN or infinity: what a tile has masked is 0 in the kernel, and 0 times that is
    NaN in the interpreter.
    """
    drawn = {seed: random_graph(seed, most_ops) for seed in seeds}
    cases = {seed: case for seed, case in drawn.items() if is_finite_for_attention(case)}
    plans = [lower(case.graph, "cuda").plan for case in cases.values()]
    build.load_many([source for plan in plans for source in planned_calls(plan, ARCHITECTURE).sources])
    for seed, case in cases.items():
        try:
            assert not Agreement(case.graph, case.leaves).fault(run(case))
        except Exception as error:
            error.add_note(f"random_graph({seed}, {most_ops})")
            raise


def is_finite_for_attention(case):
    ops = [op for op in case.graph.ops if op.name.startswith("attention")]
    values = [value for op in ops for value in op.operands if value.dtype.is_float]
    arrays = interpreter.evaluate(case.graph, case.leaves, values)
    return all(np.isfinite(arrays[value].astype(np.float64)).all() for value in values)


def run(case):
    """Outputs and updates of one call."""
    state = State()
    for name, array in case.kept.items():
        state[name] = array.copy()
    outputs = compile(case.graph, "cuda-emulator")(state, **case.inputs)
    return outputs, {name: state[name] for name in case.graph.updates}


def test_random_graphs():
    assert_agree(range(5), most_ops=12)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 25))
def test_hundreds_of_random_graphs(first):
    assert_agree(range(first, first + 25))
