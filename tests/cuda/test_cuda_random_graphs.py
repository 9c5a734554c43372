"""Random graphs on the emulated device: as near to the interpreter as rounding explains."""

import pytest

from euler_ir.backends.cuda.emulator import build
from euler_ir.backends.cuda.step import planned_calls
from euler_ir.compiler import compile, lower
from euler_ir.inspect.numerics.agreement import Agreement
from euler_ir.state import State
from euler_ir.testing import random_graph

ARCHITECTURE = "sm_90"


def assert_agree(seeds, most_ops=20):
    """The graphs of ``seeds``, whose kernels are compiled together."""
    cases = {seed: random_graph(seed, most_ops) for seed in seeds}
    plans = [lower(case.graph, "cuda").plan for case in cases.values()]
    build.load_many([source for plan in plans for source in planned_calls(plan, ARCHITECTURE).sources])
    for seed, case in cases.items():
        try:
            assert not Agreement(case.graph, case.leaves).fault(run(case))
        except Exception as error:
            error.add_note(f"random_graph({seed}, {most_ops})")
            raise


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
