"""Products by cuBLASLt, with its epilogues where they mean the same."""

from euler_ir.backends.cuda.gemm.calls import ProductOptions, product_calls
from euler_ir.backends.cuda.gemm.product import Product

__all__ = ["Product", "ProductOptions", "product_calls"]
