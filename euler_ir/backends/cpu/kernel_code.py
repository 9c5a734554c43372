"""The machine code of single kernels: the LLVM modules of their nests, and others in their place."""

from __future__ import annotations

from collections.abc import Iterable

from euler_ir.backends.cpu.codegen import NestModules
from euler_ir.backends.cpu.jit import defined_functions
from euler_ir.backends.cpu.widths import task_count
from euler_ir.errors import LoweringError
from euler_ir.plan.plan import KernelStep


def kernel_modules(launches: Iterable[KernelStep]) -> dict[str, str]:
    """The LLVM IR text of each nest of ``launches``, by the symbol of the function that it defines.

    A nest that some launches run in place, and others not, has two functions.
    """
    modules = NestModules()
    for step in launches:
        for nest, in_place in zip(step.kernel.nests, step.shared):
            if task_count(nest):
                modules.add(nest, in_place)
    return modules.texts


def module_in_place(launches: Iterable[KernelStep], text: str) -> dict[str, str]:
    """``text``, an LLVM IR module, by the symbols of `kernel_modules` that it defines instead.

    Raises LoweringError when it is not valid, defines none of them, or one with another signature.
    """
    generated = kernel_modules(launches)
    defined = defined_functions(text)
    found = [symbol for symbol in generated if symbol in defined]
    if not found:
        raise LoweringError(
            "the module defines no function of this kernel",
            details=(f"it defines {', '.join(defined) or 'none'}", f"the kernel has {', '.join(generated) or 'none'}"),
            hint="keep the function's name: it says which nest it is for",
        )
    for symbol in found:
        wanted = defined_functions(generated[symbol])[symbol]
        if defined[symbol] != wanted:
            raise LoweringError(f"the function {symbol} is {defined[symbol]}, and must be {wanted}")
    return dict.fromkeys(found, text)
