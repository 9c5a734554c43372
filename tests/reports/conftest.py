import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter


@pytest.fixture(params=["interpreter", "reference", "cpu"])
def run(request):
    """What ``build`` makes of arrays, in one of the ways: a function of symbolic tensors that gives one or more."""

    def run(build, *arrays):
        arrays = [np.asarray(array) for array in arrays]
        with ei.Graph("report") as graph:
            values = build(*(ei.input(f"x{place}", array.shape, array.dtype) for place, array in enumerate(arrays)))
            several = isinstance(values, tuple | list)
            ei.output(**{f"y{place}": value for place, value in enumerate(values if several else (values,))})
        given = {f"x{place}": array for place, array in enumerate(arrays)}
        if request.param == "interpreter":
            results = interpreter.run(graph, given)[0]
        else:
            results = ei.compile(graph, request.param)(**given)
        return list(results.values()) if several else results["y0"]

    return run
