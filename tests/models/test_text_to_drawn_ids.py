"""The whole way of a text through a stored model: ids, logits, drawn ids and text again, each step by another program.

Ids are those of Hugging Face's `tokenizers`, logits those of a forward pass in numpy and f64, what may come next is
said by transformers' processors, and one is drawn by a number of numpy's Philox.
"""

import functools
import warnings
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch

from models.generation.sampler import Sampler
from models.generation.sampling import Sampling
from models.huggingface import read_checkpoint

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformers.generation import logits_process as hf

SHAKESPEARE = Path(__file__).parents[1] / "data" / "gpt2_shakespeare"
CONTEXT, HEADS, LAYERS = 128, 4, 4
COUNT = 24
"""Tokens that are drawn."""


@pytest.fixture(scope="module")
def checkpoint():
    return read_checkpoint(SHAKESPEARE)[0]


class Reference:
    """GPT-2 (Radford et al., 2019) in f64."""

    def __init__(self, arrays):
        self._arrays = {name: array.astype(np.float64) for name, array in arrays.items()}

    def logits(self, ids):
        """Of the token after `ids`, [vocab]."""
        w = self._arrays
        x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
        for layer in range(LAYERS):
            x = x + self._attention(f"h.{layer}.attn", self._norm(f"h.{layer}.ln_1", x))
            inner = self._linear(f"h.{layer}.mlp.c_fc", self._norm(f"h.{layer}.ln_2", x))
            inner = inner / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
            x = x + self._linear(f"h.{layer}.mlp.c_proj", inner)
        return self._norm("ln_f", x)[-1] @ w["wte.weight"].T

    def _linear(self, name, x):
        return x @ self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"]

    def _norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"]

    def _attention(self, name, x):
        length, width = x.shape
        by_head = self._linear(f"{name}.c_attn", x).reshape(length, 3, HEADS, width // HEADS)
        query, key, value = by_head.transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width // HEADS)
        scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = weights / weights.sum(-1, keepdims=True) @ value
        return self._linear(f"{name}.c_proj", mixed.transpose(1, 0, 2).reshape(length, width))


@functools.cache
def drawn(prompt, count, seed, penalty, temperature, top_k, top_p):
    """`count` ids that continue `prompt`. Of a text that has more than 128 the model sees the last 65 to 128."""
    processors = [hf.RepetitionPenaltyLogitsProcessor(penalty), hf.TemperatureLogitsWarper(temperature)]
    processors += [hf.TopKLogitsWarper(top_k), hf.TopPLogitsWarper(top_p)]
    reference = Reference(read_checkpoint(SHAKESPEARE)[0].arrays)
    random, ids = np.random.Generator(np.random.Philox(seed)), list(prompt)
    for _ in range(count):
        seen = len(ids) if len(ids) <= CONTEXT else 65 + (len(ids) - 1) % 64
        scores = torch.tensor(reference.logits(ids[-seen:]))[None]
        for processor in processors:
            scores = processor(torch.tensor(ids)[None], scores)
        cumulated = torch.softmax(scores, -1)[0].numpy().cumsum()
        ids.append(int(np.argmax(cumulated > random.random())))
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    ("prompt", "seed", "settings"),
    [
        ("KING RICHARD:\nWhat", 0, (1.0, 0.8, 1024, 1.0)),
        ("  né 你好 🙂\n", 7, (1.3, 1.1, 40, 0.9)),
        ("First, the king. Then, the queen; and so on, for ever and a day.\n" * 5, 3, (1.1, 0.9, 200, 0.95)),
    ],
    ids=["plain", "every setting", "beyond the context"],
)
def test_text_to_drawn_ids_is_what_other_programs_make_of_it(checkpoint, prompt, seed, settings):
    penalty, temperature, top_k, top_p = settings
    oracle = tokenizers.Tokenizer.from_file(str(SHAKESPEARE / "tokenizer.json"))
    ids = oracle.encode(prompt, add_special_tokens=False).ids
    assert checkpoint.tokenizer.encode_ordinary(prompt) == ids
    expected = drawn(tuple(ids), COUNT, seed, *settings)
    sampler = Sampler.of_checkpoint(checkpoint)
    sampling = Sampling(temperature, top_k, top_p, penalty)
    assert list(sampler.tokens(ids, COUNT, sampling, seed, stop_ids=())) == expected
    assert (len(ids) < CONTEXT < len(ids) + COUNT - 5) == (len(prompt) > 200)
    text = "".join(sampler.text(prompt, COUNT, sampling, seed))
    end = checkpoint.tokenizer.end_of_text_id
    assert text == oracle.decode(expected[: expected.index(end)] if end in expected else expected)


def test_one_text_stays_what_it_is(checkpoint):
    sampler = Sampler.of_checkpoint(checkpoint)
    assert "".join(sampler.text("ROMEO:\n", 24, Sampling(0.8, top_k=50, repetition_penalty=1.2), seed=1)) == (
        "Ca! sir, I dosting it stofates; and so;\nAhooy"
    )
