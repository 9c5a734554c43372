"""CUDA on the CPU: sources compiled by g++, one fiber a thread, with checks that no GPU makes."""
