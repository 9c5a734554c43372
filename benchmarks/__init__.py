"""What euler_ir costs in time and memory, next to its peers: `python -m benchmarks --help`."""
