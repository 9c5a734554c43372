"""Matrix products in numpy, that is, by the OpenBLAS in its wheel."""

import numpy as np

_PRODUCTS = {"matmul NN": (False, False), "matmul NT": (False, True), "matmul TN": (True, False)}


def prepare(case, threads):
    """A function that runs the kernel once, and one that gives its results; None for what is no product.

    The number of threads is that of the environment (OPENBLAS_NUM_THREADS), by default all cores.
    """
    if case.kind not in _PRODUCTS:
        return None
    arrays = case.arrays()
    left, right = (array.T if turned else array for array, turned in zip(arrays.values(), _PRODUCTS[case.kind]))
    out = np.empty((left.shape[0], right.shape[1]), np.float32)
    return lambda: np.matmul(left, right, out=out), lambda: [out]
