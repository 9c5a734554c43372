"""How well a model predicts text that it has not seen."""

import math

import euler_ir as ei
from euler_ir.quantization import quantize_weights
from models.data.batches import IGNORED_LABEL, validation_windows
from models.language_model import evaluation_graph

# Bounds the time that validation takes on a large corpus; the first 64 batches hold 131,072 tokens of nano's.
MAX_BATCHES = 64


class Evaluation:
    """The loss of a GPT-2 on `tokens`, integer [tokens]: at most MAX_BATCHES batches of windows of `context` tokens.

    With `weights` ('i8', 'bf16' or 'f16') it is that of a State with weights in that type.
    """

    def __init__(self, config, tokenizer, tokens, batch_size, context, weights=None, backend="cpu", threads=None):
        self._windows = []
        if len(tokens) >= 2:
            self._windows = validation_windows(tokens, context, batch_size)[:MAX_BATCHES]
            graph = evaluation_graph(config, batch_size, context)
            graph = quantize_weights(graph, weights) if weights else graph
            self._run = ei.compile(graph, backend=backend, threads=threads)
        # Counted from the tokens: a half character decodes to U+FFFD, which has more bytes than it stands for.
        self._byte_count = tokenizer.byte_lengths.copy()
        self._byte_count[list(tokenizer.special_tokens.values())] = 0

    def of(self, state):
        """(nats per token, bits per byte) with the parameters of `state`; None when there is no text to predict.

        Every token but the first is predicted once. Bits per byte divide by the bytes of the predicted tokens and so
        compare models with different tokenizers.
        """
        total, count, byte_count = 0.0, 0, 0
        for tokens, targets in self._windows:
            outputs = self._run(state, tokens=tokens, targets=targets)
            total += float(outputs["loss"])
            count += int(outputs["count"])
            byte_count += int(self._byte_count[targets[targets != IGNORED_LABEL]].sum())
        return (total / count, total / math.log(2) / byte_count) if byte_count else None
