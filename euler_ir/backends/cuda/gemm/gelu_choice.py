"""The library's GELU or a kernel of its own: each product gets what was faster when both were tried on a GPU.

The library computes GELU while the next tiles of the product wait for it, a kernel of its own reads the product again.
The cache keeps what was found, for each device, library and shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from euler_ir import cache
from euler_ir.plan.plan import MadeOperand, MatmulStep, Plan, PlannedView

REPEATED = 16
"""How often a plan that is timed does its product, so that what it takes to start one does not count."""
_MARGIN = 0.95
"""How much of the time of the other the library's may be at most: a tie, or noise, must not change the bits."""
_ALIGNMENT = 256


def is_gelu_fused(
    step: MatmulStep, plan: Plan, device: tuple[str, ...], seconds: Callable[[Plan, bool], float]
) -> bool:
    """Whether the library does the GELU after ``step`` on ``device``, which names all that its speed depends on.

    ``seconds(plan, by_library)`` times a plan that does one product REPEATED times. What is chosen decides the last
    bits of a result: so it is tried once, and not at all without a cache to keep the answer.
    """
    if isinstance(step.left, MadeOperand) or isinstance(step.right, MadeOperand) or not cache.is_usable():
        return False
    key = ("gelu epilogue", *device, _signature(step, plan))
    found = cache.load_fact(*key)
    if found is None:
        alone = _alone(step, plan)
        found = cache.store_fact({"kernel": seconds(alone, False), "library": seconds(alone, True)}, *key)
    return found is not None and found["library"] < _MARGIN * found["kernel"]


def _signature(step: MatmulStep, plan: Plan) -> str:
    views = " ".join(f"{view.leading}{'T' * view.transposed}" for view in (step.left, step.right, step.result))
    outputs = [plan.buffers[number].type.dtype for number in step.epilogue.writes()]
    return f"{step.dtype} {step.rows} {step.inner} {step.columns} {views} {step.epilogue.origins[0].name} {outputs}"


def _alone(step: MatmulStep, plan: Plan) -> Plan:
    """A plan of nothing but this product, of constants: a GPU's clock depends on what numbers it multiplies."""
    written = set(step.writes())
    numbers = {old: new for new, old in enumerate(dict.fromkeys((*step.reads(), *step.writes())))}
    buffers, constants, offset = [], {}, 0
    for old, new in numbers.items():
        buffer = plan.buffers[old]
        if old in written:
            buffers.append(replace(buffer, place="arena", offset=offset, first=0, last=REPEATED - 1))
            offset += -(-buffer.type.nbytes // _ALIGNMENT) * _ALIGNMENT
        else:
            buffers.append(replace(buffer, place="constant"))
            values = np.random.default_rng(new).standard_normal(buffer.type.shape, np.float32)
            constants[new] = values.astype(buffer.type.dtype.numpy)

    def moved(view: PlannedView) -> PlannedView:
        return replace(view, buffer=numbers[view.buffer])

    (arguments,) = step.epilogue.arguments
    epilogue = replace(step.epilogue, arguments=(tuple(numbers[old] for old in arguments),))
    views = {"left": moved(step.left), "right": moved(step.right), "result": moved(step.result)}
    phase = (replace(step, **views, epilogue=epilogue),)
    return Plan("product", tuple(buffers), (phase,) * REPEATED, {}, constants, plan.faults, offset, offset)
