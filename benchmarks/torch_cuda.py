"""Attention and the training step of the same GPT-2 in torch on a GPU, in bf16 by autocast, eager or compiled."""

import contextlib

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import workload as settings
from benchmarks.torch_gpt2 import TorchStep


def torch_device(device):
    """torch's name of what euler_ir calls `device`; the emulator stands in for a GPU on the CPU."""
    return "cpu" if device == "cuda-emulator" else device


def device_name(device):
    """What the driver calls ``device`` and None, or None and why torch cannot use it."""
    if torch_device(device) == "cpu" or torch.cuda.is_available():
        return "cpu" if torch_device(device) == "cpu" else torch.cuda.get_device_name(device), None
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
    return None, (
        f"torch {torch.__version__}, built for {built}, can use no GPU here.\n"
        "  hint: install its build for the CUDA that the driver knows, or measure without it: --peers none"
    )


def flash(device):
    """Within this, attention is FlashAttention or an error: torch takes no other kernel."""
    return contextlib.nullcontext() if device == "cpu" else sdpa_kernel(SDPBackend.FLASH_ATTENTION)


class CudaTorchStep(TorchStep):
    """The step of a Workload, with weights from the file `weights`."""

    def __init__(self, workload, weights, device, betas=settings.BETAS):
        self._device = torch_device(device)
        super().__init__(workload, weights, torch.get_num_threads(), betas, self._device)

    def prepare(self, tokens, targets):
        return tuple(each.to(self._device) for each in super().prepare(tokens, targets))

    def step(self, inputs):
        with flash(self._device):
            return super().step(inputs)

    def forward(self, inputs):
        with torch.autocast(torch.device(self._device).type, torch.bfloat16):
            return super().forward(inputs)

    def device_mib(self):
        """Mebibytes that torch has held at most of the device's memory; None on the CPU."""
        return None if self._device == "cpu" else torch.cuda.max_memory_reserved(self._device) / 2**20


class CompiledCudaTorchStep(CudaTorchStep):
    """The same by torch.compile."""

    compiled = True


class CudaTorchAttention:
    """Attention of an AttentionCase by SDPA's FlashAttention, or it and its gradients."""

    def __init__(self, case, device):
        self._device = torch_device(device)
        given = {name: torch.from_numpy(array) for name, array in case.arrays().items()}
        arrays = {name: tensor.to(self._device, torch.bfloat16) for name, tensor in given.items()}
        self._operands = [arrays[name].requires_grad_(case.backward) for name in case.NAMES]
        self._weights = arrays.get("weights")
        self._made = ()

    def run(self):
        """Put one call into the device's queue."""
        with flash(self._device):
            result = functional.scaled_dot_product_attention(*self._operands, is_causal=True)
        gradients = ()
        if self._weights is not None:
            gradients = torch.autograd.grad(result, self._operands, self._weights)
        self._made = (result, *gradients)

    def wait(self):
        """Wait until the device has done all."""
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)

    def results(self):
        """The results as f32 arrays."""
        return [tensor.detach().float().cpu().numpy() for tensor in self._made]
