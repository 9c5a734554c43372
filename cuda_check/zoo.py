"""The models whose kernels are compiled: training steps in f32 and in bf16, prompts and single tokens, and an MLP."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import euler_ir as ei
from euler_ir.inspect.user_graph import load_graph
from models.architectures import PRESETS
from models.generation.cache import decode_graph, prefill_graph
from models.language_model import train_graph

F32, BF16 = "cuda", "mixed-precision,cuda"
"""Passes of a plan for GPUs."""

MLP = Path(__file__).parents[1] / "examples" / "mlp.py"


@dataclass(frozen=True)
class Model:
    """A graph, made when asked for, and the text of the passes that it goes through."""

    build: Callable[[], ei.Graph]
    passes: str


def _training(preset, batch, length):
    return lambda: train_graph(PRESETS[preset], batch, length)


ZOO = {
    "mlp": Model(lambda: load_graph(f"{MLP}:train_graph"), F32),
    "nano train": Model(_training("nano", 16, 128), F32),
    "nano train bf16": Model(_training("nano", 16, 128), BF16),
    "nano prefill": Model(lambda: prefill_graph(PRESETS["nano"], 1, 128), F32),
    "nano decode": Model(lambda: decode_graph(PRESETS["nano"], 1, 128), F32),
    "nanoeuler train": Model(_training("nanoeuler-cpu", 16, 128), F32),
    "nanoeuler train bf16": Model(_training("nanoeuler-cpu", 16, 128), BF16),
    "nanoeuler-116M train bf16": Model(_training("nanoeuler-116M", 8, 512), BF16),
    "124M train": Model(_training("124M", 4, 1024), F32),
    "124M train bf16": Model(_training("124M", 32, 1024), BF16),
    "124M prefill bf16": Model(lambda: prefill_graph(PRESETS["124M"], 1, 1024), BF16),
    "124M decode bf16": Model(lambda: decode_graph(PRESETS["124M"], 8, 1024), BF16),
}
