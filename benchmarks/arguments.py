"""What the command line is given, as values."""

import argparse


def count(text):
    """A number of things, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number
