import struct

import numpy as np
import pytest

import models.data.token_files
from models.data.batches import IGNORED_LABEL, Batches, validation_windows
from models.data.corpus import read_corpus, split_corpus
from models.data.sources import Source
from models.data.token_files import HEADER, check_token_ids, is_token_file, read_token_file, write_token_file
from models.tokenizer.bpe import Tokenizer


@pytest.fixture(scope="module")
def large_tokenizer():
    """More than 65,536 ids, so that they do not fit in 16 bits."""
    return Tokenizer([divmod(index, 256) for index in range(65_300)])


# --- Reading and splitting text ---


def test_text_is_read_as_it_is(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffone\r\ntwo\rthree\n你好".encode())
    assert read_corpus(path) == "\ufeffone\r\ntwo\rthree\n你好"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"ab\0cd", "NUL byte at offset 2"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"abc\xff", "not UTF-8 text: invalid byte at offset 3"),
        ("caf\xe9".encode("latin-1"), "Save it as UTF-8"),
    ],
)
def test_files_that_are_not_text_are_refused(tmp_path, content, message):
    path = tmp_path / "corpus.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_corpus(path)
    assert "corpus.txt" in str(raised.value)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*nothing.txt"):
        read_corpus(tmp_path / "nothing.txt")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read_corpus(tmp_path)


def test_split_keeps_the_last_tenth_for_validation():
    text = "".join(chr(256 + n) for n in range(1005))
    train, validation = split_corpus(text)
    assert (len(train), train + validation) == (904, text)
    assert split_corpus(text, 0) == (text, "")
    for fraction in (1, -0.1, 90):
        with pytest.raises(ValueError, match="below 1"):
            split_corpus(text, fraction)


# --- Token files ---


def test_token_files_keep_every_id(tmp_path, small_tokenizer, large_tokenizer):
    for tokenizer, width in ((small_tokenizer, 2), (large_tokenizer, 4)):
        path = tmp_path / "tokens.bin"
        tokens = np.array([0, 5, tokenizer.vocab_size - 1])
        write_token_file(path, tokens, tokenizer)
        read = read_token_file(path, tokenizer)
        assert isinstance(read, np.memmap) and not read.flags.writeable
        assert read.dtype.itemsize == width and path.stat().st_size == HEADER.size + 3 * width
        assert read.tolist() == tokens.tolist()
        assert list(tmp_path.iterdir()) == [path]


def test_65536_ids_still_fit_in_two_bytes(tmp_path):
    tokenizer = Tokenizer([divmod(index, 256) for index in range(65_536 - 256)], special_tokens=[])
    write_token_file(tmp_path / "tokens.bin", np.array([65_535]), tokenizer)
    read = read_token_file(tmp_path / "tokens.bin", tokenizer)
    assert (read.dtype.itemsize, read.tolist()) == (2, [65_535])


def test_header_states_the_end_of_text_id(tmp_path, small_tokenizer):
    write_token_file(tmp_path / "tokens.bin", np.array([1, 2]), small_tokenizer)
    magic, version, width, count, end_of_text, fingerprint = HEADER.unpack((tmp_path / "tokens.bin").read_bytes()[:64])
    assert (magic, version, width, count, end_of_text) == (b"EULERTOK", 1, 2, 2, 511)
    assert fingerprint.hex() == small_tokenizer.fingerprint


def test_an_empty_token_file_can_be_read(tmp_path, small_tokenizer):
    write_token_file(tmp_path / "tokens.bin", np.empty(0, np.int32), small_tokenizer)
    assert read_token_file(tmp_path / "tokens.bin", small_tokenizer).shape == (0,)


def test_unsound_token_files_are_refused(tmp_path, small_tokenizer, gpt2):
    path = tmp_path / "tokens.bin"
    with pytest.raises(FileNotFoundError):
        read_token_file(path, small_tokenizer)
    write_token_file(path, np.arange(100), small_tokenizer)
    sound = path.read_bytes()
    for content, message in (
        (b"", "not a token file"),
        (sound[:40], "not a token file"),
        (b"x" * 300, "not a token file"),
        (sound[:-1], "100 tokens in 264 bytes but has 263"),
        (sound + b"\0\0", "cut short"),
        (sound[:8] + struct.pack("<I", 9) + sound[12:], "version 9"),
        (sound[:12] + struct.pack("<IQ", 4, 50) + sound[24:], "another tokenizer"),
        (sound[:-2] + struct.pack("<H", 512), "token id 512, but the vocabulary has 512 ids"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_token_file(path, small_tokenizer)
    path.write_bytes(sound)
    with pytest.raises(ValueError, match="another tokenizer"):
        read_token_file(path, gpt2)


def test_foreign_ids_are_found_wherever_they_are_unless_nobody_looks(tmp_path, monkeypatch, small_tokenizer):
    monkeypatch.setattr(models.data.token_files, "CHECKED_BYTES", 16)
    path = tmp_path / "tokens.bin"
    write_token_file(path, np.arange(100), small_tokenizer)
    sound = path.read_bytes()
    for place in (64, 64 + 2 * 57, len(sound) - 2):
        path.write_bytes(sound[:place] + struct.pack("<H", 600) + sound[place + 2 :])
        with pytest.raises(ValueError, match="tokens.bin contains token id 600"):
            read_token_file(path, small_tokenizer)
        assert read_token_file(path, small_tokenizer, check_ids=False).max() == 600


def test_token_files_are_told_from_others(tmp_path, small_tokenizer):
    write_token_file(tmp_path / "a", np.arange(3), small_tokenizer)
    (tmp_path / "b").write_bytes(b"EULERT")
    assert is_token_file(tmp_path / "a") and not is_token_file(tmp_path / "b")


@pytest.mark.parametrize("token_id", [-1, 512, 70_000])
def test_foreign_ids_are_not_written(tmp_path, small_tokenizer, token_id):
    with pytest.raises(ValueError, match=f"token id {token_id}, but the vocabulary has 512"):
        write_token_file(tmp_path / "tokens.bin", np.array([1, token_id]), small_tokenizer)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tokens", [np.zeros((2, 3), np.int64), np.array([1.5]), np.array([True]), np.array(3)])
def test_what_is_no_row_of_integers_is_not_written(tmp_path, small_tokenizer, tokens):
    with pytest.raises(ValueError, match="must be integers in one row"):
        write_token_file(tmp_path / "tokens.bin", tokens, small_tokenizer)
    assert not list(tmp_path.iterdir())


def test_ids_beyond_a_model_are_named():
    check_token_ids(np.array([0, 9]), 10, "train.bin")
    with pytest.raises(ValueError, match="train.bin contains token id 10, but the vocabulary has 10"):
        check_token_ids(np.array([0, 10]), 10, "train.bin")


# --- Training batches ---


def batches_of(tokens, *shape, **options):
    return Batches([Source("text", [tokens])], *shape, **options)


def test_targets_follow_inputs():
    inputs, targets = batches_of(np.arange(1000, dtype=np.uint16), 8, 32, seed=1).batch(0)
    for array in (inputs, targets):
        assert array.shape == (8, 32) and array.dtype == np.int32 and array.flags.c_contiguous
    assert np.array_equal(targets, inputs + 1)
    assert np.array_equal(inputs - inputs[:, :1], np.tile(np.arange(32), (8, 1)))


def test_batches_depend_only_on_seed_step_and_micro_step():
    tokens = np.arange(100_000)
    batches = batches_of(tokens, 4, 8, seed=3, accumulate=8)
    first = batches.batch(7, 2)
    np.random.seed(0)
    batches.batch(0)
    assert np.array_equal(batches.batch(7, 2), first)
    assert np.array_equal(batches_of(tokens, 4, 8, seed=3, accumulate=8).batch(7, 2), first)
    others = [batches.batch(7), batches.batch(2, 7), batches.batch(8, 2), batches_of(tokens, 4, 8, seed=4, accumulate=8).batch(7, 2)]
    assert not any(np.array_equal(other, first) for other in others)


def test_drawing_batches_leaves_the_global_random_state_alone():
    np.random.seed(5)
    undisturbed = np.random.random()
    np.random.seed(5)
    batches_of(np.arange(100), 4, 8, seed=3).batch(0)
    assert np.random.random() == undisturbed


def test_every_window_can_be_drawn_and_none_beyond():
    batches = batches_of(np.arange(12), 64, 8, seed=0)
    starts = {start for step in range(20) for start in batches.batch(step)[0][:, 0].tolist()}
    assert starts == {0, 1, 2, 3}


def test_one_window_is_enough_and_less_is_refused():
    inputs, targets = batches_of(np.arange(9), 2, 8, seed=0).batch(0)
    assert inputs[0].tolist() == list(range(8)) and targets[1, -1] == 8
    with pytest.raises(ValueError, match="text is too short: 8 tokens to train on, but a context of 8 needs at least 9.*smaller --context"):
        batches_of(np.arange(8), 2, 8, seed=0)


def test_batches_read_from_a_token_file(tmp_path, small_tokenizer, corpus):
    tokens = small_tokenizer.encode_to_numpy(corpus[:20_000])
    write_token_file(tmp_path / "tokens.bin", tokens, small_tokenizer)
    mapped = read_token_file(tmp_path / "tokens.bin", small_tokenizer)
    assert np.array_equal(batches_of(mapped, 4, 16, 0).batch(5), batches_of(tokens, 4, 16, 0).batch(5))


# --- Validation windows ---


@pytest.mark.parametrize("count", [2, 3, 8, 9, 10, 24, 25, 26, 100])
def test_every_target_is_scored_once(count):
    windows = validation_windows(np.arange(count, dtype=np.uint16), context=4, batch_size=3)
    scored = []
    for inputs, targets in windows:
        assert inputs.shape == targets.shape == (3, 4) and inputs.dtype == targets.dtype == np.int32
        counted = targets != IGNORED_LABEL
        assert np.array_equal(inputs[counted] + 1, targets[counted])
        assert not inputs[~counted].any()
        scored += targets[counted].tolist()
    assert scored == list(range(1, count))
    assert len(windows) == -(-(count - 1) // 12)


def test_validation_without_a_target_is_refused():
    for count in (0, 1):
        with pytest.raises(ValueError, match=f"at least 2 tokens, but the text has {count}"):
            validation_windows(np.arange(count), 4, 3)


@pytest.mark.parametrize(("batch_size", "context"), [(0, 4), (4, 0)])
def test_windows_need_a_size(batch_size, context):
    with pytest.raises(ValueError, match="at least 1"):
        validation_windows(np.arange(100), context, batch_size)
    with pytest.raises(ValueError, match="at least 1"):
        batches_of(np.arange(100), batch_size, context, 0)
