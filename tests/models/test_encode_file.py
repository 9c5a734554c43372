"""Files of text to token files: the ids of the whole text, however it is cut, and all of them or none."""

import io
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import models.data.text_files
from models.data.text_files import encode_file, text_blocks
from models.data.token_files import HEADER, read_token_file
from models.files import replacing
from models.tokenizer.bpe import Tokenizer
from models.tokenizer.characters import CharacterTokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tiny_blocks(monkeypatch):
    monkeypatch.setattr(models.data.text_files, "BLOCK_BYTES", 7)
    monkeypatch.setattr(models.data.text_files, "SHORTEST_SEARCH", 3)


def test_a_file_holds_what_tiktoken_says(tmp_path, gpt2, reference, corpus):
    source = tmp_path / "text.txt"
    source.write_bytes(corpus.encode())
    count = encode_file(gpt2, source, tmp_path / "text.tokens")
    tokens = read_token_file(tmp_path / "text.tokens", gpt2)
    assert count == len(tokens)
    assert np.array_equal(tokens, reference.encode_ordinary(corpus))


def test_line_ends_nul_byte_order_marks_and_bad_bytes_survive(tmp_path, gpt2):
    data = b"\xef\xbb\xbfa\r\n\r\nb\0c\r\xff\xfe d\xe4\xbd\n"
    (tmp_path / "a.txt").write_bytes(data)
    encode_file(gpt2, tmp_path / "a.txt", tmp_path / "a.tokens")
    tokens = read_token_file(tmp_path / "a.tokens", gpt2)
    assert gpt2.decode_bytes(tokens) == data
    assert tokens.tolist() == gpt2.encode_bytes(data)


PARTS = [
    *(b" ", b"\n", b"a", b"'s", b"ab cd", "é你".encode(), "\u2003".encode(), "\xa0  a".encode()), "\u2003  a".encode(),
    *(b"\xff", b"\xe4\xbd", b"\xa0", b"\xe2\x80", b"<|", b"|>", b"<|a b|>", b"<|a", b" b|>x"),
]


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=40))
def test_cutting_into_blocks_changes_no_id(parts):
    text = "ab cd <|a b|> é你's" + "a\xa0  a\u2003  a  \n  a\n \xa0" * 9
    tokenizer = Tokenizer.train(text, 300, ["<|a b|>", "<|a b|>x", "|> <|", "|>\n", "ab "])
    data = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models.data.text_files, "BLOCK_BYTES", 3)
        patch.setattr(models.data.text_files, "SHORTEST_SEARCH", 2)
        blocks = list(text_blocks(io.BytesIO(data), tokenizer.special_tokens))
    assert b"".join(blocks) == data
    ids = [token_id for block in blocks for token_id in tokenizer.encode(block, allowed_special="all")]
    assert ids == tokenizer.encode(data, allowed_special="all")


def test_blocks_stay_small_where_the_text_can_be_cut(tiny_blocks, corpus):
    data = corpus[:5000].encode()
    assert max(map(len, text_blocks(io.BytesIO(data)))) < 80
    chinese = "你好，世界。\n" * 500
    assert max(map(len, text_blocks(io.BytesIO(chinese.encode())))) < 60


@pytest.mark.usefixtures("tiny_blocks")
def test_a_file_without_a_place_to_cut_is_searched_once(monkeypatch):
    searched = []

    class Counted:
        def finditer(self, data, start, end):
            searched.append(end - start)
            return iter(())

    monkeypatch.setattr(models.data.text_files, "_safe_cut", Counted)

    def bytes_searched(length):
        searched.clear()
        assert list(text_blocks(io.BytesIO(b"x" * length), ["<|x|>"])) == [b"x" * length]
        return sum(searched)

    # Of the 7 bytes of a block, the last 3 are searched first, and then all.
    assert 990 <= bytes_searched(1_000) <= 1_000 * (3 + 7) / 7
    assert bytes_searched(4_000) < 4.1 * bytes_searched(1_000)


def test_separators_stand_between_files(tmp_path, small_tokenizer):
    names = ["one", "empty", "two"]
    for name, text in zip(names, ("first\n", "", "second\n"), strict=True):
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in names]
    end = small_tokenizer.end_of_text_id
    encode_file(small_tokenizer, paths, tmp_path / "all", separator="<|endoftext|>")
    expected = [*small_tokenizer.encode("first\n"), end, end, *small_tokenizer.encode("second\n")]
    assert read_token_file(tmp_path / "all", small_tokenizer).tolist() == expected
    encode_file(small_tokenizer, paths, tmp_path / "all")
    joined = [*small_tokenizer.encode("first\n"), *small_tokenizer.encode("second\n")]
    assert read_token_file(tmp_path / "all", small_tokenizer).tolist() == joined
    with pytest.raises(ValueError, match="separator '<x>' is not a special token"):
        encode_file(small_tokenizer, paths, tmp_path / "all", separator="<x>")


@pytest.mark.usefixtures("tiny_blocks")
def test_special_tokens_in_a_file_need_permission(tmp_path, small_tokenizer):
    source, destination = tmp_path / "a.txt", tmp_path / "a.tokens"
    text = "one\ntwo\nthree <|endoftext|> four\n"
    source.write_text(text)
    with pytest.raises(ValueError, match=r"a\.txt, line 3 or after: The text contains the special token '<\|endof"):
        encode_file(small_tokenizer, source, destination)
    assert not destination.exists() and list(tmp_path.iterdir()) == [source]
    encode_file(small_tokenizer, source, destination, allowed_special="all")
    ids = read_token_file(destination, small_tokenizer).tolist()
    assert ids == small_tokenizer.encode(text, allowed_special="all") and small_tokenizer.end_of_text_id in ids
    encode_file(small_tokenizer, source, destination, disallowed_special=())
    assert read_token_file(destination, small_tokenizer).tolist() == small_tokenizer.encode_ordinary(text)
    with pytest.raises(ValueError, match="'two"):
        encode_file(small_tokenizer, source, destination, disallowed_special={"two\nthree"})


def test_the_width_of_ids_follows_the_vocabulary(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    large = Tokenizer([], {"<|endoftext|>": 65_536})
    for tokenizer, width in ((Tokenizer([]), 2), (large, 4), (CharacterTokenizer.train("abc"), 2)):
        encode_file(tokenizer, tmp_path / "a.txt", tmp_path / "a.tokens")
        assert (tmp_path / "a.tokens").stat().st_size == HEADER.size + 3 * width
        assert read_token_file(tmp_path / "a.tokens", tokenizer).tolist() == tokenizer.encode("abc")


def test_errors_leave_the_old_file(tmp_path, monkeypatch, small_tokenizer):
    source, destination = tmp_path / "a.txt", tmp_path / "a.tokens"
    destination.write_bytes(b"old")
    source.write_text("text " * 1000)
    with pytest.raises(FileNotFoundError, match="missing.txt"):
        encode_file(small_tokenizer, [source, tmp_path / "missing.txt"], destination)
    with pytest.raises(IsADirectoryError):
        encode_file(small_tokenizer, [source, tmp_path], destination)
    with pytest.raises(ValueError, match="no file to encode"):
        encode_file(small_tokenizer, [], destination)
    with pytest.raises(ValueError, match="is a source and the destination"):
        encode_file(small_tokenizer, source, tmp_path / "." / "a.txt")
    with pytest.raises(FileNotFoundError, match="folder .* does not exist"):
        encode_file(small_tokenizer, source, tmp_path / "no" / "a.tokens")
    with pytest.raises(ValueError, match="'z'"):
        (tmp_path / "x.txt").write_text("z")
        encode_file(CharacterTokenizer.train("text "), [source, tmp_path / "x.txt", tmp_path / "b.txt"], destination)
    monkeypatch.setattr(os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        encode_file(small_tokenizer, source, destination)
    assert destination.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*"))


def test_a_pipe_can_be_read_but_is_no_place_for_a_file(tmp_path, small_tokenizer):
    pipe, destination = tmp_path / "pipe", tmp_path / "a.tokens"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is a device or a pipe"):
        encode_file(small_tokenizer, __file__, pipe)
    assert pipe.is_fifo() and not list(tmp_path.glob(".*"))
    writer = threading.Thread(target=pipe.write_bytes, args=(b"text through a pipe",))
    writer.start()
    encode_file(small_tokenizer, pipe, destination)
    writer.join()
    assert small_tokenizer.decode(read_token_file(destination, small_tokenizer)) == "text through a pipe"


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, small_tokenizer):
    source, destination = tmp_path / "a.txt", tmp_path / "a.tokens"
    source.write_bytes(b"text " * 1000)
    cut = models.data.text_files.text_blocks

    def cut_and_written_to(file, special_tokens):
        yield from cut(file, special_tokens)
        with open(source, "ab") as other:
            other.write(b"more")

    monkeypatch.setattr(models.data.text_files, "text_blocks", cut_and_written_to)
    with pytest.raises(ValueError, match="a.txt was changed while it was read"):
        encode_file(small_tokenizer, source, destination)
    assert not destination.exists()


def test_two_threads_may_write_one_file(tmp_path, small_tokenizer):
    # Each waits for the other while both have their file open.
    together = threading.Barrier(2, timeout=60)

    def write(byte):
        with replacing(tmp_path / "a") as file:
            file.write(byte * 1000)
            together.wait()
            file.write(byte * 1000)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [b"a", b"b"]))
    assert (tmp_path / "a").read_bytes() in (b"a" * 2000, b"b" * 2000)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process by the means of Linux")
def test_a_file_larger_than_the_memory_it_may_use(tmp_path):
    """One process may take 40 MB more than it has after loading, for a file of 60 MB and its 15 million tokens."""
    words = random.Random(3).choices([b"alpha ", b"beta\n", b"gamma ", b"delta, "], k=100_000)
    data = b"".join(words)
    with open(tmp_path / "large.txt", "wb") as file:
        for _ in range(60_000_000 // len(data)):
            file.write(data)
    program = (
        "import resource; from models.tokenizer.bpe import Tokenizer; from models.data.text_files import encode_file;"
        "tokenizer = Tokenizer.train('alpha beta gamma delta ' * 9, 300);"
        "encode_file(tokenizer, 'small.txt', 'small.tokens');"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "encode_file(tokenizer, 'large.txt', 'large.tokens');"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    (tmp_path / "small.txt").write_bytes(data)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert int(result.stdout) < 40_000
