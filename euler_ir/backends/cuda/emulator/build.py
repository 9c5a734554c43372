"""Sources of CUDA C++ as modules that run on the CPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from euler_ir.backends.cuda.calls import Source
from euler_ir.backends.cuda.emulator import toolchain
from euler_ir.backends.cuda.emulator.module import Module, line_directive
from euler_ir.backends.cuda.sources import joined, own_code
from euler_ir.errors import LoweringError, did_you_mean

_PROCESSES = 2
_MOST_TOGETHER = 16

# The checks call the runtime, which says what thread it was; GCC's own library for them is not linked. Names are seen
# in one library alone: different sources may have kernels, and static variables of templates, of the same name.
_CHECKS = "alignment,bounds,signed-integer-overflow,shift-exponent,integer-divide-by-zero,unreachable,return"
_OPTIONS = (
    *("-fmax-errors=5", "-DEIR_EMULATOR", "-O2", "-g1", "-w", f"-fsanitize={_CHECKS}", "-nodefaultlibs", "-lm", "-lc"),
    *("-fvisibility=hidden", "-fno-gnu-unique"),
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#(?:\\\n|[^\n])*", re.MULTILINE)
_BOUNDS = re.compile(r"__(?:launch_bounds|maxnreg|cluster_dims)__\s*\((?:[^()]|\([^()]*\))*\)")
_KERNEL = re.compile(r"(?P<template>template\s*<[^;{}()]*>\s*)?[^;{}>]*?\b__global__\b[^;{}()]*?(?P<name>\w+)\s*\(")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)".*$', re.MULTILINE)
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?P<type>[^;\[]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;")


def load(
    source: Source | str, contract: bool = True, kernels: Sequence[str] | None = None, sanitize: bool = False
) -> Module:
    """Compile ``source`` for this machine, or find it in the cache.

    With ``contract``, products and sums become multiply-adds, as a GPU's compiler makes them, if the processor has
    them. ``kernels`` names its kernels, templates with their arguments (``"scale<float>"``); by default those of the
    Source, or all functions that say __global__ and are no templates. With ``sanitize``, launches check each load and
    store: that it lies in an allocation or array to the byte, and that no other thread's access races with it; they
    take three to fifteen times as long. Raises LoweringError with g++'s messages.
    """
    return load_many([source], contract, kernels, sanitize)[0]


def load_file(
    path: str | Path, contract: bool = True, kernels: Sequence[str] | None = None, sanitize: bool = False
) -> Module:
    """As `load`, of the file at ``path``, which may include others in its folder by quotes. Raises OSError too."""
    path = Path(path)
    text = _with_included(str(path), _read(path), path.parent, set())
    names = tuple(kernels or kernel_names(_read(path)))
    return load(Source(str(path), text, names), contract, sanitize=sanitize)


def load_many(
    sources: Sequence[Source | str],
    contract: bool = True,
    kernels: Sequence[str] | None = None,
    sanitize: bool = False,
) -> list[Module]:
    """As `load`, of many sources, two of which are compiled at the same time.

    Of Sources, those that declare no names which others may have are compiled together, which saves reading the header
    for each.
    """
    toolchain.runtime()
    wanted = [_as_source(source, kernels) for source in sources]
    key_of = {source: (source.code, source.kernels, contract, sanitize) for source in wanted}
    missing = {key: source for source, key in key_of.items() if key not in _modules}
    generated = {source for source in sources if isinstance(source, Source)}
    groups = _groups(list(missing.values()), generated)
    with ThreadPoolExecutor(_PROCESSES) as pool:
        modules = pool.map(lambda group: _compiled(_together(group), contract, sanitize), groups)
        for group, module in zip(groups, modules, strict=True):
            _modules.update({key_of[source]: module for source in group})
    return [_modules[key_of[source]] for source in wanted]


_modules: dict[tuple[str, tuple[str, ...], bool, bool], Module] = {}
"""What this process has loaded, by code, kernels, and whether products and sums are contracted and accesses checked."""


def _as_source(source: Source | str, kernels: Sequence[str] | None) -> Source:
    name, text = (source.name, source.text) if isinstance(source, Source) else ("kernels.cu", source)
    if kernels is None:
        kernels = source.kernels if isinstance(source, Source) else kernel_names(text)
    if included := _INCLUDE.search(text):
        raise LoweringError(f'{name} includes "{included[1]}"', hint="build.load_file finds files beside a file")
    if not kernels:
        hint = "a kernel is a function that says __global__"
        if template := _KERNEL.search(_code(text)):
            hint = f"a template is named with its arguments, such as '{template['name']}<float>'"
        raise LoweringError(f"{name} has no kernel", hint=hint)
    for kernel in kernels:
        function = kernel.partition("<")[0].rpartition("::")[2].strip()
        if "##" not in text and not re.search(rf"\b{re.escape(function)}\s*\(", text):  # ## makes names of parts
            raise LoweringError(f"{name} has no kernel {kernel}", hint=did_you_mean(kernel, kernel_names(text)))
    return Source(name, text, tuple(kernels))


def _groups(sources: list[Source], generated: set[Source]) -> list[list[Source]]:
    """``sources``, some at a time; one that may declare a name that another declares too is alone."""
    count = Counter(kernel for source in sources for kernel in source.kernels)
    alone, others = [], []
    for source in sources:
        can_join = source in generated and "namespace" not in own_code(source.text)
        (others if can_join and all(count[kernel] == 1 for kernel in source.kernels) else alone).append(source)
    together = [others[first : first + _MOST_TOGETHER] for first in range(0, len(others), _MOST_TOGETHER)]
    return [[source] for source in alone] + together


def _together(sources: list[Source]) -> Source:
    if len(sources) == 1:
        return sources[0]
    kernels = tuple(kernel for source in sources for kernel in source.kernels)
    return Source("kernels.cu", joined("kernels.cu", [source.text for source in sources]), kernels)


def _compiled(source: Source, contract: bool, sanitize: bool) -> Module:
    table = "".join(f'    EMULATED_KERNEL("{kernel}", {kernel}),\n' for kernel in source.kernels)
    text = (
        f'#include "cuda_emulator.h"\n{line_directive(1, source.name)}\n{_with_dynamic_arrays(source.text)}\n'
        f'#line 1 "the table of kernels"\nEMULATED_KERNELS = {{\n{table}    {{}}}};\n'
    )
    chosen = ["-ffp-contract=fast" if contract else "-ffp-contract=off", *(["-fsanitize=thread"] if sanitize else [])]
    try:
        return Module(source.name, text, toolchain.library(source.name, text, (*_OPTIONS, *chosen)))
    except LoweringError as error:
        if "<<<" in _code(source.text):
            error.hint = "put the host's side (main, <<<...>>>) behind #ifndef EIR_EMULATOR: here Python launches"
        raise


def kernel_names(text: str) -> list[str]:
    """The functions of ``text`` that are kernels and no templates."""
    names = (match["name"] for match in _KERNEL.finditer(_code(text)) if not match["template"])
    return list(dict.fromkeys(names))


def _code(text: str) -> str:
    """``text`` without comments, directives and bounds of launches."""
    return _BOUNDS.sub(" ", _DIRECTIVE.sub(" ", _COMMENT.sub(" ", text)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise LoweringError(f"{path} is no text in UTF-8: {error}") from None


def _with_included(name: str, text: str, folder: Path, seen: set[Path]) -> str:
    """``text`` with the files in place that it includes by quotes, each once: what a library is made of is its key."""

    def content(match: re.Match) -> str:
        file = folder / match[1]
        if file.resolve() in seen:
            return ""
        seen.add(file.resolve())
        own = _with_included(str(file), _read(file), file.parent, seen)
        behind = text.count("\n", 0, match.start()) + 2
        return f"{line_directive(1, str(file))}\n{own}\n{line_directive(behind, name)}"

    return _INCLUDE.sub(content, text)


def _with_dynamic_arrays(text: str) -> str:
    """``extern __shared__ float tile[];`` as a pointer to where dynamic shared memory is, on the same line."""

    def pointer(match: re.Match) -> str:
        kind = re.sub(r"__align__\s*\([^)]*\)|alignas\s*\([^)]*\)", "", match["type"])
        lines = "\n" * match[0].count("\n")
        return f"static {kind}* const& {match['name']} = ({kind}* const&)cuda_emulator::dynamic_shared;{lines}"

    return _DYNAMIC.sub(pointer, text)
