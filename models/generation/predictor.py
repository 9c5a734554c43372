"""A language model that is ready to read: its weights, perhaps in fewer bits, and the compiled graphs."""

import euler_ir as ei
from euler_ir.quantization import quantize_weights, quantized_state
from models.generation.cache import decode_graph


class Predictor:
    """Runs the graphs of `models.generation.cache`. Each is compiled when it is first needed, and serves all readers.

    `state` holds the parameters and is read at each call. With `weights` ('i8', 'bf16' or 'f16') the weights are those
    of now, in that type: faster, and a little off.
    """

    def __init__(self, config, state, weights=None, backend="cpu", threads=None):
        self.context, self.vocab_size = config.context, config.vocab_size
        self._config, self._weights = config, weights
        self._options = dict(backend=backend, threads=threads)
        self._compiled = {}
        graph = decode_graph(config, 1, 1)
        self.cache_names = tuple(graph.updates)
        self._state = quantized_state(graph, state, weights) if weights else state

    def empty_cache(self, batch):
        """A State of the parameters and a cache of keys and values with `batch` rows."""
        return self._state.view().add(self._graph(decode_graph, batch, 1))

    def run(self, build, batch, room, cache, **inputs):
        """Logits, f32[batch, vocab_size], of `build`, a function of `models.generation.cache`, with room for `room`."""
        if (build, batch, room) not in self._compiled:
            self._compiled[build, batch, room] = ei.compile(self._graph(build, batch, room), **self._options)
        return self._compiled[build, batch, room](cache, **inputs)["logits"]

    def _graph(self, build, *sizes):
        graph = build(self._config, *sizes)
        return quantize_weights(graph, self._weights) if self._weights else graph
