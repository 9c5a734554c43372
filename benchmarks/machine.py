"""What a result depends on besides the code: the machine and its measured ceilings, versions, settings, date."""

import dataclasses
import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

from benchmarks.remote import Remote

VARIABLES = ("OPENBLAS_", "MKL_", "OMP_", "EULER_IR_", "XLA_", "TORCH")
PACKAGES = ("numpy", "llvmlite", "scipy-openblas32", "torch", "jax", "xdsl", "tiktoken", "tokenizers", "rustbpe")


def environment(threads):
    """Machine, versions, settings of the libraries, date, and how busy the machine was."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.date.today().isoformat(),
        "machine": _machine(),
        "load_at_start": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions,
        "threads": threads,
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)},
    }


def _machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    features = facts.get("flags", "").split()
    widest = next((name for name in ("avx512f", "avx2") if name in features), platform.machine())
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    sizes = [f"L{(cache / 'level').read_text().strip()} {(cache / 'size').read_text().strip()}" for cache in caches]
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": facts.get("model name", platform.processor()),
        "family": f"{facts.get('cpu family', '?')}, model {facts.get('model', '?')}",
        "cores": os.cpu_count(),
        "vectors": widest,
        "caches": sizes,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "huge_pages": pages.read_text().strip() if pages.exists() else "",
    }


class Ceilings:
    """The best rates of the machine seen so far, on ``threads`` threads and on one; for a process of its own."""

    def __init__(self, threads):
        self._seen = dict.fromkeys((threads, 1))
        self._threads = threads

    def measure(self):
        """Measure them once more: what else runs on the machine only ever lowers one."""
        from euler_ir.backends.cpu.ceilings import measure_ceilings

        for threads, best in self._seen.items():
            measured = measure_ceilings(threads)
            self._seen[threads] = measured if best is None else best.best(measured)

    def rates(self):
        """Those of euler_ir's Ceilings as a dictionary, and `one_thread` of them."""
        all_threads, one = (
            {**dataclasses.asdict(self._seen[threads]), "bandwidth": self._seen[threads].bandwidth}
            for threads in (self._threads, 1)
        )
        return {**all_threads, "one_thread": one}


def with_ceilings(threads, measure):
    """What ``measure()`` returns, and the machine's rates, measured before and after it."""
    with Remote("euler_ir", Ceilings, threads) as remote:
        remote.call("measure")
        measured = measure()
        remote.call("measure")
        return measured, remote.call("rates")
