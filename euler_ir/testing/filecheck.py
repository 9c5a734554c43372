"""CHECK lines against a text, with the meaning of LLVM's FileCheck (https://llvm.org/docs/CommandGuide/FileCheck.html).

    CHECK: pattern           the next match, from where the last one ended
    CHECK-NEXT: pattern      a match on the line after that of the last one
    CHECK-SAME: pattern      a match on the rest of that line
    CHECK-EMPTY:             the line after it is empty
    CHECK-NOT: pattern       no match between the last one and the next
    CHECK-DAG: pattern       those in a row match in any order, without overlap
    CHECK-COUNT-3: pattern   as three CHECK lines
    CHECK-LABEL: pattern     cuts the text into blocks first; what stands between two labels is looked for there alone

A pattern is literal text, in which runs of blanks are one blank, but for ``{{regex}}``, ``[[name:regex]]``, which also
keeps what matched, and ``[[name]]``, which stands for it. A match never spans lines. It differs from LLVM in that
regular expressions are Python's, CHECK-NEXT does not look at the rest of the last line, and CHECK-NOT knows only the
names from above it.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from euler_ir.errors import did_you_mean

_DIRECTIVE = re.compile(r"CHECK(?:-(?P<kind>[A-Z]+)(?:-(?P<count>[0-9]+))?)?:(?P<text>.*)")
_KINDS = ("NEXT", "SAME", "EMPTY", "NOT", "DAG", "COUNT", "LABEL")
_AFTER_ANOTHER = ("NEXT", "SAME", "EMPTY")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANKS = re.compile(r"[ \t]+")
LEAST_LIKENESS = 0.3
"""From 0 to 1: less than this a line has nothing to do with what is looked for."""

Place = tuple[int, int]
"""A line of the text and a character of it, both from 0."""


class CheckSyntaxError(Exception):
    """A CHECK line that is none; ``line`` is its number in the file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Part:
    """A piece of a pattern: a ``literal`` text, a ``regex``, what a ``name`` keeps (both), or what it kept (name)."""

    literal: str = ""
    regex: str = ""
    name: str = ""


@dataclass(frozen=True)
class Check:
    """One CHECK line, at number ``line`` of its file. ``kind`` is '' for CHECK itself."""

    kind: str
    text: str
    line: int
    parts: tuple[Part, ...]
    count: int = 1

    def __str__(self) -> str:
        kind = f"-{self.kind}" if self.kind else ""
        count = f"-{self.count}" if self.kind == "COUNT" else ""
        return f"CHECK{kind}{count}: {self.text}".rstrip()


@dataclass
class CheckFailure(Exception):
    """A CHECK line that does not hold. ``began`` is where the search began and ``nearest`` the line most like it, both
    as numbers of lines of the text, from 0.
    """

    check: Check
    message: str
    began: int
    nearest: int | None = None

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_check(text: str, line: int) -> Check | None:
    """The CHECK line that a comment says, or None for another comment. Raises CheckSyntaxError for a wrong one."""
    match = _DIRECTIVE.match(text)
    if match is None:
        if re.match(r"CHECK\b", text):
            raise CheckSyntaxError(line, f"{text.split(':')[0]!r} lacks its ':'")
        return None
    kind, count, pattern = match["kind"] or "", match["count"], _BLANKS.sub(" ", match["text"]).strip()
    if kind and kind not in _KINDS:
        hint = did_you_mean(f"CHECK-{kind}", [f"CHECK-{each}" for each in _KINDS])
        raise CheckSyntaxError(line, f"there is no CHECK-{kind}" + (f"; {hint}" if hint else ""))
    if (kind == "COUNT") != (count is not None) or count == "0":
        raise CheckSyntaxError(line, "a count is written CHECK-COUNT-3, and is 1 or more")
    if kind == "EMPTY":
        if pattern:
            raise CheckSyntaxError(line, "CHECK-EMPTY takes no pattern")
    elif not pattern:
        raise CheckSyntaxError(line, f"{text.split(':')[0]} has no pattern")
    parts = tuple(_parts(pattern, line))
    defined = [part.name for part in parts if part.name and part.regex]
    if len(set(defined)) < len(defined):
        raise CheckSyntaxError(line, "a name is given a meaning twice in one line")
    if kind == "LABEL" and any(part.name for part in parts):
        raise CheckSyntaxError(line, "a label is found before the others, and can hold no names")
    return Check(kind, pattern, line, parts, int(count or 1))


def check_order(checks: Sequence[Check]) -> None:
    """Raise CheckSyntaxError where the first CHECK line is about the line of one before it."""
    first = next((check for check in checks if check.kind != "NOT"), None)
    if first is not None and first.kind in _AFTER_ANOTHER:
        raise CheckSyntaxError(first.line, f"CHECK-{first.kind} needs a CHECK before it")


def _parts(pattern: str, line: int) -> Iterable[Part]:
    position = 0
    while position < len(pattern):
        opening = min((at for at in (pattern.find(mark, position) for mark in ("{{", "[[")) if at >= 0), default=-1)
        if opening < 0:
            yield Part(literal=pattern[position:])
            return
        if opening > position:
            yield Part(literal=pattern[position:opening])
        if pattern.startswith("{{", opening):
            end = pattern.find("}}", opening + 2)
            if end < 0:
                raise CheckSyntaxError(line, "'{{' has no '}}'")
            while pattern.startswith("}", end + 2):  # the end of a count such as {{x{2}}}
                end += 1
            yield _regex(pattern[opening + 2 : end], "", line)
        else:
            end = _end_of_name(pattern, opening + 2)
            if end < 0:
                raise CheckSyntaxError(line, "'[[' has no ']]'")
            name, colon, regex = pattern[opening + 2 : end].partition(":")
            if not _NAME.fullmatch(name):
                raise CheckSyntaxError(line, f"{name!r} is no name: letters, digits and '_'")
            yield _regex(regex, name, line) if colon else Part(name=name)
        position = end + 2


def _end_of_name(pattern: str, start: int) -> int:
    """Where the ``]]`` is that ends what began before ``start``, outside of the brackets of its regex; -1 for none."""
    depth, position = 0, start
    while position < len(pattern):
        if depth == 0 and pattern.startswith("]]", position):
            return position
        character = pattern[position]
        if character == "\\":
            position += 1
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        position += 1
    return -1


def _regex(regex: str, name: str, line: int) -> Part:
    if not regex:
        raise CheckSyntaxError(line, "an empty regular expression matches anything")
    try:
        re.compile(regex)
    except re.error as error:
        raise CheckSyntaxError(line, f"{regex!r} is no regular expression: {error}") from None
    return Part(regex=regex, name=name)


# -- matching ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Where a pattern matched, and what its names stand for there."""

    start: Place
    end: Place
    names: dict[str, str]


def match_checks(checks: Sequence[Check], text: str) -> None:
    """Raise CheckFailure for the first of ``checks`` that does not hold of ``text``."""
    _Matcher([_BLANKS.sub(" ", line) for line in text.removesuffix("\n").split("\n")]).run(checks)


class _Matcher:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.end: Place = (len(lines) - 1, len(lines[-1]))
        self.kept: dict[str, str] = {}

    def run(self, checks: Sequence[Check]) -> None:
        labels: list[_Found] = []
        for check in checks:
            if check.kind == "LABEL":
                labels.append(self.find(check, labels[-1].end if labels else (0, 0), self.end, "no such label"))
        place, blocks = (0, 0), _blocks(checks)
        for number, block in enumerate(blocks):
            label = labels[number] if number < len(labels) else None
            self.block(block, place, label)
            place = label.end if label is not None else place

    def block(self, checks: Sequence[Check], place: Place, label: _Found | None) -> None:
        """The checks between two labels, from ``place`` on; where ``label`` is given the last of them is the label."""
        limit = label.start if label is not None else self.end
        refused: list[tuple[Check, re.Pattern]] = []
        for group in _groups(checks):
            if group[0].kind == "NOT":
                refused += [(check, self.pattern(check, place)) for check in group]
                continue
            if group[0].kind == "LABEL":
                start, end = label.start, label.end
            elif group[0].kind == "DAG":
                start, end = self.in_any_order(group, place, limit)
            else:
                start, end = self.next(group[0], place, limit)
            self.refuse(refused, place, start)
            refused, place = [], end
        self.refuse(refused, place, limit)

    def next(self, check: Check, place: Place, limit: Place) -> tuple[Place, Place]:
        row = place[0]
        match check.kind:
            case "EMPTY":
                self.check_empty(check, row, limit)
                return (row + 1, 0), (row + 1, 0)
            case "SAME":
                found = self.find(check, place, self.end_of(row, limit), "not on the rest of the last match's line")
            case "NEXT":
                end = self.end_of(row + 1, limit)
                found = self.find(check, (row + 1, 0), end, "not on the line after the last match", (row + 1, limit[0]))
            case _:
                found = self.find(check, place, limit, "not found")
        start, self.kept = found.start, self.kept | found.names
        for number in range(1, check.count):
            found = self.find(check, found.end, limit, f"found {number} of {check.count}")
        return start, found.end

    def check_empty(self, check: Check, row: int, limit: Place) -> None:
        if row + 1 > limit[0]:
            raise CheckFailure(check, "there is no line after the last match", row)
        if self.lines[row + 1]:
            raise CheckFailure(check, "the line after the last match is not empty", row, row + 1)

    def in_any_order(self, group: Sequence[Check], place: Place, limit: Place) -> tuple[Place, Place]:
        taken: list[_Found] = []
        for check in group:
            begin, overlapped = place, True
            while overlapped:
                message = "not found, apart from what the CHECK-DAG lines above it match"
                found = self.find(check, begin, limit, message, (place[0], limit[0]))
                overlapped = [other for other in taken if found.start < other.end and other.start < found.end]
                begin = max((other.end for other in overlapped), default=begin)
            self.kept |= found.names
            taken.append(found)
        return min(found.start for found in taken), max(found.end for found in taken)

    def refuse(self, refused: Sequence[tuple[Check, re.Pattern]], start: Place, end: Place) -> None:
        for check, pattern in refused:
            found = self.search(pattern, start, end)
            if found is not None:
                raise CheckFailure(check, "it is there", start[0], found.start[0])

    # -- one pattern ---------------------------------------------------------------------------------------------------

    def search(self, pattern: re.Pattern, start: Place, end: Place) -> _Found | None:
        """The first match between two places."""
        for row in range(start[0], min(end[0], len(self.lines) - 1) + 1):
            line = self.lines[row]
            match = pattern.search(line, start[1] if row == start[0] else 0, end[1] if row == end[0] else len(line))
            if match is not None:
                return _Found((row, match.start()), (row, match.end()), match.groupdict())
        return None

    def find(
        self, check: Check, start: Place, end: Place, message: str, rows: tuple[int, int] | None = None
    ) -> _Found:
        """The first match of ``check`` between two places. Without one, CheckFailure with ``message`` and the line that
        is most like it, of the lines from the first to the last of ``rows``, by default those that were searched.
        """
        found = self.search(self.pattern(check, start), start, end)
        if found is None:
            first, last = rows or (start[0], end[0])
            raise CheckFailure(check, message, first, self.nearest(check, range(first, min(last + 1, len(self.lines)))))
        return found

    def nearest(self, check: Check, rows: Iterable[int]) -> int | None:
        wanted = "".join(part.literal or self.kept.get(part.name, "") for part in check.parts)
        likeness = {row: difflib.SequenceMatcher(None, wanted, self.lines[row].strip()).ratio() for row in rows}
        row = max(likeness, key=likeness.get, default=None)
        return row if row is not None and likeness[row] >= LEAST_LIKENESS else None

    def pattern(self, check: Check, place: Place) -> re.Pattern:
        """``check`` as a regular expression, with the names of earlier ones replaced by what they stand for."""
        regex, own = "", set()
        for part in check.parts:
            if not part.name:
                regex += f"(?:{part.regex})" if part.regex else re.escape(part.literal)
            elif part.regex:
                regex += f"(?P<{part.name}>{part.regex})"
                own.add(part.name)
            elif part.name in own:
                regex += f"(?P={part.name})"
            elif part.name in self.kept:
                regex += re.escape(self.kept[part.name])
            else:
                raise CheckFailure(check, f"nothing above gives [[{part.name}]] a meaning", place[0])
        return re.compile(regex)

    def end_of(self, row: int, limit: Place) -> Place:
        """The end of a line, or ``limit`` where that comes first."""
        return min((row, len(self.lines[row])), limit) if row < len(self.lines) else limit


def _blocks(checks: Sequence[Check]) -> list[list[Check]]:
    """The checks up to each label and with it, then those after the last one."""
    blocks: list[list[Check]] = [[]]
    for check in checks:
        blocks[-1].append(check)
        if check.kind == "LABEL":
            blocks.append([])
    return blocks


def _groups(checks: Sequence[Check]) -> list[list[Check]]:
    """Each check alone, but those of CHECK-DAG in a row together."""
    return [
        part
        for kind, group in itertools.groupby(checks, key=lambda check: check.kind)
        for part in ([list(group)] if kind == "DAG" else [[check] for check in group])
    ]
