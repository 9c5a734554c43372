"""The order in which a training run goes through a data set, pass by pass."""

import math

from models.random_streams import random_stream

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
        order = random_stream(self._seed, _ORDER_STREAM, number).permutation(self.count)
        start = (step_of_pass * self._accumulate + micro_step) * self._batch_size
        return order[start : start + self._batch_size]
