"""Sources of CUDA C++ as modules that run on the CPU."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.emulator import toolchain
from euler_ir.backends.cuda.emulator.module import Module
from euler_ir.backends.cuda.sources import joined, own_code
from euler_ir.errors import LoweringError

_PROCESSES = 2
_MOST_TOGETHER = 16

# The checks call the runtime, which says what thread it was; GCC's own library for them is not linked. Names are seen in
# one library alone: different sources may have kernels, and static variables of templates, of the same name.
_CHECKS = "alignment,bounds,signed-integer-overflow,shift-exponent,integer-divide-by-zero,unreachable,return"
_OPTIONS = (
    *("-fmax-errors=5", "-DEIR_EMULATOR", "-O2", "-g1", "-w", f"-fsanitize={_CHECKS}", "-nodefaultlibs", "-lm", "-lc"),
    *("-fvisibility=hidden", "-fno-gnu-unique"),
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#(?:\\\n|[^\n])*", re.MULTILINE)
_BOUNDS = re.compile(r"__(?:launch_bounds|maxnreg|cluster_dims)__\s*\((?:[^()]|\([^()]*\))*\)")
_KERNEL = re.compile(r"(?P<template>template\s*<[^;{}()]*>\s*)?[^;{}>]*?\b__global__\b[^;{}()]*?(?P<name>\w+)\s*\(")
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?P<type>[^;\[]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;")


def load(source: Source | str, contract: bool = True, kernels: Sequence[str] | None = None) -> Module:
    """Compile ``source`` for this machine, or find it in the cache.

    With ``contract``, products and sums become multiply-adds, as a GPU's compiler makes them, if the processor has them.
    ``kernels`` names its kernels, templates with their arguments (``"scale<float>"``); by default those of the Source, or
    all functions that say __global__ and are no templates. Raises LoweringError with g++'s messages.
    """
    return load_many([source], contract, kernels)[0]


def load_many(sources: Sequence[Source | str], contract: bool = True, kernels: Sequence[str] | None = None) -> list[Module]:
    """As `load`, of many sources, two of which are compiled at the same time.

    Those that declare no names which others may have are compiled together, which saves reading the header for each.
    """
    toolchain.runtime()
    can_join = [s for s in sources if kernels is None and isinstance(s, Source) and "namespace" not in own_code(s.text)]
    missing = {source.code: source for source in can_join if (source.code, contract) not in _in_joined_units}
    some = [list(missing.values())[first : first + _MOST_TOGETHER] for first in range(0, len(missing), _MOST_TOGETHER)]
    alone = [source for source in sources if source not in can_join]
    units = [_unit(source, kernels) for source in (*map(_joined, some), *alone)]
    with ThreadPoolExecutor(_PROCESSES) as pool:
        modules = list(pool.map(lambda unit: _module(*unit, contract), units))
    for group, module in zip(some, modules):
        _in_joined_units.update({(source.code, contract): module for source in group})
    rest = iter(modules[len(some) :])
    return [_in_joined_units[source.code, contract] if source in can_join else next(rest) for source in sources]


_in_joined_units: dict[tuple[str, bool], Module] = {}
"""The module of each source that was compiled with others."""


def _joined(sources: list[Source]) -> Source:
    kernels = tuple(kernel for source in sources for kernel in source.kernels)
    return Source("kernels.cu", joined("kernels.cu", [source.text for source in sources]), kernels)


def _unit(source: Source | str, kernels: Sequence[str] | None) -> tuple[str, str]:
    """The name of a source, and its text as g++ is to read it."""
    name, text = (source.name, source.text) if isinstance(source, Source) else ("kernels.cu", source)
    if kernels is None:
        kernels = source.kernels if isinstance(source, Source) else kernel_names(text)
    if not kernels:
        raise LoweringError(f"{name} has no kernel", hint="a kernel is a function that says __global__")
    table = "".join(f'    EMULATED_KERNEL("{kernel}", {kernel}),\n' for kernel in kernels)
    return name, (
        f'#include "cuda_emulator.h"\n#line 1 "{name}"\n{_with_dynamic_arrays(text)}\n#line 1 "the table of kernels"\n'
        f"EMULATED_KERNELS = {{\n{table}    {{}}}};\n"
    )


def kernel_names(text: str) -> list[str]:
    """The functions of ``text`` that are kernels and no templates."""
    code = _BOUNDS.sub(" ", _DIRECTIVE.sub(" ", _COMMENT.sub(" ", text)))
    names = (match["name"] for match in _KERNEL.finditer(code) if not match["template"])
    return list(dict.fromkeys(names))


def _with_dynamic_arrays(text: str) -> str:
    """``extern __shared__ float tile[];`` as a pointer to where dynamic shared memory is, on the same line."""

    def pointer(match: re.Match) -> str:
        kind = re.sub(r"__align__\s*\([^)]*\)|alignas\s*\([^)]*\)", "", match["type"])
        lines = "\n" * match[0].count("\n")
        return f"static {kind}* const& {match['name']} = ({kind}* const&)cuda_emulator::dynamic_shared;{lines}"

    return _DYNAMIC.sub(pointer, text)


@functools.cache
def _module(name: str, text: str, contract: bool) -> Module:
    content = toolchain.library(name, text, (*_OPTIONS, f"-ffp-contract={'fast' if contract else 'off'}"))
    return Module(name, text, content)
