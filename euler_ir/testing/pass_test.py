"""Reading ``.eir`` files that test passes: texts of graphs, and comments that say what is to be true of them.

A file holds tests, separated by lines of ``// -----``. Comments with a meaning, where PIPELINE is a text such as
``simplify,cse``, VALUE the name of a value, and ARRAY a literal as constants are written:

    // RUN: PIPELINE                 the passes that the test is about; it holds for the tests below, until another one
    // CHECK: ...                    what the text after the passes looks like: see ``filecheck``
    // expect-error V04 "text"       what is wrong with this line or, in a line of its own, with the next one;
                                     the rule may be left out
    // UNCHANGED: reason             the passes leave the graph as it is, and why they must
    // NOT-IDEMPOTENT: reason        the passes, run on what they made, change it once more
    // INPUT: VALUE = ARRAY          what a leaf is given
    // EXPECT: VALUE = ARRAY         what a value must be then, bit for bit, or
    // EXPECT: VALUE = ARRAY within 1e-6       as near to that, relative to each element
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from euler_ir.testing.filecheck import Check, CheckSyntaxError, check_order, parse_check

_SEPARATOR = re.compile(r"// -----+\s*\Z")
_COMMENT = re.compile(r"//\s*(?P<text>.*?)\s*\Z")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DIRECTIVE = re.compile(r"(?P<word>[A-Z][A-Z-]+):\s*(?P<rest>.*)")
_FIRST_WORD = re.compile(r"(?P<word>[A-Za-z][A-Za-z0-9-]*)(?P<colon>\s*:)?")
_REASONS = ("UNCHANGED", "NOT-IDEMPOTENT")
_WORDS = ("RUN", "INPUT", "EXPECT", "CHECK", *_REASONS)
_ABOUT_PASSES = ("CHECK", *_REASONS)
"""What a test of a graph says of its passes, and cannot say where no RUN line names any."""
_ERROR = re.compile(r'expect-error(?:\s+(?P<rule>[A-Z]+[0-9]+))?\s+"(?P<text>.+)"\Z')
_BINDING = re.compile(r"%?(?P<name>\"[^\"]+\"|[^\s=]+)\s*=\s*(?P<array>.+?)(?:\s+within\s+(?P<within>[0-9.e+-]+))?\Z")
_TITLE = re.compile(r"^\s*(?P<level>graph|fused|kernel) @(?P<name>\"[^\"]+\"|[^\s{]+)", re.MULTILINE)


class PassTestSyntaxError(Exception):
    """A comment that seems to be meant for a test, and is not as it has to be; ``line`` is its number in the file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class ExpectedError:
    """What must be wrong at a line of the file: a part of the message and perhaps the id of a rule."""

    line: int
    rule: str | None
    text: str

    def __str__(self) -> str:
        return f'{self.rule} "{self.text}"' if self.rule else f'"{self.text}"'


@dataclass(frozen=True)
class Binding:
    """An array for a value by name: what it is given, or must be, bit for bit or ``within`` a relative error."""

    line: int
    name: str
    array: str
    within: float | None = None


@dataclass(frozen=True)
class PassTest:
    """One test of a file, which messages call ``file``; ``level`` is the word before its name.

    ``text`` has as many empty lines before it as there are lines above it in the file, so that what a parser says of
    its lines is true of the file.
    """

    file: str
    name: str
    line: int
    level: str
    text: str
    pipeline: str | None
    pipeline_line: int
    checks: tuple[Check, ...]
    errors: tuple[ExpectedError, ...]
    inputs: tuple[Binding, ...]
    expected: tuple[Binding, ...]
    unchanged: str | None
    not_idempotent: str | None

    @property
    def last_line(self) -> int:
        """The number of the last line that is not empty."""
        return len(self.text.rstrip().split("\n"))


def read_pass_tests(path: Path, called: str | None = None) -> list[PassTest]:
    """All tests of a file, which messages call ``called``, by default its path.

    Raises PassTestSyntaxError for a comment that is wrong and UnicodeDecodeError for what is no text.
    """
    tests: list[PassTest] = []
    names: dict[str, int] = {}
    for start, lines in _sections(path.read_text(encoding="utf-8")):
        if all(not line.strip() or line.lstrip().startswith("//") for line in lines):
            for line, comment, _ in _comments(start, lines):
                if word := _meant(comment, line):
                    raise PassTestSyntaxError(line, f"{word}: no graph stands beside it, between two // -----")
            continue
        test = _read(called or str(path), start, lines, tests[-1] if tests else None)
        repeat = names[test.name] = names.get(test.name, 0) + 1
        if repeat > 1:
            raise PassTestSyntaxError(test.line, f"there is a test {test.name!r} above: give each graph its own name")
        tests.append(test)
    if not tests:
        raise PassTestSyntaxError(1, "there is no graph to test in this file")
    return tests


def _sections(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines between two separators with the number of lines above them."""
    start, lines = 0, []
    for number, line in enumerate([*text.split("\n"), "// -----"]):
        if not _SEPARATOR.match(line):
            lines.append(line)
            continue
        yield start, lines
        start, lines = number + 1, []


def _read(file: str, start: int, lines: list[str], above: PassTest | None) -> PassTest:
    """The test in ``lines``, which begin after line ``start`` of the file."""
    pipeline = (above.pipeline, above.pipeline_line) if above is not None else (None, 0)
    found: dict[str, list] = {word: [] for word in ("CHECK", "INPUT", "EXPECT", *_REASONS, "error")}
    for line, comment, beside_code in _comments(start, lines):
        if comment.startswith("expect-error"):
            about = line if beside_code else _next_code(lines, line - start) + start
            found["error"].append(_expected_error(comment, line, about))
        word = _meant(comment, line)
        if beside_code:
            if word not in ("", "expect-error"):
                raise PassTestSyntaxError(line, f"{word}: stands in a line of its own")
            continue
        check = _check(comment, line)
        if check is not None:
            found["CHECK"].append(check)
            continue
        match = _DIRECTIVE.match(comment)
        word, rest = (match["word"], match["rest"]) if match else ("", "")
        if word == "RUN":
            if not rest:
                raise PassTestSyntaxError(line, "RUN: names the passes, or says none")
            pipeline = rest, line
        elif word in _REASONS:
            if not rest:
                raise PassTestSyntaxError(line, f"{word}: says why")
            found[word].append(rest)
        elif word in ("INPUT", "EXPECT"):
            found[word].append(_binding(word, rest, line))
    try:
        check_order(found["CHECK"])
    except CheckSyntaxError as error:
        raise PassTestSyntaxError(error.line, str(error)) from None
    text = "\n" * start + "\n".join(lines)
    title = _TITLE.search(text)
    level = title["level"] if title else "graph"
    said = next((word for word in _ABOUT_PASSES if found[word]), None)
    if level == "graph" and pipeline[0] is None and said is not None:
        message = f"{said}: no RUN line says of which passes; RUN: none is about the text alone"
        raise PassTestSyntaxError(start + 1, message)
    return PassTest(
        file=file,
        name=title["name"].strip('"') if title else f"line {start + 1}",
        line=text.count("\n", 0, title.start("name")) + 1 if title else start + 1,
        level=level,
        text=text,
        pipeline=pipeline[0],
        pipeline_line=pipeline[1],
        checks=tuple(found["CHECK"]),
        errors=tuple(found["error"]),
        inputs=tuple(found["INPUT"]),
        expected=tuple(found["EXPECT"]),
        unchanged=next(iter(found["UNCHANGED"]), None),
        not_idempotent=next(iter(found["NOT-IDEMPOTENT"]), None),
    )


def _comments(start: int, lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """The number of the line, the text, and whether code stands before it, for each comment."""
    for number, line in enumerate(lines, start + 1):
        code = _STRING.sub(lambda string: " " * len(string[0]), line)  # a string may hold two slashes
        if not line.lstrip().startswith("//"):
            position = code.find("//")
        else:
            position = line.find("//")
        if position >= 0:
            text, mark, error = _COMMENT.match(line[position:])["text"].partition("// expect-error")
            yield number, text.rstrip(), bool(line[:position].strip())
            if mark:  # in the line of another comment, which it is about
                yield number, f"expect-error{error}", True


def _next_code(lines: list[str], position: int) -> int:
    """The first line from ``position`` on, from 0, that is more than a comment, counted from 1; or the last line."""
    for number in range(position, len(lines)):
        if lines[number].strip() and not lines[number].lstrip().startswith("//"):
            return number + 1
    return len(lines)


def _meant(comment: str, line: int) -> str:
    """The word of what a comment says of a test, '' for one that says nothing; refuses what is nearly such a word."""
    match = _FIRST_WORD.match(comment)
    if match is None:
        return ""
    word, colon = match["word"], match["colon"]
    if word == "expect-error":
        return word
    kind = "CHECK" if re.match(r"CHECK(-|\Z)", word) else word
    if kind in _WORDS:
        if colon != ":":
            blank = ", without a blank before it" if colon else ""
            raise PassTestSyntaxError(line, f"{word!r} lacks its ':'{blank}")
        return kind
    if colon and word.upper() in _WORDS:
        raise PassTestSyntaxError(line, f"there is no {word}:; did you mean {word.upper()}:?")
    known = _WORDS if colon and word.isupper() else ("expect-error",) if "-" in word else ()
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
    if close:
        mark = ":" if colon else ""
        raise PassTestSyntaxError(line, f"there is no {word}{mark}; did you mean {close[0]}{mark}?")
    return ""


def _check(comment: str, line: int) -> Check | None:
    try:
        return parse_check(comment, line)
    except CheckSyntaxError as error:
        raise PassTestSyntaxError(line, str(error)) from None


def _expected_error(comment: str, line: int, about: int) -> ExpectedError:
    """The error that the comment in ``line`` expects in the line ``about``."""
    match = _ERROR.match(comment)
    if match is None:
        raise PassTestSyntaxError(line, 'an error is written expect-error V04 "part of the message"')
    return ExpectedError(about, match["rule"], match["text"])


def _binding(word: str, rest: str, line: int) -> Binding:
    match = _BINDING.match(rest)
    if match is None:
        raise PassTestSyntaxError(line, f"an array is written {word}: %x = [1.0, 2.0]")
    within = None
    if match["within"] is not None:
        try:
            within = float(match["within"])
        except ValueError:
            raise PassTestSyntaxError(line, f"{match['within']!r} is no number") from None
        if word == "INPUT":
            raise PassTestSyntaxError(line, "an INPUT is what it is: 'within' goes with EXPECT")
    return Binding(line, match["name"].strip('"'), match["array"], within)
