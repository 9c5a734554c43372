"""Graphs of GPT-2 and NanoEuler to look at, for example with

    euler-ir dump examples/gpt2_graphs.py:nano_step --stage plan
"""

from models import nanoeuler
from models.generation.cache import decode_graph, prefill_graph
from models.gpt2 import PRESETS
from models.language_model import evaluation_graph, train_graph


def nano_step():
    """A training step of the nano preset: 16 windows of 128 tokens."""
    return train_graph(PRESETS["nano"], 16, 128)


def nano_evaluation():
    """The summed loss of 16 windows."""
    return evaluation_graph(PRESETS["nano"], 16, 128)


def nano_prefill():
    """The scores of the token that follows a text of up to 64 tokens."""
    return prefill_graph(PRESETS["nano"], 1, 64)


def nano_decode():
    """The scores of the token that follows one token more."""
    return decode_graph(PRESETS["nano"], 1, 64)


def gpt2_step():
    """A training step of GPT-2 with 124 million parameters: one window of 256 tokens."""
    return train_graph(PRESETS["124M"], 1, 256)


def nanoeuler_step():
    """A training step of NanoEuler with 116 million parameters: one window of 512 tokens."""
    return train_graph(nanoeuler.PRESETS["nanoeuler-116M"], 1, 512)
