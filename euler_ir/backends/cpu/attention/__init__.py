"""Attention in generated code: tiled over keys with a running softmax (T. Dao et al., arXiv:2205.14135, 2307.08691)."""
