"""Why edges are fused or not, and values lie where they lie: in columns, with each reason once."""

from __future__ import annotations

from collections.abc import Mapping

from euler_ir.inspect.explorer.tables import NONE, Places
from euler_ir.inspect.fusion import VERDICTS, Fusion
from euler_ir.inspect.memory import Memory
from euler_ir.passes.refusals import Refusal


def fusion_record(report: Fusion, numbers: Mapping[str, int]) -> dict:
    """``report`` with values as ``numbers`` has them by name.

    ``reason`` and ``again`` are positions in ``reasons``, or -1.
    """
    reasons, verdicts = _Reasons(), list(VERDICTS)
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
            "reason": [reasons.number(edge.refusal) for edge in edges],
            "again": [reasons.number(edge.again) for edge in edges],
        },
        "reasons": reasons.record(),
    }


def memory_record(report: Memory, numbers: Mapping[str, int], places: Places) -> dict:
    """``report`` with values and lines by number; ``reason`` is a position in ``reasons``, -1 for what is in place."""
    reasons, decisions = _Reasons(), report.decisions
    return {
        "in_use": list(report.in_use),
        "peak": report.peak,
        "least": report.least,
        "at_peak": [life.number for life in report.at_peak()],
        "held_for": {life.number: life.held_for for life in report.lives},
        "holders": [
            {"line": places.line(holder.location), "bytes": holder.nbytes, "buffers": holder.buffers}
            for holder in report.holders
        ],
        "decisions": {
            "value": [numbers.get(each.value, NONE) for each in decisions],
            "source": [numbers.get(each.source, NONE) for each in decisions],
            "kind": [each.kind for each in decisions],
            "bytes": [each.nbytes for each in decisions],
            "reason": [reasons.number(each.refusal) for each in decisions],
        },
        "reasons": reasons.record(),
    }


class _Reasons:
    """Refusals by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}

    def number(self, refusal: Refusal | None) -> int:
        if refusal is None:
            return NONE
        return self._numbers.setdefault((refusal.code, refusal.why, refusal.hint), len(self._numbers))

    def record(self) -> list[dict]:
        return [dict(zip(("code", "why", "hint"), reason)) for reason in self._numbers]
