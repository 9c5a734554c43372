"""tiktoken's files: tiktoken reads ours, and we read what says how text is split and has sound merges."""

import base64

import pytest
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tiktoken_ext.openai_public import r50k_pat_str
from tokenizer_kinds import TEXT, tokenizers_of_many_kinds

from models.tokenizer.formats import load_tokenizer, save_tokenizer


@pytest.mark.parametrize("kind", tokenizers_of_many_kinds())
def test_tiktoken_reads_what_is_written(tmp_path, reference, kind):
    tokenizer = tokenizers_of_many_kinds()[kind]
    path = tmp_path / "vocabulary.tiktoken"
    save_tokenizer(tokenizer, path, "tiktoken")
    theirs = tiktoken.Encoding(
        "x",
        pat_str=reference._pat_str,
        mergeable_ranks=load_tiktoken_bpe(str(path)),
        special_tokens=tokenizer.special_tokens,
    )
    assert theirs.encode_ordinary(TEXT * 2) == tokenizer.encode_ordinary(TEXT * 2)
    separate = " ".join(text for text in tokenizer.special_tokens if not text.startswith("<|a|>"))
    assert theirs.encode(separate, allowed_special="all") == tokenizer.encode(separate, allowed_special="all")


def test_a_tiktoken_file_is_read_only_with_pattern_and_special_tokens(tmp_path, reference, small_tokenizer):
    path = tmp_path / "vocabulary.tiktoken"
    save_tokenizer(small_tokenizer, path, "tiktoken")
    for missing in ({}, {"pattern": "gpt2"}, {"special_tokens": []}):
        with pytest.raises(ValueError, match="Give both"):
            load_tokenizer(path, **missing)
    with pytest.raises(ValueError, match=r"not by '\\\\S\+'"):
        load_tokenizer(path, [], r"\S+")
    for pattern in ("gpt2", reference._pat_str, r50k_pat_str):
        assert load_tokenizer(path, ["<|endoftext|>"], pattern).fingerprint == small_tokenizer.fingerprint


def encoded(token):
    return base64.b64encode(token)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"YWI= x", "line 257: 'YWI= x' should be a token in base64"),
        (b"YWI=", "line 257"),
        (b"YW?= 256", "line 257"),
        (b"YWI= 256 7", "line 257"),
        (b" 256", "line 257: the token is empty"),
        (b"\xff 256", "line 257: '..xff 256'"),
        (encoded(b"abc") + b" 256", r"line 257: b'abc' encodes to 3 tokens of lower rank"),
        (encoded(b"a") + b" 256", "line 257: the token b'a' stands here and in .* line 98"),
        (encoded(b"ab") + b" 97", "the same id 97"),
        (encoded(b"ab") + b" -1", "the id -1"),
    ],
)
def test_broken_tiktoken_files_are_refused_by_line(tmp_path, line, message):
    path = tmp_path / "broken.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (encoded(bytes([byte])), byte) for byte in range(256)) + line + b"\n")
    with pytest.raises(ValueError, match=message):
        load_tokenizer(path, [], "gpt2")


def test_a_tiktoken_file_without_a_byte_is_refused(tmp_path):
    (tmp_path / "x.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(ValueError, match="no token for 255 of the 256 bytes, such as 0x00"):
        load_tokenizer(tmp_path / "x.tiktoken", [], "gpt2")


def test_every_token_of_a_tiktoken_file_encodes_to_itself(tmp_path, gpt2, reference):
    path = tmp_path / "gpt2.tiktoken"
    lines = [b"%s %d\n" % (encoded(token), rank) for token, rank in reference._mergeable_ranks.items()]
    path.write_bytes(b"".join(sorted(lines)))
    tokenizer = load_tokenizer(path, {"<|endoftext|>": 50256}, "gpt2")
    assert tokenizer.fingerprint == gpt2.fingerprint
