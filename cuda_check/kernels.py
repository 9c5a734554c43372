"""What the kernels of models and of random graphs take of a GPU, compiled for each architecture."""

from euler_ir.errors import EulerError
from euler_ir.inspect.cuda.resources import resources
from euler_ir.inspect.cuda.step_calls import lower_for_cuda
from euler_ir.testing.random_graphs import random_graph

ATTENTION = ("attention", "flash")
"""What the names of attention's kernels begin with: none of these may spill."""


def check_models(models, architectures):
    """One record for each model of ``models``, by name, and each architecture; see `_record`."""
    found = []
    for name, model in models.items():
        plan = lower_for_cuda(model.build(), model.passes).plan
        found += [_record(name, plan, architecture) for architecture in architectures]
    return found


def check_random_graphs(count, architectures):
    """One record for each architecture: the kernels of ``count`` random graphs together.

    A graph whose arithmetic is refused by every backend (LoweringError on the way to the plan) has none.
    """
    plans = [lower_for_cuda(random_graph(seed).graph).plan for seed in range(count)]
    found = []
    for architecture in architectures:
        records = [_record(f"random graph {seed}", plan, architecture) for seed, plan in enumerate(plans)]
        kernels = {kernel["name"]: kernel for record in records for kernel in record["kernels"]}
        calls = sum(record["launches"] for record in records)
        wrong = [text for record in records for text in record["wrong"]]
        found.append(
            {
                "model": f"{count} random graphs",
                "architecture": architecture,
                "launches": calls,
                "kernels": list(kernels.values()),
                "wrong": wrong,
            }
        )
    return found


def _record(name, plan, architecture):
    """A plan's kernels on an architecture, how much is put into a queue for a step, and what is ``wrong`` in words."""
    try:
        found = resources(plan, architecture)
    except EulerError as error:
        wrong = [f"{name}, {architecture}: {error}"]
        return {"model": name, "architecture": architecture, "launches": 0, "kernels": [], "wrong": wrong}
    spilling = [
        f"{kernel.name} spills {kernel.spilled} bytes"
        for kernel in found.kernels
        if kernel.spilled and kernel.name.startswith(ATTENTION)
    ]
    return {
        "model": name,
        "architecture": architecture,
        "launches": found.launches,
        "kernels": [kernel.record() for kernel in found.kernels],
        "wrong": [f"{name}, {architecture}: {text}" for text in (*found.excesses(), *spilling)],
    }
