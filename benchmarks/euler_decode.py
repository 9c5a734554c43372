"""Decoding by `models.generation`, on graphs that euler_ir compiles for the CPU."""

import numpy as np

import euler_ir as ei
from models.generation.cache import decode_graph
from models.generation.predictor import Predictor
from models.generation.reader import Reader
from models.gpt2 import GPT2Config


class EulerDecoder:
    """One sequence of up to `window` tokens.

    It begins with weights of its own and writes them to the file `weights`. They are kept as f32 or in the type `kept`.
    """

    kept = None

    def __init__(self, workload, weights, threads, window):
        config = GPT2Config(workload.vocab_size, workload.context, workload.layers, workload.heads, workload.width)
        graph = decode_graph(config, 1, window)
        state, names = ei.initial_state(graph), [parameter.op.attributes["name"] for parameter in graph.parameters]
        np.savez(weights, **{name: state[name] for name in names})
        self._predictor = Predictor(config, state, self.kept, threads=threads)

    def begin(self, tokens):
        """Logits after `tokens`, from an empty cache on."""
        self._reader, self._ids = Reader(self._predictor), tokens.tolist()
        return self._reader.logits([self._ids])[0]

    def next(self, token):
        """Logits after one `token` more."""
        self._ids.append(token)
        return self._reader.logits([self._ids])[0]


class HalfEulerDecoder(EulerDecoder):
    """With bf16 weights."""

    kept = "bf16"


class ByteEulerDecoder(EulerDecoder):
    """With i8 weights."""

    kept = "i8"
