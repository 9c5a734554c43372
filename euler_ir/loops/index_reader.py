"""Index expressions as text: sums of multiples of axes and checked indices, with ``floordiv`` and ``mod``.

They are brought into their normal form, so that ``(128 i + j) floordiv 128`` is read as what it comes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from euler_ir.errors import did_you_mean
from euler_ir.index import Axis, Bound, Condition, Dynamic, Index, Multiple
from euler_ir.loops.printer import KEYWORDS
from euler_ir.text.reader import Reader

MOST = 2**63 - 1
MOST_NESTED = 64
"""Loops inside of each other, or parentheses: whatever walks over a kernel recurses as deep."""


@dataclass(frozen=True)
class Scope:
    """What an index can mention: the axes around it, and the extents of checked indices."""

    axes: dict[str, Axis]
    checked: dict[str, int]

    def inside(self, axes: tuple[Axis, ...]) -> Scope:
        return Scope(self.axes | {axis.name: axis for axis in axes}, dict(self.checked))


class IndexReader(Reader):
    """Reads indices and conditions. ``depth`` counts the blocks and parentheses that are open."""

    def __init__(self, text: str, filename: str, begins: Sequence[str] = ()) -> None:
        super().__init__(text, filename, begins)
        self.depth = 0

    def index(self, scope: Scope) -> Index:
        """A sum of terms such as ``4 i``, ``%row``, ``3 (i floordiv 2)`` and ``-1``."""
        total = self.term(scope, -1 if self.accept("-") else 1)
        while True:
            token = self.token
            if self.accept("+"):
                total = total + self.term(scope, 1)
            elif self.accept("-"):
                total = total + self.term(scope, -1)
            elif token.kind == "number" and token.text.startswith("-"):
                total = total + self.term(scope, 1)
            else:
                return total

    def term(self, scope: Scope, sign: int) -> Index:
        token = self.token
        if token.kind != "number":
            return self.divided(self.atom(scope)) * sign
        factor = sign * self.whole("a number")
        place = self.token.offset
        if self.token.text == "*":
            raise self.error("a multiple is written without a '*'", place, "4 i is four times i")
        if not self.is_atom():
            return Index.of(factor)
        atom = self.atom(scope)
        if self.token.text in ("floordiv", "mod"):
            raise self.error("what is divided needs parentheses", place, "3 (i floordiv 2), (3 i) mod 4")
        return atom * factor

    def is_atom(self) -> bool:
        """Whether an atom follows here, and not the end of the index: no statement begins with ``(``, and those that
        begin with a value go on with its type or ``=``.
        """
        token = self.token
        if token.kind == "value":
            return not self.follows(":", "=")
        return token.text == "(" or token.kind == "string" or (token.kind == "word" and token.text not in KEYWORDS)

    def divided(self, index: Index) -> Index:
        while True:
            if self.accept("floordiv"):
                index = index // self.whole("a positive number", least=1)
            elif self.accept("mod"):
                index = index % self.whole("a positive number", least=1)
            else:
                return index

    def atom(self, scope: Scope) -> Index:
        token = self.token
        if self.accept("("):
            with self.nested():
                index = self.index(scope)
            self.expect(")")
            return index
        if token.kind == "value":
            name = self.value_name(self.take("value", "a checked index"))
            if name not in scope.checked:
                hint = did_you_mean(name, scope.checked) or f"%{name} = check ... makes one of an integer"
                raise self.error(f"%{name} is no checked index here", token.offset, hint)
            return Index.of(Dynamic(name, scope.checked[name]))
        name = self.name("an axis, a checked index, a number or '('")
        if name not in scope.axes:
            around = ", ".join(scope.axes) or "none"
            hint = did_you_mean(name, scope.axes) or f"the axes here are {around}"
            raise self.error(f"there is no axis {name!r} around this", token.offset, hint)
        return Index.of(scope.axes[name])

    def conditions(self, scope: Scope) -> tuple[Condition, ...]:
        if not self.accept("if"):
            return ()
        conditions = [self.condition(scope)]
        while self.accept("and"):
            conditions.append(self.condition(scope))
        return tuple(conditions)

    def condition(self, scope: Scope) -> Condition:
        """``0 <= i - 1 < 4`` or ``(i + 1) mod 2 == 0``."""
        if self.follows("<="):
            low = self.whole("the least value")
            self.expect("<=")
            index = self.index(scope)
            self.expect("<")
            return Bound(index, low, self.whole("the end of the values"))
        index = self.atom(scope)
        self.expect("mod")
        divisor = self.whole("a positive number", least=1)
        self.expect("==")
        place = self.token.offset
        if self.whole("0"):
            raise self.error("a condition on multiples ends with '== 0'", place)
        return Multiple(index, divisor)

    def follows(self, *texts: str) -> bool:
        """Whether the token after the next one is one of ``texts``."""
        token = self.advance()
        found = self.token.text in texts
        self._move(token.offset)
        return found

    def whole(self, what: str, least: int | None = None) -> int:
        if self.token.kind != "number" or not self.token.text.lstrip("-").isdecimal():
            raise self.expected(what)
        token = self.advance()
        number = self.bounded(token.text, token.offset)
        if least is not None and number < least:
            raise self.error(f"expected {what} of {least} or more, found {number}", token.offset)
        return number

    def bounded(self, digits: str, offset: int) -> int:
        """The integer ``digits``, which 64 bits hold."""
        if len(digits) > len(str(MOST)) or abs(int(digits)) > MOST:
            raise self.error(f"the number is larger than {MOST}", offset)
        return int(digits)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A block or parentheses; refuses too many inside of each other."""
        if self.depth == MOST_NESTED:
            raise self.error(f"this is nested more than {MOST_NESTED} deep", self.token.offset)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
