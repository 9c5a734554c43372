"""How well a model does by an objective on examples that it does not learn from."""

import euler_ir as ei
from models.language_model import evaluation_graph


class HeldOut:
    """Means of `objective` over `batches`, a list of its inputs for `batch_size` rows of `context` tokens each."""

    def __init__(self, config, batch_size, context, objective, batches, backend="cpu", threads=None):
        self._batches = batches
        if batches:
            graph = evaluation_graph(config, batch_size, context, objective=objective)
            self._run = ei.compile(graph, backend=backend, threads=threads)

    def of(self, state):
        """{"loss": ..., and the objective's measures} with the parameters of `state`; {} when nothing counts.

        Each is its sum over all examples by their number, however they are spread over the batches.
        """
        sums = {}
        for inputs in self._batches:
            for name, value in self._run(state, **inputs).items():
                sums[name] = sums.get(name, 0.0) + float(value)
        count = sums.pop("count", 0)
        return {name: value / count for name, value in sums.items()} if count else {}
