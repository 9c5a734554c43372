"""Random numbers that are a pure function of the user's seed and of what they are for."""

import numpy as np


def random_stream(seed, *key):
    """A numpy Generator for a key of integers, apart from those of all other keys and from the seed's own.

    The first of the key says what the numbers are for.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
