"""The code of every kernel: Loop IR, and the modules that it runs as LLVM IR and assembly, each module once."""

from __future__ import annotations

from euler_ir.inspect.explorer.schedule import Schedule


def code_record(schedule: Schedule) -> dict:
    """By kernel its loops and the numbers of its modules; by module its symbol, LLVM IR and assembly.

    Raises LoweringError for what has no code.
    """
    # LLVM is imported where it is used: the other parts need none of it.
    from euler_ir.backends.cpu.jit import assembly, optimized_ir
    from euler_ir.backends.cpu.program import CpuProgram

    program = CpuProgram(schedule.plan)
    modules: dict[str, int] = {}
    texts: list[str] = []
    of_kernel = []
    for kernel in schedule.kernels:
        own = program.modules_of(kernel.example, kernel.nest)
        texts += [text for symbol, text in own.items() if symbol not in modules]
        of_kernel.append([modules.setdefault(symbol, len(modules)) for symbol in own])
    return {
        "loops": [kernel.loops for kernel in schedule.kernels],
        "modules": of_kernel,
        "symbol": list(modules),
        "llvm": [optimized_ir(text) for text in texts],
        "assembly": [assembly(text) for text in texts],
    }
