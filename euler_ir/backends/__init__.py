"""What runs a plan: one package a target."""
