"""Stop strings: the text is cut before the first one, whatever tokens it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.generation.stopping import StopStrings, TextStream
from models.tokenizer.bpe import Tokenizer

TEXTS = st.text("abñ🙂", max_size=12)


def shown(stops, parts):
    stream = StopStrings(stops)
    return "".join(map(stream.push, parts)) + stream.finish(), stream.stopped


def cut(text, stops):
    """The definition: of all beginnings of the text the shortest that ends with a stop string, without the longest."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


@given(st.lists(TEXTS, max_size=6), st.lists(TEXTS.filter(bool), max_size=3))
def test_the_text_ends_before_the_first_stop_string_however_it_is_cut_into_parts(parts, stops):
    assert shown(stops, parts) == cut("".join(parts), stops)


@given(TEXTS, st.lists(TEXTS.filter(bool), max_size=3))
def test_what_is_held_back_is_exactly_what_may_still_begin_a_stop_string(text, stops):
    stream = StopStrings(stops)
    given = "".join(map(stream.push, text))
    if stream.stopped:
        return
    ends = [text[start:] for start in range(len(text))]
    beginnings = [end for end in ends if any(stop.startswith(end) for stop in stops)]
    assert text[len(given) :] == max(beginnings, key=len, default="")


def ids_of(text):
    return Tokenizer([]).encode_bytes(text.encode())


@pytest.mark.parametrize(
    ("stop", "pieces"),
    [
        (["🙂"], ["x", "", "", "", ""]),
        (["🙂y"], ["x", "", "", "", "", ""]),
        (["x🙂z"], ["", "", "", "", "", "x🙂y"]),
        (["🙃"], ["x", "", "", "", "🙂", "y"]),
    ],
)
def test_half_characters_are_neither_shown_nor_taken_for_others(stop, pieces):
    stream = TextStream(Tokenizer([]), stop)
    found = []
    for token_id in ids_of("x🙂y"):
        found.append(stream.push(token_id))
        if stream.stopped:
            break
    assert found == pieces


def test_what_is_held_back_comes_at_the_end():
    stream = TextStream(Tokenizer([]), ["end."])
    pieces = [stream.push(token_id) for token_id in ids_of("the end")]
    assert "".join(pieces) == "the " and stream.finish() == "end" and stream.finish() == ""
    stream = TextStream(Tokenizer([]), ["end."])
    assert [stream.push(token_id) for token_id in ids_of("é")[:1]] == [""] and stream.finish() == "\ufffd"


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="stop string is empty"):
        StopStrings(["a", ""])
