"""Products by cuBLASLt, with its epilogues where they mean the same."""

from euler_ir.backends.cuda.gemm.calls import product_calls
from euler_ir.backends.cuda.gemm.product import Product

__all__ = ["Product", "product_calls"]
