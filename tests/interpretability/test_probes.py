"""Probabilities of what follows, over bytes: against sums over all ways to cut a text into tokens."""

import itertools

import numpy as np
import pytest

import euler_ir as ei
from models.gpt2 import GPT2Config
from models.interpretability.probes import NextBytes, Probe, speaker_lines
from models.interpretability.subject import look_graph
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.characters import CharacterTokenizer

pytestmark = pytest.mark.usefixtures("compiled_once")

TEXT = "the theme then: they thought\n\nTHE\n\nTO:\n" * 20


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXT, 275)


@pytest.fixture(scope="module")
def model(tokenizer):
    config = GPT2Config(tokenizer.vocab_size, 16, layers=1, heads=2, width=8)
    state = ei.initial_state(look_graph(config, 1), seed=3)
    state["wte.weight"] *= 40
    return config, state


@pytest.fixture(scope="module")
def next_bytes(model, tokenizer):
    return NextBytes(*model, tokenizer, room=16, backend="reference")


def distribution(model, ids):
    """Of the token after `ids`, with a graph of their own length."""
    config, state = model
    graph = look_graph(config, len(ids))
    logits = ei.compile(graph, backend="reference")(state, tokens=np.array([ids], np.int32))["logits"][0, -1]
    grown = np.exp(logits.astype(np.float64) - logits.max())
    return grown / grown.sum()


def by_all_cuts(model, tokenizer, ids, data):
    """P(bytes `data` after `ids`): over each way to cut the first bytes into tokens, and a token that has the rest."""
    total = 0.0
    tokens = {i: tokenizer.token_bytes(i) for i in range(256 + len(tokenizer.merges))}
    for cut in range(len(data)):
        for ways in segmentations(data[:cut], tokens):
            probability, seen = 1.0, list(ids)
            for token in ways:
                probability *= distribution(model, seen)[token]
                seen.append(token)
            last = distribution(model, seen)
            total += probability * sum(last[i] for i, text in tokens.items() if text.startswith(data[cut:]))
    return total


def segmentations(data, tokens):
    if not data:
        return [[]]
    return [
        [token, *rest]
        for token, text in tokens.items()
        if text and data.startswith(text)
        for rest in segmentations(data[len(text) :], tokens)
    ]


@pytest.mark.parametrize("data", [b"t", b"th", b"the", b" the", b"\n\nT", b"\xc3", b"q"])
def test_all_ways_to_cut_the_bytes_are_summed(model, tokenizer, next_bytes, data):
    ids = tokenizer.encode_ordinary("the")
    assert next_bytes.starts_with(tuple(ids), data, {}) == pytest.approx(
        by_all_cuts(model, tokenizer, ids, data), rel=1e-5
    )


def test_single_bytes_and_special_tokens_sum_to_one(model, tokenizer, next_bytes):
    ids = tuple(tokenizer.encode_ordinary("then"))
    total = sum(next_bytes.starts_with(ids, bytes([byte]), {}) for byte in range(256))
    assert total == pytest.approx(1 - distribution(model, ids)[tokenizer.end_of_text_id], rel=1e-6)


def test_longer_texts_share_out_what_the_shorter_has(model, tokenizer, next_bytes):
    ids, known = tuple(tokenizer.encode_ordinary("then")), {}
    longer = sum(next_bytes.starts_with(ids, b"t" + bytes([byte]), known) for byte in range(256))
    special = tokenizer.end_of_text_id
    ended = known[ids][tokenizer.encode_bytes(b"t")[0]] * distribution(model, [*ids, *tokenizer.encode_bytes(b"t")])
    assert longer + ended[special] == pytest.approx(next_bytes.starts_with(ids, b"t", known), rel=1e-6)


def test_the_prefix_is_tokenized_as_before_its_continuation(model, tokenizer, next_bytes):
    """A blank line before a word is two tokens, though alone it might be one: GPT-2 splits it so."""
    ids = tokenizer.encode_ordinary("the\n\nTO")
    given = tokenizer.encode_ordinary("the") + tokenizer.encode_ordinary("\n") * 2
    assert ids[: len(given)] == given
    assert next_bytes.probability("the\n\n", "T") == pytest.approx(
        by_all_cuts(model, tokenizer, given, b"T"), rel=1e-5
    )


def test_a_token_across_the_end_of_the_prefix(model, tokenizer, next_bytes):
    """In `the the` the token ` the` begins within the prefix `the t`: it is given that some token fits ` t`."""
    assert tokenizer.token_bytes(tokenizer.encode_ordinary("the the")[-1]) == b" the"
    given = tokenizer.encode_ordinary("the")
    expected = by_all_cuts(model, tokenizer, given, b" the") / by_all_cuts(model, tokenizer, given, b" t")
    assert next_bytes.probability("the t", "he") == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="'t' ends within its first token"):
        next_bytes.probability("t", "he ")


def test_probes_are_means_over_prefixes_of_sums_over_continuations(next_bytes):
    probe = Probe("p", ("the\n\n", "then\n\n"), ("T", "q", "\nT"))
    pairs = itertools.product(probe.prefixes, probe.continuations)
    assert next_bytes.measure([probe]) == {"p": pytest.approx(sum(next_bytes.probability(*p) for p in pairs) / 2)}


def test_the_weights_are_read_at_each_measure(model, tokenizer):
    config, state = model[0], model[1].copy()
    follows = NextBytes(config, state, tokenizer, backend="reference")
    probe = Probe("p", ("the",), ("t",))
    before = follows.measure([probe])
    state["wte.weight"] *= -1
    assert follows.measure([probe]) != before


def test_characters_are_bytes_too(model):
    tokenizer = CharacterTokenizer("abcdé:\n")
    config = GPT2Config(tokenizer.vocab_size, 8, layers=1, heads=1, width=4)
    state = ei.initial_state(look_graph(config, 1))
    follows = NextBytes(config, state, tokenizer, backend="reference")
    found = distribution((config, state), tokenizer.encode_ordinary("ab"))
    assert follows.probability("ab", "é") == pytest.approx(found[tokenizer.encode_ordinary("é")[0]], rel=1e-6)


@pytest.mark.parametrize(("prefixes", "continuations"), [((), ("a",)), (("a",), ()), (("a",), ("b", ""))])
def test_probes_need_both(prefixes, continuations):
    with pytest.raises(ValueError, match="needs prefixes"):
        Probe("p", prefixes, continuations)


def test_nothing_counts_twice():
    with pytest.raises(ValueError, match="'ab' begins with 'a'"):
        Probe("p", ("x",), ("b", "ab", "a"))
    with pytest.raises(ValueError, match="twice"):
        Probe("p", ("x",), ("a", "a"))


def test_lines_that_say_who_speaks():
    text = "ROMEO:\nBut soft:\nwhat light\n\nKING HENRY:\nA:\nlower:\nMARK 2:\nLAST:"
    share, names = speaker_lines(text)
    assert names == ["ROMEO", "But soft", "KING HENRY"] and share == pytest.approx(3 / 7)
    assert speaker_lines("") == (0.0, [])
