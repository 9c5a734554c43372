"""The frameworks that euler_ir is measured beside. None is needed, and each is imported in processes of its own."""

import importlib
import importlib.util
from dataclasses import dataclass

BASELINE = "euler_ir"


@dataclass(frozen=True)
class Peer:
    """A peer needs the Python module ``module``, which the command ``install`` provides."""

    module: str
    install: str


PEERS = {
    "torch": Peer("torch", "pip install torch"),
    "torch-compile": Peer("torch", "pip install torch (and have a C++ compiler)"),
    "jax": Peer("jax", "pip install 'jax[cpu]'"),
    "numpy": Peer("numpy", "pip install numpy"),
    "xdsl": Peer("xdsl", "pip install xdsl"),
    "tiktoken": Peer("tiktoken", "pip install tiktoken"),
    "tokenizers": Peer("tokenizers", "pip install tokenizers"),
    "rustbpe": Peer("rustbpe", "pip install rustbpe"),
}

_TRAINING_STEPS = {
    BASELINE: ("benchmarks.euler_gpt2", "EulerStep"),
    "torch": ("benchmarks.torch_gpt2", "TorchStep"),
    "torch-compile": ("benchmarks.torch_gpt2", "CompiledTorchStep"),
    "jax": ("benchmarks.jax_gpt2", "JaxStep"),
}


def training_step(peer):
    """The class of the peer's training step, imported when asked for: a process holds its own framework alone."""
    module, name = _TRAINING_STEPS[peer]
    return getattr(importlib.import_module(module), name)


def is_installed(peer):
    """Whether the peer's module is there."""
    return importlib.util.find_spec(PEERS[peer].module) is not None


def absence(peer):
    """What to tell who asked for a peer that is not there."""
    return f"{peer} is left out: {PEERS[peer].module} is not installed. To have it: {PEERS[peer].install}"
