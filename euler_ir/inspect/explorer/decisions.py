"""Why each edge of the graph is fused or not, in columns, with each reason once."""

from __future__ import annotations

from collections.abc import Mapping

from euler_ir.inspect.fusion import VERDICTS, Fusion
from euler_ir.passes.refusals import Refusal


def fusion_record(report: Fusion, numbers: Mapping[str, int]) -> dict:
    """``report`` with values as ``numbers`` has them by name.

    ``reason`` and ``again`` are positions in ``reasons``, or -1.
    """
    reasons: dict[tuple[str, str, str], int] = {}
    verdicts = list(VERDICTS)

    def position(refusal: Refusal | None) -> int:
        if refusal is None:
            return -1
        return reasons.setdefault((refusal.code, refusal.why, refusal.hint), len(reasons))

    edges = report.edges
    return {
        "verdicts": [{"name": name, "meaning": meaning} for name, meaning in VERDICTS.items()],
        "counts": report.counts(),
        "bytes": report.nbytes,
        "moved": report.moved,
        "edges": {
            "value": [numbers[edge.value] for edge in edges],
            "reader": [numbers[edge.reader] for edge in edges],
            "verdict": [verdicts.index(edge.verdict) for edge in edges],
            "bytes": [edge.nbytes for edge in edges],
            "reason": [position(edge.refusal) for edge in edges],
            "again": [position(edge.again) for edge in edges],
        },
        "reasons": [dict(zip(("code", "why", "hint"), reason)) for reason in reasons],
    }
