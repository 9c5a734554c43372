"""What the compiler makes of a model, shown to people."""
