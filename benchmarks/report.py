"""Measurements as a table for people and as JSON for programs."""

import importlib.metadata
import os
import platform

from rich import box
from rich.table import Table

from benchmarks.train_step import BASELINE


def environment(threads):
    """What a result depends on besides the code: versions, threads, and settings of the BLAS."""
    versions = {}
    for package in ("numpy", "llvmlite", "scipy-openblas32", "torch"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    blas = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("OPENBLAS_", "MKL_", "OMP_"))}
    return {"python": platform.python_version(), "versions": versions, "threads": threads, "variables": blas}


def records(workload, measurements):
    """One dictionary a peer: what was measured and what follows from it."""
    baseline = next(one for one in measurements if one.peer == BASELINE)
    return [
        {
            "peer": one.peer,
            "step_ms": {"median": one.median_ms, "min": one.fastest_ms, "max": one.slowest_ms, "rounds": one.step_ms},
            "tokens_per_second": workload.tokens / one.median_ms * 1e3,
            "gflop_per_second": workload.gflop / one.median_ms * 1e3,
            "peak_rss_mb": one.peak_rss_mb,
            "build_seconds": one.build_seconds,
            "first_step_seconds": one.first_step_seconds,
            "losses": one.losses,
            "ratio_to_euler_ir": one.ratio_to(baseline),
        }
        for one in measurements
    ]


def table(title, workload, peer_records):
    """A rich table of the `records` of one workload: ms/step is the median, the ratio is to euler_ir, by round."""
    shown = Table(
        title=f"{title}: {workload.batch} x {workload.length} tokens, {workload.gflop:.4g} GFLOP a step",
        box=box.SIMPLE,
        padding=0,
    )
    shown.add_column("peer", no_wrap=True)
    # In two lines, so that the widest table has room in 80 columns.
    headings = ("ms/\nstep", "min", "max", "ratio", "tokens\n/s", "GFLOP\n/s", "peak\nMiB", "build\ns", "first\nstep s")
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    for record in peer_records:
        step = record["step_ms"]
        shown.add_row(
            record["peer"],
            f"{step['median']:.1f}",
            f"{step['min']:.1f}",
            f"{step['max']:.1f}",
            f"{record['ratio_to_euler_ir']:.2f}",
            f"{record['tokens_per_second']:.0f}",
            f"{record['gflop_per_second']:.1f}",
            f"{record['peak_rss_mb']:.0f}",
            f"{record['build_seconds']:.2f}",
            f"{record['first_step_seconds']:.2f}",
        )
    return shown
