"""Chatting in a terminal or through a pipe: lines are messages, those that begin with a slash are commands."""

import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

PROMPT = "> "
HELP = """\
/help               these lines
/reset              forget what was said; the system prompt stays
/system TEXT        set the system prompt from here on; without TEXT there is none
/temperature T      0 takes the likeliest token; without T it is shown
/retry              another answer to the last message
/save FILE          write the conversation as a line of JSON
/load FILE          go on with the conversation in such a file
/quit               end, as does Ctrl-D; Ctrl-C ends an answer only
A message that begins with a slash is written with a blank before it."""


class Chat:
    """Reads messages and commands line by line from `lines`, a text file, and writes answers to stdout.

    Notices and errors go to stderr. In a terminal there is a prompt, and a line can be edited.
    """

    def __init__(self, session, lines=None):
        self._session, self._lines = session, lines or sys.stdin
        self._unseen = session.unseen
        self.refused = 0
        self._commands = {
            "/help": lambda _: print(HELP),
            "/reset": lambda _: session.reset(),
            "/system": self._set_system,
            "/temperature": self._set_temperature,
            "/retry": self._retry,
            "/save": lambda path: session.save(_given(path, "/save FILE")),
            "/load": lambda path: session.load(_given(path, "/load FILE")),
        }

    def run(self):
        """Until the end of the input or /quit."""
        if not self._lines.isatty():
            for line in self._lines:
                if not self._do(line.rstrip("\n")):
                    return
            return
        print("/help lists the commands. Ctrl-D ends.", file=sys.stderr)
        while True:
            try:
                if not self._do(input(PROMPT)):
                    return
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print("\n(Ctrl-D or /quit ends)", file=sys.stderr)

    def _do(self, line):
        """Do what a line says, and whether to go on. What cannot be done is one line on stderr."""
        name, _, rest = line.rstrip().partition(" ")
        if name == "/quit":
            return False
        try:
            if line.startswith("/"):
                self._command(name, rest.strip())
            elif line.strip():
                self.answer(line)
        except ValueError as error:
            self.refused += 1
            print(error, file=sys.stderr)
        return True

    def answer(self, text):
        """Print the answer to `text` as it comes. Ctrl-C ends it."""
        with _interrupts() as interrupted:
            answer = self._session.answer(text)
            is_empty = True
            for piece in answer:
                self._notice_unseen()
                is_empty = False
                print(piece, end="", flush=True)
                if interrupted:
                    break
            answer.close()
            print()
        if is_empty:
            print("(no answer)", file=sys.stderr)

    def _command(self, name, rest):
        if name not in self._commands:
            raise ValueError(f"There is no command {name}. /help lists them.")
        try:
            self._commands[name](rest)
        except OSError as error:
            raise ValueError(str(error)) from None

    def _notice_unseen(self):
        """Say so, once, when the model sees less of the conversation than before."""
        unseen, before = self._session.unseen, self._unseen
        self._unseen = unseen
        if unseen > before:
            print(f"(The model's window is full: it no longer sees the first {unseen} messages.)", file=sys.stderr)

    def _set_system(self, text):
        self._session.system = text or None

    def _set_temperature(self, text):
        if text:
            try:
                temperature = float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a temperature. Try /temperature 0.8.") from None
            self._session.sampling = replace(self._session.sampling, temperature=temperature)
        print(f"temperature {self._session.sampling.temperature:g}", file=sys.stderr)

    def _retry(self, _):
        text = self._session.take_back()
        if text is None:
            raise ValueError("Nothing was said yet.")
        self.answer(text)


def _given(path, usage):
    if not path:
        raise ValueError(f"Name a file: {usage}.")
    return path


@contextmanager
def _interrupts():
    """In this block Ctrl-C raises nothing, but fills the list that it gives."""
    pressed = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
