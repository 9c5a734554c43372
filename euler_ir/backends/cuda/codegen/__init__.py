"""Nests of the Loop IR as CUDA C++: `kernel_calls` gives the launches of a step."""

from euler_ir.backends.cuda.codegen.kernels import kernel_calls

__all__ = ["kernel_calls"]
