"""What the CUDA backend makes of a graph, found on a machine without a GPU."""
