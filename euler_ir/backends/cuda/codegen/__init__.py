"""Nests of the Loop IR as CUDA C++: `kernel_calls` gives the launches of a step, `place_of` who computes a point."""

from euler_ir.backends.cuda.codegen.kernels import Place, kernel_calls, place_of

__all__ = ["Place", "kernel_calls", "place_of"]
