"""Tokenizers as files: what is written here others read, and the other way round; what is not sound is refused."""

import base64
import json
import os

import pytest
import tiktoken
from conftest import GPT2_FILES, GPT2_PATTERN
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, trainers
from tokenizers import models as hf_models
from tokenizers import pre_tokenizers as hf_pre_tokenizers

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.formats import FORMATS, gpt2_files, load_tokenizer, save_tokenizer
from models.tokenizer.gpt2_vocabulary import CHARACTER_FROM_ID

TEXT = "It's  a\r\n\ttest of Ünïcode 你好 😀 \0 and \x85 numbers 12345, don't you'LL\n\n  "

# --- This program's own format ---


def test_saving_and_loading_changes_nothing(tmp_path, gpt2, small_tokenizer):
    for tokenizer in (gpt2, small_tokenizer):
        path = tmp_path / "tokenizer.json"
        save_tokenizer(tokenizer, path)
        loaded = load_tokenizer(path)
        assert loaded.fingerprint == tokenizer.fingerprint
        assert (loaded.merges, loaded.special_tokens) == (tokenizer.merges, tokenizer.special_tokens)
        assert path.read_bytes().isascii() and b"\r" not in path.read_bytes()
        assert list(tmp_path.iterdir()) == [path]


def test_fingerprints_differ_whenever_encoding_does(small_tokenizer):
    merges, specials = small_tokenizer.merges, list(small_tokenizer.special_tokens)
    different = [
        Tokenizer(merges[:-1], specials), Tokenizer(merges, []), Tokenizer(merges, ["<|x|>"]),
        Tokenizer([merges[1], merges[0], *merges[2:]], specials), small_tokenizer,
    ]  # fmt: skip
    assert len({tokenizer.fingerprint for tokenizer in different}) == len(different)
    assert Tokenizer(merges, specials).fingerprint == small_tokenizer.fingerprint


def test_files_that_are_not_sound_tokenizers_are_refused(tmp_path, small_tokenizer):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError):
        load_tokenizer(path)
    for content in (b"", b"\xff\xfe", b"[1]", b"7", b'{"merges": []}', b"{"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a tokenizer file"):
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


def _write_gpt2_files(folder, merge_text, extra=(), changes=()):
    """A tiny vocabulary in GPT-2's two files."""
    tokens = [*CHARACTER_FROM_ID, *(line.replace(" ", "") for line in merge_text.split("\n")[1:] if line), *extra]
    ids = {token: token_id for token_id, token in enumerate(tokens)} | dict(changes)
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "vocab.bpe").write_text(merge_text, encoding="utf-8", newline="")
    return folder / "encoder.json", folder / "vocab.bpe"


def test_gpt2_files_may_hold_merges_that_start_with_a_hash(tmp_path):
    files = _write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a\n", extra=["<|endoftext|>"])
    tokenizer = gpt2_files.read_pair(*files)
    assert [tokenizer.token_bytes(token_id) for token_id in (256, 257, 258)] == [b"##", b" a", b"<|endoftext|>"]
    without_last_newline = _write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a", extra=["<|endoftext|>"])
    assert gpt2_files.read_pair(*without_last_newline).fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize(
    ("merges", "extra", "changes", "message"),
    [
        ("#version: 0.2\na b c\n", (), (), "line 2"),
        ("#version: 0.2\na bc\n", (), (), "line 2"),
        ("#version: 0.2\na b\nb c\na b\n", (), (), "line 4: 'a' 'b' makes 'ab', as a merge before it does"),
        ("#version: 0.2\na b\n\nc d\n", (), (), "line 3"),
        ("#version: 0.2\na b\n", (), {"ab": 7}, "'ab' and '\\(' the same id 7"),
        ("#version: 0.2\na b\n", (), {"ab": "x"}, "'ab' the id 'x'"),
        ("#version: 0.2\na b\n", (), {"ab": True}, "'ab' the id True"),
        ("#version: 0.2\na b\n", (), {"<s>": -1}, "'<s>' the id -1"),
        ("#version: 0.2\na b\n", ("abc",), (), r"'abc' \(id 257\), but .*vocab.bpe has no merge .* 'ab c'"),
    ],
)
def test_gpt2_files_that_disagree_are_refused(tmp_path, merges, extra, changes, message):
    with pytest.raises(ValueError, match=message):
        gpt2_files.read_pair(*_write_gpt2_files(tmp_path, merges, extra, changes))


def test_gpt2_files_given_in_the_wrong_order_are_refused(tmp_path):
    encoder_json, vocab_bpe = _write_gpt2_files(tmp_path, "#version: 0.2\na b\n")
    with pytest.raises(ValueError, match="vocab.bpe is not JSON"):
        gpt2_files.read_pair(vocab_bpe, encoder_json)
