"""Attention and the training step of `models.gpt2`, compiled by euler_ir for a GPU, in bf16."""

import numpy as np

import euler_ir as ei
from benchmarks import workload as settings
from benchmarks.euler_gpt2 import EulerStep, first_state, step_graph
from euler_ir.backends.cuda.open_device import open_device
from euler_ir.errors import LoweringError

PASSES = "mixed-precision,cuda"


def device_name(device):
    """What the driver calls ``device`` and None, or None and why it cannot be used."""
    try:
        return open_device(device).model, None
    except LoweringError as error:
        return None, str(error)


class CudaEulerStep(EulerStep):
    """The step of a Workload, products and attention in bf16 by mixed precision."""

    def __init__(self, workload, weights, device, betas=settings.BETAS):
        graph = step_graph(workload, betas)
        self._state = first_state(graph, weights)
        self._run = ei.compile(graph, device, passes=PASSES)

    def device_mib(self):
        """Mebibytes of the device's memory that the step needs: what is planned is what is taken."""
        return self._run.memory.total / 2**20


class CudaEulerAttention:
    """Attention of an AttentionCase, or it and its gradients, on operands that stay on the device."""

    def __init__(self, case, device):
        with ei.Graph("attention") as graph:
            query, key, value = (ei.state(name, case.shape, dtype=ei.bf16) for name in case.NAMES)
            result = ei.attention(query, key, value, causal=True)
            results = {"result": result}
            if case.backward:
                weights = ei.state("weights", case.shape, dtype=ei.bf16)
                gradients = ei.gradient((result * weights).cast(ei.f32).sum(), [query, key, value])
                results |= {f"gradient of {name}": gradient for name, gradient in zip(case.NAMES, gradients)}
            for name, made in results.items():
                ei.update(ei.state(name, case.shape, dtype=ei.bf16), made)
        self._names = tuple(results)
        self._state = ei.initial_state(graph)
        for name, array in case.arrays().items():
            self._state[name] = array.astype(ei.bf16.numpy)
        self._run = ei.compile(graph, device)

    def run(self):
        """Put one call into the device's queue."""
        self._run(self._state)

    def wait(self):
        """Wait until the device has done all."""
        self._run.program.device.synchronize()

    def results(self):
        """The results as f32 arrays."""
        return [self._state[name].astype(np.float32) for name in self._names]
