"""A model that is looked into: its parts are found from its structure, and wrong input is said."""

import numpy as np
import pytest

from models.interpretability.structure import attention_results, embedded_tokens, residual_stream
from models.interpretability.subject import Subject


def test_parts_are_found(subject):
    graph = subject.graph(5)
    first, additions = residual_stream(graph)
    assert first.name == "x.add"
    assert [addition.label for addition in additions] == ["h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp"]
    assert [addition.after.shape for addition in additions] == [(1, 5, 24)] * 4
    assert [value.op.scope for value in attention_results(graph)] == ["h.0.attn", "h.1.attn"]
    assert embedded_tokens(graph).shape == (1, 5, 24)
    assert subject.blocks() == ["h.0", "h.1"]


def test_weights_are_a_copy_and_must_be_whole(subject, micro_weights):
    given = {name: array.copy() for name, array in micro_weights.items()}
    other = Subject(subject.config, given, subject.tokenizer)
    other.state["ln_f.bias"][0] = 9
    assert given["ln_f.bias"][0] == micro_weights["ln_f.bias"][0]
    del given["h.1.ln_2.bias"]
    given["ln_f.weight"] = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"1 missing: h.1.ln_2.bias; 1 misshaped: ln_f.weight"):
        Subject(subject.config, given, subject.tokenizer)


def test_texts_that_do_not_fit_are_said(subject):
    with pytest.raises(ValueError, match="empty"):
        subject.ids("")
    with pytest.raises(ValueError, match="33 tokens, more than the 32"):
        subject.ids("x" * 33)
    with pytest.raises(ValueError, match="33 tokens are not between 1 and the 32"):
        subject.graph(33)
    with pytest.raises(ValueError, match="'ab' is not one token of this model; its tokens are: 'a' 'b'"):
        subject.id_of("ab")


def test_tokens_are_shown_as_a_person_reads_them(subject):
    shown = [subject.shown(subject.tokenizer.encode_bytes(data)[0]) for data in (b"a", b"\n", b"\xc3")]
    assert shown == ["'a'", r"'\n'", r"b'\xc3'"]
    assert subject.shown(256) == "'<|endoftext|>'" and subject.shown(259) == "#259"
