"""A pretrained model and its tokenizer with room for the tokens of a chat."""

from dataclasses import replace

import numpy as np

from models.chat.conversation import CHAT_TOKENS
from models.named_tensors import check_tensors
from models.random_streams import random_stream

JITTER = 0.1
"""How far new rows spread around the mean, as a share of how far the old ones do."""

_VOCABULARY_STREAM = 0x766F636162


def with_chat_tokens(config, tokenizer, parameters, seed=0):
    """(config, tokenizer, parameters) with CHAT_TOKENS; those that the tokenizer has already stay what they are.

    Heads that only pretraining uses are left out: nothing would train them from here on.
    `parameters` are arrays by name. Old ids keep their meaning and their rows. A new row is the mean of the old ones,
    where a model is not surprised by it (Hewitt, "Initializing New Word Embeddings", 2021), with a jitter that is a
    function of the seed, so that no two tokens begin alike. Raises ValueError when the parameters are not the config's.
    """
    shapes = _shapes(config)
    check_tensors({name: array.shape for name, array in parameters.items()}, shapes, "The model to begin from")
    config = config.next_token_only()
    known = tokenizer.vocab_size
    grown = tokenizer.with_special_tokens(CHAT_TOKENS)
    # A model may have more rows than its tokenizer has ids.
    wider = replace(config, vocab_size=max(config.vocab_size, grown.vocab_size))
    random = random_stream(seed, _VOCABULARY_STREAM)
    taken = {}
    for name, changed in _shapes(replace(config, vocab_size=config.vocab_size + 1)).items():
        taken[name] = parameters[name].copy()
        for axis in np.flatnonzero(np.not_equal(changed, shapes[name])):
            taken[name] = _grown(taken[name], axis, known, wider.vocab_size, random)
    return wider, grown, taken


def _grown(array, axis, known, count, random):
    rows = np.moveaxis(array, axis, 0)
    old = rows[:known].astype(np.float64)
    new = old.mean(axis=0) + JITTER * old.std(axis=0) * random.standard_normal((count - known, *old.shape[1:]))
    return np.ascontiguousarray(np.moveaxis(np.concatenate([rows[:known], new.astype(array.dtype)]), 0, axis))


def _shapes(config):
    return {name: parameter.shape for name, parameter in config.build().named_parameters()}
