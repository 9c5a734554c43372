"""gpt2_chat.py as its users see it: in a terminal (a pseudo terminal), through a pipe, and for one answer."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_chat_session import CONFIG, TOKENIZER, lively_state

from models.training.checkpoint import Checkpoint

CHAT = Path(__file__).parents[2] / "examples" / "gpt2_chat.py"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "best.safetensors"
    Checkpoint(dict(lively_state()), CONFIG, TOKENIZER, 1, {}, {}).save(path)
    return path


class Terminal:
    """The program in a pseudo terminal, and what it has shown."""

    def __init__(self, *arguments):
        # A background job of a shell ignores Ctrl-C, and so would its children.
        act = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
        ours, theirs = pty.openpty()
        self._file, self.shown = ours, ""
        command = [sys.executable, CHAT, *map(str, arguments)]
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.process = subprocess.Popen(
            command, **streams, preexec_fn=act, start_new_session=True, env=os.environ | {"TERM": "dumb"}
        )
        os.close(theirs)

    def expect(self, text):
        """What is shown until ``text``, which comes next."""
        while text not in self.shown:
            assert self.read(), f"ended without {text!r}: {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before

    def read(self):
        """Whether more is shown; waits for it."""
        try:
            part = os.read(self._file, 4096)
        except OSError:
            part = b""
        self.shown += part.decode("utf-8", "replace")
        return part != b""

    def type(self, text):
        os.write(self._file, text.encode())

    def interrupt(self):
        """What a terminal does with Ctrl-C, until it shows: one that comes while `input` begins waits for a key."""
        self.process.send_signal(signal.SIGINT)
        while not select.select([self._file], [], [], 2)[0]:
            self.process.send_signal(signal.SIGINT)


def test_in_a_terminal(tmp_path):
    """The answer would have 20,000 tokens: the likeliest token is never one that ends it."""
    config = replace(CONFIG, context=20_100)
    path, state = tmp_path / "long.safetensors", lively_state(config)
    state["wte.weight"][list(TOKENIZER.special_tokens.values())] = 0
    Checkpoint(dict(state), config, TOKENIZER, 1, {}, {}).save(path)
    terminal = Terminal(path, "--tokens", "20000", "--temperature", "0")
    terminal.expect("Ctrl-D ends.")
    terminal.expect("> ")
    terminal.type("hello\n")
    terminal.expect("hello\r\n")
    terminal.read()
    terminal.interrupt()
    assert 0 < len(terminal.expect("> ")) < 19_000
    terminal.type("/temperature 0.5\n")
    terminal.expect("temperature 0.5\r\n> ")
    terminal.interrupt()
    terminal.expect("(Ctrl-D or /quit ends)")
    terminal.expect("> ")
    terminal.type("/nothing\n")
    terminal.expect("There is no command /nothing. /help lists them.")
    terminal.expect("> ")
    terminal.type("\x04")
    assert terminal.process.wait(60) == 0


def run(checkpoint, *arguments, given=None):
    command = [sys.executable, CHAT, checkpoint, "--tokens", "8", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=120)


def test_through_a_pipe_each_message_is_answered(checkpoint, tmp_path):
    saved = tmp_path / "talk.jsonl"
    given = f"/system Be brief.\nhello\n\n{'x' * 200}\nné \xff\n /quit\n/save {saved}\n/save {tmp_path}/none/talk\n/quit\nno\n"
    finished = run(checkpoint, given=given.encode("latin-1"))
    assert finished.returncode == 1, finished.stderr
    errors = finished.stderr.decode().splitlines()
    assert len(errors) == 2 and "message is too long" in errors[0] and "does not exist" in errors[1]
    messages = [each["content"] for each in json.loads(saved.read_text("utf-8"))["messages"]]
    assert messages[5] == " /quit"
    assert finished.stdout.decode() == "".join(f"{answer}\n" for answer in messages[2::2])


def test_one_answer(checkpoint):
    one, other = (run(checkpoint, "--prompt", "hello", "--seed", seed) for seed in (1, 2))
    assert one.returncode == 0 and len(one.stdout) > 1 and one.stdout != other.stdout
    refused = run(checkpoint, "--prompt", "x" * 200)
    assert refused.returncode == 2 and b"too long" in refused.stderr and refused.stderr.count(b"\n") == 1
