"""The tokens of a text, and what is said about those that are not as expected: at their place, and several at once.

All levels are read with it. They have one statement a line, or a block of them behind a line that ends with ``{``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from euler_ir.errors import ParseError, did_you_mean

STRING = r'"(?:[^"\\\n]|\\.)*+"'
WORD = r"[A-Za-z_][A-Za-z0-9_.]*+"
NAME = rf"(?:[\w.]++(?:\#[0-9]++)?|{STRING})"
"""What a value is called behind its ``%``: letters, digits, ``_`` and ``.`` as they are, all else in quotes."""

_TOKEN = re.compile(
    rf"""(?:\s++|//[^\n]*+)*+
    (?:(?P<value>%{NAME})
    |(?P<string>{STRING})
    |(?P<number>-?(?:inf\b|[0-9]++(?:\.[0-9]++)?(?:e[+-]?[0-9]++)?)|nan\(0x[0-9a-f]++\)|nan\b)
    |(?P<type>[a-z][a-z0-9]*+\[[0-9,\ ]*+\])
    |(?P<word>{WORD})
    |(?P<mark><=|==|\+=|[=:{{}}\[\](),@+<*-])
    |(?P<end>\Z)
    |(?P<strange>"[^\n]*+|.))""",
    re.VERBOSE,
)
_PLAIN = re.compile(rf"{WORD}\Z")
_OPENS = re.compile(r"\{\s*+(?://.*)?\Z")
"""A line that opens a block ends so."""
MAX_ERRORS = 20
"""How many errors are looked for in one text."""
_LONGEST_INTEGER = 18
"""Digits that surely fit into 64 bits."""
_EXCERPT = 100
"""Characters of a long source line that a message shows."""
_LONGEST_LINE = 600
"""Characters of a line of a message."""


Item = TypeVar("Item")


class Token(NamedTuple):
    """``kind`` is a group of the token pattern, or 'end' for the one behind the last, whose text is empty."""

    kind: str
    text: str
    offset: int


class FollowUp(ParseError):
    """What is wrong only because something before it is: it is not reported."""


class Reader:
    """Reads ``text`` token by token; ``token`` is the next one. ``begins`` are the words that a statement begins with,
    where it does not begin with a value.
    """

    def __init__(self, text: str, filename: str, begins: Sequence[str] = ()) -> None:
        self.text = text
        self.filename = filename
        self.errors: list[ParseError] = []
        self._words = (*begins, "}")
        self._begins = re.compile(rf"\s*+(?:%|\}}|(?:{'|'.join(begins) or '}'})\b)")
        self._move(text.startswith("\ufeff"))

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _move(self, offset: int) -> None:
        """Make the first token from ``offset`` on the next one."""
        match = _TOKEN.match(self.text, offset)
        kind = match.lastgroup
        self._read = offset  # where what has been read ends
        self.token = Token(kind, match[kind], match.start(kind))
        self._end = match.end()

    def advance(self) -> Token:
        """The next token, whatever it is, which is consumed."""
        token = self.token
        self._move(self._end)
        return token

    def take(self, kind: str, what: str) -> Token:
        """The next token, which must be of ``kind``; ``what`` says that to readers."""
        if self.token.kind != kind:
            raise self.expected(what)
        return self.advance()

    def accept(self, text: str) -> bool:
        """Whether the next token is the mark or word ``text``, which is then consumed."""
        token = self.token
        if token.text != text or token.kind not in ("mark", "word"):
            return False
        self._move(self._end)
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.expected(f"'{text}'")

    def each(self, read: Callable[[], Item]) -> list[Item]:
        """What ``read`` gives, called once and again after each comma."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return items

    def integer(self, what: str) -> int:
        """A number without sign, point or exponent."""
        if not self.token.text.isdecimal() or len(self.token.text) > _LONGEST_INTEGER:
            raise self.expected(what)
        return int(self.advance().text)

    def string(self, what: str) -> str:
        token = self.take("string", what)
        return self.unquote(token.text, token.offset)

    def unquote(self, text: str, offset: int) -> str:
        try:
            return json.loads(text)
        except ValueError:
            raise self.error(f"{text} has an escape that JSON does not know", offset) from None

    def name(self, what: str) -> str:
        """A word, or a string in its place."""
        return self.string(what) if self.token.kind == "string" else self.take("word", what).text

    def value_name(self, token: Token) -> str:
        """What the ``%name`` of ``token`` calls a value."""
        name = token.text[1:]
        return self.unquote(name, token.offset + 1) if name.startswith('"') else name

    def version(self, known: int) -> None:
        """The first line of a file, ``eir`` and the version that is ``known``."""
        self.expect("eir")
        version = self.take("number", "a version number")
        if version.text != str(known):
            raise self.error(f"this is version {version.text} of the text form, not {known}", version.offset)

    # -- errors --------------------------------------------------------------------------------------------------------

    def error(self, what: str, offset: int, hint: str | None = None, details: tuple[str, ...] = ()) -> ParseError:
        """``what``, with the place, the source line and a caret under the fault."""
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        source = self.text[start : self._line_end(offset)].expandtabs(1)
        column = offset - start
        first = max(0, column - _EXCERPT // 2) if len(source) > _EXCERPT else 0
        caret = " " * (column - first) + "^"
        excerpt = source[first : first + _EXCERPT]
        return ParseError(
            f"{self.filename}:{line}:{column + 1}: {_shortened(what)}",
            details=(excerpt, caret, *map(_shortened, details)),
            hint=hint and _shortened(hint),
        )

    def expected(self, what: str, words: Iterable[str] = ()) -> ParseError:
        """The next token is not ``what``; it may be a misspelt one of ``words``."""
        token = self.token
        found = repr(token.text) if token.text else "the end of the text"
        return self.error(f"expected {what}, found {found}", token.offset, did_you_mean(token.text, words))

    def statements(self, read: Callable[[], None], what: str) -> None:
        """Call ``read`` for each statement up to the ``}`` of the block, which is consumed.

        An error of a statement is kept for `finish`, and reading goes on with the next line that can begin one, behind
        the block that the line at fault opens. ``what`` says what may stand here where that is nothing known.
        """
        while not self.accept("}"):
            start = self.token
            if start.kind == "end" and self.errors:
                return  # what is at fault before it may have opened blocks that nothing closes
            try:
                if start.kind != "value" and start.text not in self._words:
                    raise self.expected(what, self._words)
                read()
            except ParseError as error:
                self.keep(error)
                self._skip(start.offset)
                if self.token.kind == "end":
                    return

    def finish(self) -> None:
        """Raise what was wrong, if anything was: the only ParseError, or one that lists them all."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ParseError.of(self.errors, f"{self.filename} has {len(self.errors)} errors")

    def keep(self, error: ParseError) -> None:
        """Note ``error`` for `finish`. Raises at once when there are MAX_ERRORS."""
        if not isinstance(error, FollowUp):
            self.errors.append(error)
        if len(self.errors) == MAX_ERRORS:
            raise ParseError.of(self.errors, f"{self.filename} has {MAX_ERRORS} errors or more")

    def _skip(self, start: int) -> None:
        """Move from the fault, in a statement that begins at ``start``, to the next line, or where the statement may go
        on there, to the next one that can begin another.
        """
        end = self._line_end(max(start, self._read))
        first, *rest = self.text[start:end].split("\n")
        depth = (_OPENS.search(first) is not None) + sum(map(_deeper, rest))
        if not depth and _is_closed(self.text[start:end]):
            return self._move(end)
        while end < len(self.text):
            begin, end = end + 1, self._line_end(end + 1)
            line = self.text[begin:end]
            if self._begins.match(line):
                if not depth:
                    return self._move(begin)
                depth -= line.lstrip().startswith("}")
            depth += _OPENS.search(line) is not None
        self._move(len(self.text))

    def _line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        return end if end >= 0 else len(self.text)


def _shortened(message: str) -> str:
    """``message`` without the middle of what makes it long: words of the text can be as long as that."""
    return message if len(message) <= _LONGEST_LINE else f"{message[: _LONGEST_LINE // 2]} ... {message[-_EXCERPT:]}"


def word(text: str) -> str:
    """``text`` as it is when it is a plain word, else in quotes."""
    return text if _PLAIN.match(text) else json.dumps(text)


def _is_closed(statement: str) -> bool:
    """Whether no bracket of ``statement`` is left open, so that it does not go on in the next line."""
    return sum(statement.count(mark) for mark in "{[(") == sum(statement.count(mark) for mark in "}])")


def _deeper(line: str) -> int:
    """How many blocks more are open after ``line`` than before."""
    return (_OPENS.search(line) is not None) - line.lstrip().startswith("}")
