import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.token_files import read_token_file, write_token_file
from models.gpt2 import GPT2Config
from models.tokenizer.bpe import StreamDecoder, Tokenizer
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer
from models.training.checkpoint import Checkpoint


def test_ids_are_nanogpts(corpus):
    """nanoGPT numbers the characters in sorted order: `stoi = {ch: i for i, ch in enumerate(sorted(set(data)))}`."""
    number = {character: index for index, character in enumerate(sorted(set(corpus)))}
    tokenizer = CharacterTokenizer.train(corpus)
    assert tokenizer.vocab_size == len(number)
    ids = tokenizer.encode_to_numpy(corpus)
    assert ids.dtype == np.int32 and ids.tolist() == [number[character] for character in corpus]
    assert tokenizer.decode(ids) == corpus


@given(text=st.text(min_size=1))
def test_every_text_of_known_characters_survives(text):
    tokenizer = CharacterTokenizer.train(text + "\ufffd")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text) and tokenizer.decode(ids) == text
    decoder = StreamDecoder(tokenizer)
    assert "".join(map(decoder.push, ids)) + decoder.finish() == text


def test_unknown_characters_are_listed():
    tokenizer = CharacterTokenizer.train("hello")
    with pytest.raises(ValueError, match=r"3 characters that are not among the 4 of this vocabulary: '\\n', 'é', '你'\."):
        tokenizer.encode("hell你o\né\n")
    with pytest.raises(ValueError, match=r"100 characters .*'Ā', .*, \.\.\.\. Leave them out"):
        tokenizer.encode("".join(map(chr, range(256, 356))))
    with pytest.raises(ValueError, match="'z'"):
        tokenizer.encode("z")
    assert tokenizer.encode("") == []


def test_special_tokens_follow_the_characters_and_are_not_characters():
    tokenizer = CharacterTokenizer.train("ba<|endoftext|>c", ["<|endoftext|>"])
    assert tokenizer.characters == "abc" and tokenizer.special_tokens == {"<|endoftext|>": 3}
    assert tokenizer.encode("c<|endoftext|>a", allowed_special="all") == [2, 3, 0]
    with pytest.raises(ValueError, match="special token"):
        tokenizer.encode("<|endoftext|>")
    more = tokenizer.with_special_tokens(["<|end|>", "<|endoftext|>"])
    assert more.special_tokens == {"<|endoftext|>": 3, "<|end|>": 4}
    assert more.encode("abc") == [0, 1, 2] and more.fingerprint != tokenizer.fingerprint


def test_bytes_that_are_not_utf8_are_characters():
    tokenizer = CharacterTokenizer.train(b"a\xff\xfe")
    assert tokenizer.decode_bytes(tokenizer.encode_bytes(b"\xff\xfea")) == b"\xff\xfea"


@pytest.mark.parametrize("text", ["", b"", "<|x|>"])
def test_a_text_without_characters_is_refused(text):
    with pytest.raises(ValueError, match="at least one"):
        CharacterTokenizer.train(text, ["<|x|>"])


def test_files_and_checkpoints_keep_it(tmp_path):
    tokenizer = CharacterTokenizer.train("né 你好 😀", ["<|endoftext|>"])
    save_tokenizer(tokenizer, tmp_path / "tokenizer.json")
    Checkpoint({}, GPT2Config(16, 8, 1, 1, 8), tokenizer, 0, {}, {}).save(tmp_path / "checkpoint.safetensors")
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    kept = Checkpoint.load(tmp_path / "checkpoint.safetensors").tokenizer
    for other in (loaded, kept):
        assert isinstance(other, CharacterTokenizer) and other.fingerprint == tokenizer.fingerprint
        assert other.encode("好 né") == tokenizer.encode("好 né")
    with pytest.raises(ValueError, match="byte-level BPE only"):
        save_tokenizer(tokenizer, tmp_path / "merges", "gpt2")

    document = json.loads((tmp_path / "tokenizer.json").read_text())
    for changes in ({"characters": "abc"}, {"characters": None}, {"special_tokens": []}, {"characters": ""}):
        (tmp_path / "tokenizer.json").write_text(json.dumps(document | changes))
        with pytest.raises(ValueError, match="checksum"):
            load_tokenizer(tmp_path / "tokenizer.json")


def test_token_files_know_which_tokenizer_wrote_them(tmp_path):
    tokenizer = CharacterTokenizer.train("abc")
    write_token_file(tmp_path / "a.tokens", tokenizer.encode_to_numpy("cab"), tokenizer)
    assert read_token_file(tmp_path / "a.tokens", tokenizer).tolist() == [2, 0, 1]
    for other in (CharacterTokenizer.train("abd"), Tokenizer([])):
        with pytest.raises(ValueError, match="another tokenizer"):
            read_token_file(tmp_path / "a.tokens", other)
