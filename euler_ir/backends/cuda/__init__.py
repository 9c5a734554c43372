"""CUDA: loop nests as generated kernels, products by cuBLASLt, attention by a template; on a GPU or in an emulator."""
