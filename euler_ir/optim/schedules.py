"""Schedules of the learning rate: pure functions of the step, so that a run continued follows its own."""

from __future__ import annotations

import math


def warmup_constant(step: int, peak: float, floor: float, warmup: int, total: int) -> float:
    """Learning rate of ``step`` (from 0): linear up to ``peak`` over ``warmup`` steps, then ``peak``.

    During warm-up it is ``peak (step + 1) / (warmup + 1)``, never 0. ``floor`` and ``total`` mean nothing here.
    """
    return peak * (step + 1) / (warmup + 1) if step < warmup else peak


def warmup_linear(step: int, peak: float, floor: float, warmup: int, total: int) -> float:
    """Warm-up as `warmup_constant`, then a line down to ``floor``, where it stays from ``total`` on."""
    if step < warmup:
        return warmup_constant(step, peak, floor, warmup, total)
    return peak + (floor - peak) * _progress(step, warmup, total)


def warmup_cosine(step: int, peak: float, floor: float, warmup: int, total: int) -> float:
    """Warm-up as `warmup_constant`, then half a cosine down to ``floor``, where it stays from ``total`` on.

    (Loshchilov and Hutter, arXiv:1608.03983, without restarts.)
    """
    if step < warmup:
        return warmup_constant(step, peak, floor, warmup, total)
    return floor + (peak - floor) * 0.5 * (1.0 + math.cos(math.pi * _progress(step, warmup, total)))


def warmup_stable_decay(
    step: int, peak: float, floor: float, warmup: int, total: int, decay_share: float = 0.2
) -> float:
    """Warm-up as `warmup_constant`, then ``peak``, and a line down to ``floor`` over the last ``decay_share`` of steps.

    (Hu et al., arXiv:2404.06395, 4.2; the line and the share are those of Haegele et al., arXiv:2405.18392.)
    """
    decay_begins = max(warmup, total - round(decay_share * total))
    if step < decay_begins:
        return warmup_constant(step, peak, floor, warmup, total)
    return peak + (floor - peak) * _progress(step, decay_begins, total)


def _progress(step: int, begin: int, end: int) -> float:
    return min(1.0, (step - begin) / max(1, end - begin))


SCHEDULES = {
    "cosine": warmup_cosine,
    "linear": warmup_linear,
    "constant": warmup_constant,
    "wsd": warmup_stable_decay,
}
"""The schedules by their usual names."""
