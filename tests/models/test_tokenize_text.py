"""examples/tokenize_text.py: what it prints, what it writes, and how it says that it cannot."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as HuggingFaceTokenizer

from models.data.token_files import read_token_file
from models.tokenizer.characters import CharacterTokenizer
from models.tokenizer.formats import load_tokenizer, save_tokenizer

SCRIPT = Path(__file__).parents[2] / "examples" / "tokenize_text.py"
main = runpy.run_path(str(SCRIPT))["main"]


@pytest.fixture
def tokenize(tmp_path, capsys, monkeypatch):
    """Runs the command in an empty folder; gives (exit status, lines of output, error text)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as exit:
            status = exit.code
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err

    return run


@pytest.fixture
def gpt2_file(tmp_path, gpt2):
    save_tokenizer(gpt2, tmp_path / "gpt2.json")
    return tmp_path / "gpt2.json"


def test_pieces_tokens_ids_and_bytes_are_shown(tokenize, gpt2_file):
    status, lines, _ = tokenize("--tokenizer", gpt2_file, "I'm  née\t你", "--special", "allow")
    assert (status, lines[0]) == (0, r"I'm  née\t\xe4\xbd\xa0")
    assert [line.split() for line in lines[1:]] == [
        ["piece", "token", "id", "bytes"],
        ["1", "I", "40", "49"],
        ["2", "'m", "1101", "27", "6d"],
        ["3", "220", "20"],
        ["4", "n", "299", "20", "6e"],
        ["4", "ée", "22161", "c3", "a9", "65"],
        ["5", r"\t", "197", "09"],
        ["6", r"\xe4\xbd", "19526", "e4", "bd"],
        ["6", r"\xa0", "254", "a0"],
        "10 characters, 13 bytes, 8 tokens: 1.62 bytes a token".split(),
    ]


def test_without_a_tokenizer_it_learns_one(tokenize):
    status, lines, _ = tokenize("the")
    assert status == 0 and [line.split()[:2] for line in lines[2:4]] == [["1", "t"], ["1", "he"]]
    assert tokenize("")[1][-1] == "0 characters, 0 bytes, 0 tokens"


def test_control_characters_cannot_reach_the_terminal(tokenize):
    assert "\x1b" not in "".join(tokenize("\x1b[31m\x07\u202e")[1])


def test_special_tokens_are_what_is_asked(tokenize, gpt2_file):
    text = "a<|endoftext|>"
    status, lines, error = tokenize("--tokenizer", gpt2_file, text)
    assert status == 2 and not lines and "--special allow" in error and error.count("\n") == 1
    assert tokenize("--tokenizer", gpt2_file, text, "--special", "allow")[1][3].split()[:3] == ["2", "<|endoftext|>", "50256"]
    assert tokenize("--tokenizer", gpt2_file, text, "--special", "text")[1][3].split()[:3] == ["2", "<", "27"]


def test_train_encode_and_convert(tokenize, tmp_path, corpus):
    (tmp_path / "one.txt").write_text(corpus[:20_000])
    (tmp_path / "two.txt").write_text(corpus[20_000:30_000])
    status, lines, _ = tokenize("--train", "one.txt", "two.txt", "--vocab-size", 400, "--out", "own.json")
    assert (status, lines) == (0, ["own.json: 400 tokens"])
    tokenizer = load_tokenizer("own.json")

    encoding = ["--file", "one.txt", "two.txt", "--separator", "<|endoftext|>", "--out", "both.tokens"]
    status, lines, _ = tokenize("--tokenizer", "own.json", *encoding)
    tokens = read_token_file("both.tokens", tokenizer)
    assert (status, lines) == (0, [f"both.tokens: {len(tokens):,} tokens of 30,000 bytes of text"])
    assert tokenizer.decode(tokens) == corpus[:20_000] + "<|endoftext|>" + corpus[20_000:30_000]

    for format, out in (("huggingface", "there.json"), ("gpt2", "new/folder"), ("tiktoken", "x.tiktoken"), ("native", "n")):
        status, lines, error = tokenize("--tokenizer", "own.json", "--convert", format, "--out", out)
        assert (status, lines) == (0, [f"{out}: 400 tokens as {format}"]), error
    assert HuggingFaceTokenizer.from_file("there.json").encode(corpus[:999]).ids == tokenizer.encode(corpus[:999])
    for options in (["new/folder"], ["x.tiktoken", "--pattern", "gpt2", "--special-token", "<|endoftext|>"]):
        assert tokenize("--tokenizer", *options, "--convert", "native", "--out", "back.json")[0] == 0
        assert load_tokenizer("back.json").fingerprint == tokenizer.fingerprint


def test_a_vocabulary_of_characters(tokenize, tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    assert tokenize("--train", "a.txt", "--kind", "characters", "--out", "c.json")[1] == ["c.json: 4 tokens"]
    assert isinstance(load_tokenizer("c.json"), CharacterTokenizer)
    status, _, error = tokenize("--tokenizer", "c.json", "jello")
    assert status == 2 and "'j'" in error
    status, _, error = tokenize("--tokenizer", "c.json", "--convert", "gpt2", "--out", "there")
    assert status == 2 and "byte-level BPE only" in error and not Path("there").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a text to look at, or one of"),
        (["text", "--file", "a"], "give a text to look at, or one of"),
        (["--file", "a"], "--out is needed"),
        (["text", "--out", "a"], "--out is needed"),
        (["--file", "a", "--train", "b", "--out", "c"], "not allowed with"),
        (["--convert", "pickle", "--out", "c"], "invalid choice"),
        (["--file", "missing.txt", "--out", "c"], "missing.txt"),
        (["--file", SCRIPT, "--out", "no/folder"], "folder no does not exist"),
        (["--file", SCRIPT, "--out", "."], "is a folder"),
        (["--tokenizer", "missing.json", "text"], "missing.json"),
        (["--tokenizer", ".", "text"], "has no tokenizer"),
        (["--tokenizer", SCRIPT, "text"], "is not a tokenizer file"),
        (["--train", SCRIPT, "--vocab-size", "7", "--out", "c"], "7 ids is too small"),
        (["--train", SCRIPT, "--vocab-size", "x", "--out", "c"], "invalid int value"),
        (["--file", SCRIPT, "--separator", "<x>", "--out", "c"], "'<x>' is not a special token"),
        (["--tokenizer", "", "text"], "has no tokenizer"),
        (["text", "--separator", "<x>"], "--separator is for --file only"),
        (["text", "--vocab-size", "0"], "--kind and --vocab-size are for --train only"),
        (["--train", SCRIPT, "--tokenizer", "a", "--out", "c"], "takes none by --tokenizer"),
        (["--train", SCRIPT, "--kind", "characters", "--vocab-size", "9", "--out", "c"], "for --kind bpe only"),
        (["--tokenizer", "a.tiktoken", "text"], "--pattern gpt2 and --special-token, or --no-special-tokens."),
    ],
)
def test_wrong_use_is_told_in_a_line(tokenize, tmp_path, arguments, message):
    status, lines, error = tokenize(*arguments)
    assert status == 2 and not lines
    assert message in error.splitlines()[-1] and "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_overwritten(tokenize, tmp_path, gpt2_file):
    text = tmp_path / "a.txt"
    text.write_text("hello")
    (tmp_path / "b.txt").hardlink_to(text)
    before = gpt2_file.read_bytes()
    for arguments in (
        ["--train", text, "--out", "b.txt"],
        ["--tokenizer", gpt2_file, "--file", text, "--out", gpt2_file],
        ["--tokenizer", gpt2_file, "--convert", "huggingface", "--out", gpt2_file],
    ):
        status, _, error = tokenize(*arguments)
        assert status == 2 and "is also read, and would be lost" in error
    assert text.read_text() == "hello" and gpt2_file.read_bytes() == before


def test_a_wrong_number_of_threads_is_told(tokenize, tmp_path, monkeypatch, gpt2_file):
    monkeypatch.setenv("EULER_IR_THREADS", "many")
    status, _, error = tokenize("--tokenizer", gpt2_file, "--file", gpt2_file, "--out", "c")
    assert status == 2 and "EULER_IR_THREADS is 'many'" in error and not (tmp_path / "c").exists()


def test_colours_tell_tokens_apart_on_a_terminal():
    command = [sys.executable, SCRIPT, "the [bold]"]
    environment = {"FORCE_COLOR": "1", "TERM": "xterm", "PYTHONPATH": str(SCRIPT.parents[1])}
    finished = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    first = finished.stdout.splitlines()[0]
    assert "\x1b[30;106mt\x1b[0m\x1b[30;103mhe\x1b[0m" in first and "m[\x1b" in first and finished.stderr == ""
