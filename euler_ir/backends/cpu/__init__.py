"""The CPU backend: LLVM IR text, compiled for this machine and run by a pool of threads."""
