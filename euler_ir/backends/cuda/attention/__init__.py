"""Attention in CUDA: the score matrix is never stored (T. Dao et al., arXiv:2205.14135, 2307.08691)."""

from __future__ import annotations

from euler_ir.backends.cuda.attention.flash import flash_calls, refusal
from euler_ir.backends.cuda.attention.simt import simt_launches
from euler_ir.backends.cuda.calls import Calls
from euler_ir.plan.plan import AttentionStep


def attention_calls(step: AttentionStep, architecture: str) -> Calls:
    """What does ``step`` on a GPU of ``architecture``, such as 'sm_90': tensor cores, where there is no `refusal`.

    Raises LoweringError for more rows or blocks than CUDA can count.
    """
    if refusal(step, architecture) is None:
        return flash_calls(step, architecture)
    return Calls(simt_launches(step))
