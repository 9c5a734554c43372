"""The CUDA backend, checked on a machine without a GPU: `python -m cuda_check`."""
