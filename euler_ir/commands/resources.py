"""``euler-ir resources``: what the kernels of a step take of a GPU."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_architecture, add_json, add_pipeline, add_target, counted, print_json, table
from euler_ir.inspect.cuda.resources import KernelResources, StepResources, resources
from euler_ir.inspect.cuda.step_calls import lower_for_cuda
from euler_ir.inspect.user_graph import load_files, load_graph
from euler_ir.plan.footprint import readable


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile the CUDA kernels of a step, without a GPU, and say what each takes: registers of a thread, bytes that "
        "it spills, shared memory of a block, blocks on a multiprocessor and the part of its warps, instructions for "
        "tensor cores, and the bytes that it moves beside the least possible. The exit code is 1 when one cannot run."
    )
    add_target(parser)
    add_pipeline(parser, default="cuda")
    add_architecture(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    graph = load_graph(options.target)
    found = resources(lower_for_cuda(graph, options.passes).plan, options.arch)
    if options.json:
        print_json({"graph": graph.name, **found.record()})
    else:
        print("\n".join(_lines(graph.name, found)))
    return 1 if found.excesses() else 0


_HEADINGS = (
    *("kernel", "launches", "blocks x threads", "registers", "spilled", "shared", "resident", "occupancy"),
    *("tensor cores", "moved", "of least"),
)


def _lines(name: str, found: StepResources) -> list[str]:
    kinds = ", ".join(counted(number, kind, _ENDINGS[kind]) for kind, number in found.calls.items())
    lines = [f"{name} on {found.architecture}: a step is {counted(found.launches, 'call')}: {kinds}"]
    if found.kernels:
        lines.append(table((_HEADINGS, *map(_cells, found.kernels)), right=range(1, len(_HEADINGS))))
    return lines + found.excesses()


_ENDINGS = {"launch": "es", "product": "s", "copy": "s", "fill": "s"}


def _cells(kernel: KernelResources) -> tuple[str, ...]:
    return (
        kernel.name,
        str(kernel.launches),
        f"{kernel.blocks} x {kernel.threads}",
        str(kernel.registers),
        str(kernel.spilled),
        str(kernel.shared),
        str(kernel.resident),
        f"{100 * kernel.occupancy:.0f}%",
        str(kernel.tensor_cores),
        readable(kernel.moved) if kernel.moved else "",
        f"{kernel.moved / kernel.least:.2f}" if kernel.least else "",
    )
