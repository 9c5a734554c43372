"""GPT-2's two files: merges that look like something else, and files that do not belong together."""

import json
import os
import resource

import pytest

from models.tokenizer.bpe import Tokenizer
from models.tokenizer.formats import gpt2_files, load_tokenizer, save_tokenizer
from models.tokenizer.gpt2_vocabulary import CHARACTER_FROM_ID


def write_gpt2_files(folder, merge_text, extra=(), changes=()):
    """A tiny vocabulary in GPT-2's two files."""
    tokens = [*CHARACTER_FROM_ID, *(line.replace(" ", "") for line in merge_text.split("\n")[1:] if line), *extra]
    ids = {token: token_id for token_id, token in enumerate(tokens)} | dict(changes)
    (folder / "encoder.json").write_text(json.dumps(ids), encoding="utf-8")
    (folder / "vocab.bpe").write_text(merge_text, encoding="utf-8", newline="")
    return folder / "encoder.json", folder / "vocab.bpe"


def test_gpt2_files_may_hold_merges_that_start_with_a_hash(tmp_path):
    files = write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a\n", extra=["<|endoftext|>"])
    tokenizer = gpt2_files.read_pair(*files)
    assert [tokenizer.token_bytes(token_id) for token_id in (256, 257, 258)] == [b"##", b" a", b"<|endoftext|>"]
    spelled = ["# v", "#v e", "#ve r", "#ver s", "#vers i", "#versi o", "#versio n", "#version :"]
    with_header_as_merge = write_gpt2_files(tmp_path, "\n".join(["#version: 0.2", *spelled]) + "\n")
    assert gpt2_files.read_pair(*with_header_as_merge).token_bytes(263) == b"#version:"


def test_gpt2_files_may_end_without_a_newline(tmp_path):
    with_last_newline = write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a\n", extra=["<|endoftext|>"])
    tokenizer = gpt2_files.read_pair(*with_last_newline)
    without_last_newline = write_gpt2_files(tmp_path, "#version: 0.2\n# #\nĠ a", extra=["<|endoftext|>"])
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
        gpt2_files.read_pair(*write_gpt2_files(tmp_path, merges, extra, changes))


def test_gpt2_files_given_in_the_wrong_order_are_refused(tmp_path):
    encoder_json, vocab_bpe = write_gpt2_files(tmp_path, "#version: 0.2\na b\n")
    with pytest.raises(ValueError, match="vocab.bpe is not JSON"):
        gpt2_files.read_pair(vocab_bpe, encoder_json)


def test_gpt2_files_that_are_no_vocabulary_are_refused(tmp_path):
    encoder_json, vocab_bpe = write_gpt2_files(tmp_path, "#version: 0.2\na b\n")
    ids = json.loads(encoder_json.read_text())
    encoder_json.write_text(json.dumps({token: token_id for token, token_id in ids.items() if token not in "!\u0100"}))
    with pytest.raises(ValueError, match=r"encoder.json has no token for 2 of the 256 bytes \(0x21, 0x00\)"):
        load_tokenizer(tmp_path)
    vocab_bpe.unlink()
    for path in (tmp_path, encoder_json):
        with pytest.raises(FileNotFoundError, match="neither tokenizer.json nor .*vocab.bpe"):
            load_tokenizer(path)
    with pytest.raises(FileNotFoundError, match="nothing here"):
        load_tokenizer(tmp_path / "nothing here")


def test_a_vocabulary_whose_merges_were_cut_short_is_refused(tmp_path, small_tokenizer):
    save_tokenizer(small_tokenizer, tmp_path, "gpt2")
    lines = (tmp_path / "vocab.bpe").read_bytes().splitlines(keepends=True)
    for kept in (100, 255):
        (tmp_path / "vocab.bpe").write_bytes(b"".join(lines[:kept]))
        with pytest.raises(ValueError, match=r"has no merge that makes it.*cut short"):
            load_tokenizer(tmp_path)


def test_special_tokens_that_look_like_a_merge_can_be_named(tmp_path):
    files = write_gpt2_files(tmp_path, "#version: 0.2\na b\n", extra=["abc"])
    tokenizer = load_tokenizer(files[0], special_tokens=["abc"])
    assert tokenizer.special_tokens == {"abc": 257}


def test_gpt2_files_without_last_newline_or_with_gaps_and_carriage_returns(tmp_path):
    files = write_gpt2_files(tmp_path, "#version: 0.2\r\na b\r\n\u010a a\r\n", (), {"ab": 300, "<s>": 999})
    ids = json.loads(files[0].read_text()) | {"\u010aa": 301}
    files[0].write_text(json.dumps({token: token_id for token, token_id in ids.items() if not token.endswith("\r")}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("ab\nab<s>", allowed_special="all") == [300, 198, 300, 999]
    assert tokenizer.encode("\na") == [198, 64] and tokenizer.encode_ordinary("x\na") == [87, 198, 64]
    assert tokenizer.vocab_size == 1000 and tokenizer.byte_lengths[999] == 3 and tokenizer.byte_lengths[998] == 0
    with pytest.raises(ValueError, match="998 is not in this vocabulary"):
        tokenizer.decode([998])


def test_absurd_ids_and_special_tokens_name_the_file(tmp_path):
    files = write_gpt2_files(tmp_path, "#version: 0.2\na b\n", (), {"<s>": 10**12})
    with pytest.raises(ValueError, match=r"encoder\.json: The token id 1000000000000 is not an integer from 0 to"):
        load_tokenizer(files[0])
    write_gpt2_files(tmp_path, "#version: 0.2\na b\n", (), {"\ud800": 300})
    with pytest.raises(ValueError, match=r"encoder\.json: Special token '\\ud800'"):
        load_tokenizer(files[0])
    save_tokenizer(Tokenizer([]), tmp_path / "x.tiktoken", "tiktoken")
    with pytest.raises(ValueError, match=r"x\.tiktoken: Special token '<s>' cannot have the id 7"):
        load_tokenizer(tmp_path / "x.tiktoken", {"<s>": 7}, "gpt2")


def test_added_tokens_beside_the_two_files_are_read(tmp_path, small_tokenizer):
    gpt2_files.write(small_tokenizer, tmp_path, gpt2_files.NAMES[1])
    (tmp_path / "added_tokens.json").write_text('{"<|user|>": 513, "hello world": 512}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_tokens == {"<|endoftext|>": 511, "hello world": 512, "<|user|>": 513}
    (tmp_path / "added_tokens.json").write_text('{"<|user|>": 7}')
    with pytest.raises(ValueError, match="the same id 7"):
        load_tokenizer(tmp_path)


def test_two_files_are_kept_when_one_cannot_be_written(tmp_path, monkeypatch, small_tokenizer):
    save_tokenizer(small_tokenizer, tmp_path, "gpt2")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        save_tokenizer(Tokenizer([]), tmp_path, "gpt2")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_full_disk_keeps_both_files(tmp_path, small_tokenizer):
    files = [tmp_path / name for name in gpt2_files.NAMES[0]]
    for file in files:
        file.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # There is room for the merges, not for the ids, which wait in a buffer.
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            gpt2_files.write(small_tokenizer, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.read_text() for file in files] == ["old", "old"]
