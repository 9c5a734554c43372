"""Optimisers as graph builders: gradients in, updates of parameters and of the optimiser's own state out."""

from euler_ir.optim.adamw import AdamW
from euler_ir.optim.gradients import (
    Gradients,
    accumulate,
    accumulated,
    clip_by_global_norm,
    gradient_norms,
    gradients,
)
from euler_ir.optim.loss_scale import LossScale
from euler_ir.optim.muon import Muon
from euler_ir.optim.optimizer import SGD, Optimizer
from euler_ir.optim.schedules import SCHEDULES, warmup_constant, warmup_cosine, warmup_linear, warmup_stable_decay

__all__ = [
    "AdamW",
    "Gradients",
    "LossScale",
    "Muon",
    "Optimizer",
    "SCHEDULES",
    "SGD",
    "accumulate",
    "accumulated",
    "clip_by_global_norm",
    "gradient_norms",
    "gradients",
    "warmup_constant",
    "warmup_cosine",
    "warmup_linear",
    "warmup_stable_decay",
]
