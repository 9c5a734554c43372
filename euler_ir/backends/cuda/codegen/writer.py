"""Lines of CUDA C++ with their indentation, and names in it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

LINE = 120
"""The most characters of a line, if it can be broken."""

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const const_cast constexpr
continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto
if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
register reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
xor_eq
"""
_TAKEN = "eir threadIdx blockIdx blockDim gridDim warpSize assert linux unix NULL INFINITY NAN EOF errno"
_RESERVED = frozenset((*_KEYWORDS.split(), *_TAKEN.split()))


def c_name(text: str) -> str:
    """``text`` as an identifier of C++ that is no keyword."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "unnamed"
    return f"{name}_" if name in _RESERVED else f"n{name}" if name[0].isdigit() else name


class Names:
    """An identifier for each thing that has a name in a nest, near to that name; no two have the same one."""

    def __init__(self, *reserved: str) -> None:
        self._taken = set(reserved)
        self._of: dict[Hashable, str] = {}

    def of(self, kind: str, name: str) -> str:
        """The identifier of the ``kind`` of thing called ``name``: a buffer and a scalar may share a name."""
        if (kind, name) not in self._of:
            self._of[kind, name] = self.new(name)
        return self._of[kind, name]

    def give(self, kind: str, name: str, identifier: str) -> None:
        """From now on the ``kind`` of thing called ``name`` has an ``identifier`` that is there already."""
        self._of[kind, name] = identifier

    def new(self, wanted: str) -> str:
        """An identifier like ``wanted`` that nobody else has."""
        base = name = c_name(wanted)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


class Writer:
    """Collects lines; ``depth`` levels in."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[str] = []
        self._depth = depth

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text if text else "")

    def comment(self, text: str) -> None:
        self.line(f"// {text}")

    def list(self, begin: str, items: list[str], end: str) -> None:
        """``items`` between ``begin`` and ``end``: in one line, or in as many as they need."""
        line = begin + ", ".join(items) + end
        if 4 * self._depth + len(line) <= LINE:
            self.line(line)
            return
        self.line(begin)
        with self.indented(2):
            rest = items
            while rest:
                count = 1
                while count < len(rest) and 4 * self._depth + len(", ".join(rest[: count + 1])) < LINE:
                    count += 1
                self.line(", ".join(rest[:count]) + ("," if rest[count:] else end))
                rest = rest[count:]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands in braces after ``head``."""
        self.line(f"{head} {{".lstrip())
        with self.indented():
            yield
        self.line("}")

    @contextmanager
    def indented(self, levels: int = 1) -> Iterator[None]:
        """What is written inside stands ``levels`` deeper."""
        self._depth += levels
        yield
        self._depth -= levels
