"""LLVM IR text to machine code of this machine: verified, optimised by a short list of passes, linked into the process.

Objects are kept in the disk cache, so that a module is compiled once for all programs and processes.

llvmlite holds one lock around all of LLVM, so threads that compile take turns; the lock here also keeps a module, its
pass manager and the target machine to one thread at a time.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from euler_ir import cache
from euler_ir.errors import LoweringError

_lock = threading.RLock()


def _wait_for_llvm() -> None:
    """Before a fork: the child has no thread that would ever finish what another one has begun."""
    _lock.acquire()
    llvm.ffi.lib._lock.__enter__()


def _release_llvm() -> None:
    llvm.ffi.lib._lock.__exit__()
    _lock.release()


os.register_at_fork(before=_wait_for_llvm, after_in_parent=_release_llvm, after_in_child=_release_llvm)


@dataclass(frozen=True)
class Pipeline:
    """The passes over a module, by their names in llvmlite, and the level of code generation, 0 to 3."""

    passes: tuple[str, ...]
    level: int


#: For code that computes. A default pipeline takes several times as long as code generation and finds little in text
#: that is emitted as vectors already: inline the math functions, then clean up what inlining shows.
COMPUTE = Pipeline(
    ("always_inliner", "global_dead_code_eliminate", "sroa", "instruction_combine", "new_gvn", "simplify_cfg"), level=2
)
#: For loops over integers: variables in registers, loops whose condition is at their end, branches threaded together.
INTEGERS = Pipeline(
    (
        "always_inliner",
        "global_dead_code_eliminate",
        "sroa",
        "simplify_cfg",
        "instruction_combine",
        "jump_threading",
        "loop_rotate",
        "new_gvn",
        "instruction_combine",
        "simplify_cfg",
    ),
    level=2,
)
#: For long code that runs once and only calls what computes: an eighth of the time to generate.
CALLS = Pipeline((), level=0)


def _new_target_machine(level: int) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Position-independent code reaches data and functions wherever the linker puts them.
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=level, reloc="pic", codemodel="small", jit=True
    )


class _Compiler:
    """A pipeline as LLVM's objects. There is one for good: llvmlite never frees all of a pass manager."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.machine = _new_target_machine(pipeline.level)
        self._passes = llvm.create_new_module_pass_manager()
        for name in pipeline.passes:
            getattr(self._passes, f"add_{name}_pass")()
        options = llvm.create_pipeline_tuning_options(pipeline.level)
        self._builder = llvm.create_pass_builder(self.machine, options)

    def optimized(self, text: str) -> llvm.ModuleRef:
        """The module after the passes. Raises LoweringError if ``text`` is not valid LLVM IR."""
        module = _parsed(text)
        module.triple = self.machine.triple
        module.data_layout = str(self.machine.target_data)
        self._passes.run(module, self._builder)
        return module


def _parsed(text: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise LoweringError("the LLVM IR is not valid", details=tuple(str(error).strip().splitlines())) from None
    return module


@functools.cache
def _compiler(pipeline: Pipeline) -> _Compiler:
    return _Compiler(pipeline)


def _features() -> str:
    """The features of this CPU, with the full width of AVX-512 where LLVM's tuning would shun it."""
    features = llvm.get_host_cpu_features()
    text = features.flatten()
    return f"{text},-prefer-256-bit" if features.get("avx512f") else text


@functools.cache
def host_description() -> str:
    """The CPU, its features and the LLVM version: whatever of this machine decides which code a text becomes."""
    version = ".".join(map(str, llvm.llvm_version_info))
    host = f"{llvm.get_default_triple()} {llvm.get_host_cpu_name()} {_features()}"
    return f"{host} llvm-{version} llvmlite-{llvmlite.__version__}"


@functools.cache
def vector_bytes() -> int:
    """The width in bytes of the widest vector register that this CPU computes floats in."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 64
    return 32 if features.get("avx2") else 16


@functools.cache
def last_cache_bytes() -> int:
    """The size of the largest cache that Linux says the first core has, or 0."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=0)


def compile_object(llvm_ir_text: str, pipeline: Pipeline = COMPUTE) -> bytes:
    """The relocatable object code of a module, for this CPU. Raises LoweringError if the text is not valid LLVM IR."""
    key = ("object", llvm_ir_text, host_description(), repr(pipeline))
    data = cache.load(*key)
    if data is None:
        with _lock:
            compiler = _compiler(pipeline)
            data = compiler.machine.emit_object(compiler.optimized(llvm_ir_text))
        cache.store(data, *key)
    return data


def assembly(llvm_ir_text: str, pipeline: Pipeline = COMPUTE) -> str:
    """The assembly that `compile_object` would encode."""
    with _lock:
        compiler = _compiler(pipeline)
        return compiler.machine.emit_assembly(compiler.optimized(llvm_ir_text))


def optimized_ir(llvm_ir_text: str, pipeline: Pipeline = COMPUTE) -> str:
    """The module after the passes, as LLVM IR text."""
    with _lock:
        return str(_compiler(pipeline).optimized(llvm_ir_text))


def defined_functions(llvm_ir_text: str) -> dict[str, str]:
    """The type of each function that a module defines for others, by name. Raises LoweringError if it is not valid."""
    with _lock:
        module = _parsed(llvm_ir_text)
        return {
            function.name: str(function.global_value_type)
            for function in module.functions
            if not function.is_declaration and function.linkage == llvm.Linkage.external
        }


def register_symbol(name: str, address: Callable[[], int]) -> None:
    """Let loaded code refer to ``name``; ``address`` is asked for once code that mentions the name is loaded."""
    with _lock:
        _external_symbols[name] = address


class LoadedCode:
    """Objects linked together into this process, with the addresses of the functions and globals in ``exports``.

    Symbols that no object defines are those of `register_symbol`, then the C and math functions of the process. The
    code is unmapped with the last reference to this, so whoever holds an address must also hold it. Raises
    LoweringError for a damaged object, a symbol that is missing, or one defined twice.
    """

    def __init__(self, objects: Iterable[bytes], exports: Iterable[str]) -> None:
        objects, exports = list(objects), set(exports)
        library = llvm.JITLibraryBuilder().add_current_process()
        for data in objects:
            library.add_object_img(data)
        for symbol in exports:
            library.export_symbol(symbol)
        with _lock:
            for symbol, address in _external_symbols.items():
                if symbol not in exports and any(symbol.encode() in data for data in objects):
                    library.import_symbol(symbol, address())
            number = next(_library_numbers)
            try:
                self._linked = library.link(_linker(number // _LIBRARIES_PER_LINKER), f"code{number}")
            except RuntimeError as error:
                raise LoweringError("compiled code cannot be linked", details=(str(error),)) from None

    def address(self, symbol: str) -> int:
        """The address of an exported symbol. Raises KeyError for any other."""
        return self._linked[symbol]


_external_symbols: dict[str, Callable[[], int]] = {}
_library_numbers = itertools.count()

# A linker keeps some 9 KB of each library that it ever linked, until it goes with the last of them.
_LIBRARIES_PER_LINKER = 64


@functools.lru_cache(maxsize=1)
def _linker(generation: int) -> llvm.LLJIT:
    return llvm.create_lljit_compiler(_new_target_machine(COMPUTE.level), use_jit_link=True, suppress_errors=True)
