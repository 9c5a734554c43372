"""A profile as a table for people, as JSON, and as a trace for Chrome's viewer (chrome://tracing, Perfetto)."""

from __future__ import annotations

import dataclasses

import numpy as np
from rich import box
from rich.table import Table

from euler_ir.inspect.profile import Profile, Row

_HEADINGS = ("calls", "ms", "slowest", "share", "balance", "MB", "GFLOP", "GB/s", "GFLOP/s", "of limit")


def summary(profile: Profile) -> str:
    """What was measured, in a few lines: the step, the ceilings, and how the rows are to be read."""
    calls = [1e3 * seconds for seconds in (profile.median, min(profile.calls), max(profile.calls))]
    ceilings = profile.ceilings
    return (
        f"{profile.name}, {profile.threads} threads: {calls[0]:.3f} ms a call, the median of {len(profile.calls)} "
        f"[{calls[1]:.3f}, {calls[2]:.3f}]\n"
        f"ceilings: {ceilings.fma:.0f} GFLOP/s of f32 multiply-adds; memory {ceilings.read:.1f} GB/s read, "
        f"{ceilings.triad:.1f} GB/s triad\n"
        f"Means over the faster half of the calls, {1e3 * profile.seconds:.3f} ms each. ms and share are means of the "
        "threads and add up;\nslowest is the slowest thread, and the rates and the part of the limit are of it."
    )


def table(profile: Profile, by: str = "kernel") -> Table:
    """The rows of ``profile``, then the waits, the rest, and the sum. Raises ValueError as ``rows`` does."""
    shown = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    shown.add_column(by, overflow="fold")
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("from", overflow="fold")
    for row in profile.rows(by):
        shown.add_row(row.name, *_cells(row), _where(row, by))
    shown.add_section()
    for name, seconds in _remainder(profile).items():
        shown.add_row(name, "", f"{1e3 * seconds:.3f}", "", _percent(seconds / profile.seconds))
    total = sum(row.seconds for row in profile.rows(by)) + sum(_remainder(profile).values())
    shown.add_section()
    shown.add_row("a call", "", f"{1e3 * total:.3f}", "", _percent(total / profile.seconds))
    return shown


def record(profile: Profile, by: str = "kernel") -> dict:
    """All of it as JSON would have it; times in seconds. Raises ValueError as ``rows`` does."""
    rates = ("balance", "gb_per_second", "gflop_per_second")
    return {
        "graph": profile.name,
        "ceilings": dataclasses.asdict(profile.ceilings),
        "calls": list(profile.calls),
        "seconds": profile.seconds,
        "by": by,
        "rows": [
            {**dataclasses.asdict(row), **{rate: getattr(row, rate) for rate in rates}} for row in profile.rows(by)
        ],
        "remainder": _remainder(profile),
    }


def trace(profile: Profile) -> dict:
    """The fastest call as trace events, one row of the viewer a thread; times in microseconds from the call on."""
    events = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": thread, "args": {"name": f"thread {thread}"}}
        for thread in range(profile.threads)
    ]
    tasks = iter(profile.tasks)
    for number, mark in enumerate(profile.marks):
        name, details = "wait", {"phase": mark.phase}
        if mark.step is not None:
            task = next(tasks)
            name, origin = task.work.name, task.origin
            details |= {
                "scope": origin.scope,
                "operators": ", ".join(origin.operators),
                "lines": ", ".join(f"{at.file}:{at.line}" for at in origin.locations),
                "bytes": task.work.nbytes,
                "flops": task.work.flops,
                "bound": profile.ceilings.bound(task.work.nbytes, task.work.flops),
                "step": task.step,
                "nest": task.nest,
                "kernel": task.kernel,
                "groups": ", ".join(map(str, task.groups)),
                "values": ", ".join(task.values),
            }
        begin, end = profile.fastest[:, number] / 1e3, profile.fastest[:, number + 1] / 1e3
        for thread, (start, length) in enumerate(np.stack([begin, end - begin], axis=1).tolist()):
            event = {"ph": "X", "name": name, "pid": 0, "tid": thread, "ts": start, "dur": length, "args": details}
            events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _remainder(profile: Profile) -> dict[str, float]:
    """What is no task, in seconds of all threads' mean."""
    return {
        "waiting at barriers": profile.waiting / profile.threads,
        "outside: call, outputs, threads' start and end": profile.outside / profile.threads,
    }


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.calls),
        f"{1e3 * row.seconds:.3f}",
        f"{1e3 * row.slowest:.3f}",
        _percent(row.share),
        _percent(row.balance),
        f"{row.nbytes / 1e6:.2f}",
        f"{row.flops / 1e9:.3f}",
        f"{row.gb_per_second:.1f}",
        f"{row.gflop_per_second:.1f}",
        _percent(row.roofline),
    )


def _where(row: Row, by: str) -> str:
    """Scopes (or operators, when the rows are scopes) and lines, of each the first and how many more."""
    first = row.operators if by == "scope" else row.scopes
    lines = tuple(line.rpartition("/")[2] for line in row.lines)
    return "  ".join(_first(words) for words in (first, lines) if words)


def _first(words: tuple[str, ...]) -> str:
    return words[0] + (f" +{len(words) - 1}" if len(words) > 1 else "")


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"
