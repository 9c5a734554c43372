"""Tokenizers as files: what holds for every format, and this program's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizer_kinds import TEXT, path_for, tokenizers_of_many_kinds

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import FORMATS, load_tokenizer, save_tokenizer


def test_saving_and_loading_changes_nothing(tmp_path, gpt2, small_tokenizer):
    for tokenizer in (gpt2, small_tokenizer):
        path = tmp_path / "tokenizer.json"
        save_tokenizer(tokenizer, path)
        loaded = load_tokenizer(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert (loaded.merges, loaded.special_tokens) == (tokenizer.merges, tokenizer.special_tokens)
        assert path.read_bytes().isascii() and b"\r" not in path.read_bytes()
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("format", ["native", "huggingface"])
def test_what_is_said_of_a_file_must_be_so(tmp_path, small_tokenizer, format):
    save_tokenizer(small_tokenizer, tmp_path / "a.json", format)
    with pytest.raises(ValueError, match=r"a.json has the special tokens \['<\|endoftext\|>'\], not \['<x>'\]"):
        load_tokenizer(tmp_path / "a.json", special_tokens=["<x>"])
    with pytest.raises(ValueError, match="not by 'cl100k'"):
        load_tokenizer(tmp_path / "a.json", pattern="cl100k")


def test_fingerprints_differ_whenever_encoding_does(small_tokenizer):
    merges, specials = small_tokenizer.merges, list(small_tokenizer.special_tokens)
    different = [
        Tokenizer(merges[:-1], specials), Tokenizer(merges, []), Tokenizer(merges, ["<|x|>"]),
        Tokenizer([merges[1], merges[0], *merges[2:]], specials), small_tokenizer,
        Tokenizer(merges, {specials[0]: 999}), Tokenizer(merges, specials, range(1, 257 + len(merges))),
    ]  # fmt: skip
    assert len({tokenizer.fingerprint for tokenizer in different}) == len(different)
    assert Tokenizer(merges, specials).fingerprint == small_tokenizer.fingerprint


def test_files_that_are_not_sound_tokenizers_are_refused(tmp_path, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError):
        load_tokenizer(path)
    save_tokenizer(small_tokenizer, path)
    sound = json.loads(path.read_text())
    for changes, message in (
        ({"version": 2}, "version 2"),
        ({"unicode": "17.0"}, "Unicode 17.0"),
        ({"merges": sound["merges"][:-1]}, "checksum"),
        ({"special_tokens": ["<|other|>"]}, "checksum"),
        ({"merges": None}, "checksum"),
    ):
        path.write_text(json.dumps({**sound, **changes}))
        with pytest.raises(ValueError, match=message):
            load_tokenizer(path)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_tokenizer(small_tokenizer, path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="folder .* does not exist"):
        save_tokenizer(small_tokenizer, tmp_path / "missing" / "tokenizer.json")


@pytest.mark.parametrize("kind", tokenizers_of_many_kinds())
@pytest.mark.parametrize("format", FORMATS)
def test_round_trips_change_nothing(tmp_path, format, kind):
    tokenizer = tokenizers_of_many_kinds()[kind]
    save_tokenizer(tokenizer, path_for(tmp_path, format), format)
    loaded = load_tokenizer(path_for(tmp_path, format), tokenizer.special_tokens, "gpt2")
    assert loaded.fingerprint == tokenizer.fingerprint
    text = TEXT + "".join(tokenizer.special_tokens)
    assert loaded.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("format", FORMATS)
def test_gpt2_itself_goes_through_every_format(tmp_path, gpt2, format):
    save_tokenizer(gpt2, path_for(tmp_path, format), format)
    assert load_tokenizer(path_for(tmp_path, format), gpt2.special_tokens, "gpt2").fingerprint == gpt2.fingerprint


@pytest.mark.parametrize("format", FORMATS)
def test_text_formats_hold_only_line_feeds_and_utf8_under_any_locale(tmp_path, format):
    tokenizer = tokenizers_of_many_kinds()["odd special tokens"].with_special_tokens(["é你"])
    save_tokenizer(tokenizer, path_for(tmp_path, format), format)
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert b"\r" not in data and data.decode("utf-8")


def test_a_locale_that_is_not_utf8_changes_nothing(tmp_path):
    program = (
        "from models.tokenizer.bpe import Tokenizer; from models.tokenizer.formats import *;"
        "tokenizer = Tokenizer.train('n\\xe9 ' * 9, 260, ['\\xe9\\u4f60']);"
        "paths = {'native': 'a.json', 'huggingface': 'b.json', 'gpt2': '.', 'tiktoken': 'c.tiktoken'};"
        "[save_tokenizer(tokenizer, path, format) for format, path in paths.items()];"
        "loaded = [load_tokenizer(path, tokenizer.special_tokens, 'gpt2') for path in paths.values()];"
        "print({other.fingerprint for other in loaded} == {tokenizer.fingerprint})"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment = {**os.environ, **locale, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program]
    finished = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8")
    assert (finished.stdout, finished.stderr) == ("True\n", "")


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    twice = Tokenizer([(0, 1), (1, 2), (256, 2), (0, 257)])
    for format in ("gpt2", "huggingface", "tiktoken"):
        with pytest.raises(ValueError, match="same bytes"):
            save_tokenizer(twice, path_for(tmp_path, format), format)
    backwards = Tokenizer([(0, 1), (1, 2)], [], [*range(256), 257, 256])
    with pytest.raises(ValueError, match="not in the order of its merges"):
        save_tokenizer(backwards, tmp_path / "x.tiktoken", "tiktoken")
    ambiguous = Tokenizer([(0, 1)], ['!"'])
    for format in ("gpt2", "huggingface"):
        with pytest.raises(ValueError, match="special token and an ordinary one"):
            save_tokenizer(ambiguous, path_for(tmp_path, format), format)
    with pytest.raises(ValueError, match="no tokenizer format 'pickle'. The formats are native, gpt2"):
        save_tokenizer(backwards, tmp_path / "x", "pickle")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file_in_every_format(tmp_path, monkeypatch, small_tokenizer):
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for format in FORMATS:
        with pytest.raises(OSError, match="No space left"):
            save_tokenizer(small_tokenizer, path_for(tmp_path, format), format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[1]", b"7", b"null", b"{", b'{"merges": []}', b"[" * 200_000, b'{"model": 7}', b"\0" * 100],
)
@pytest.mark.parametrize("name", ["tokenizer.json", "encoder.json", "vocab.json", "x.tiktoken"])
def test_no_content_is_more_than_a_line_of_error(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for other in ("vocab.bpe", "merges.txt"):
        (tmp_path / other).write_bytes(b"#version: 0.2\n")
    with pytest.raises(ValueError, match=name.split(".")[0]) as raised:
        load_tokenizer(tmp_path / name, [], "gpt2")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
