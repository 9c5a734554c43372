"""The order in which a training run goes through a data set, pass by pass."""

import math

import numpy as np

# Keeps these random numbers apart from any others drawn from the user's seed.
_ORDER_STREAM = 0x6F72646572


class Passes:
    """Batches of indices below `count`, as a pure function of (seed, step, micro step).

    A pass takes each index once, in a random order of its own. The last batches of a pass have fewer, or none.
    """

    def __init__(self, count, batch_size, accumulate, seed):
        self.count, self._batch_size, self._accumulate, self._seed = count, batch_size, accumulate, seed

    @property
    def steps(self):
        """Steps of a pass."""
        return math.ceil(self.count / (self._batch_size * self._accumulate))

    def indices(self, step, micro_step=0):
        """The indices of a batch, integer [up to batch_size]."""
        number, step_of_pass = divmod(step, self.steps)
        key = np.random.SeedSequence(self._seed, spawn_key=(_ORDER_STREAM, number))
        order = np.random.Generator(np.random.PCG64(key)).permutation(self.count)
        start = (step_of_pass * self._accumulate + micro_step) * self._batch_size
        return order[start : start + self._batch_size]
