"""One table of samples for every operator and every function that users call: how to build it, on what, and what torch
(or numpy, or plain Python where torch follows another convention) says of it.

Shapes cover 0-d, empty, size one, broadcast and permuted operands; dtypes all that the function accepts; values NaN,
both infinities, both zeros, denormals and the ends of the range.
"""

# The order of these is that of the table, which seeds and streams count by.
from cases import (  # noqa: F401
    elementwise, where_and_cast, reduction, movement, leaves, indexing, contraction, networks, attention, random,
)  # isort: skip  # fmt: skip
from cases.table import ALL, CASES, FLOATS, TORCH, Case  # noqa: F401
