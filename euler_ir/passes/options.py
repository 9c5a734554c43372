"""Options of passes as text and back, by the types of the fields that hold them.

A number, ``true`` or ``false``, ``none``, a word or a string in double quotes, and several of them with ``|`` between:
``keep=attention|softmax``. ``{}`` is a set of nothing.
"""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from typing import Literal, Union

from euler_ir.errors import PassError, did_you_mean

WORD = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_RESERVED = ("none", "true", "false")
EMPTY = "{}"


class OptionError(Exception):
    """Text that is not of the wanted type; ``hint`` is what it may be meant for, or None."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def format_option(value) -> str:
    """``value`` as the text that ``read_option`` reads."""
    if isinstance(value, (frozenset, set)):
        return "|".join(sorted(map(format_option, value))) or EMPTY
    if isinstance(value, tuple):
        return "|".join(map(format_option, value)) or EMPTY
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, str):
        return value if WORD.match(value) and value not in _RESERVED else json.dumps(value)
    return repr(value)


def read_option(wanted, items: list[str]):
    """The value of type ``wanted`` that ``items``, what stood between ``|``, say; strings are still in quotes.

    ``wanted`` is bool, int, float, str, an Enum, a Literal, a set or tuple of one of these, or one of these or None.
    Raises OptionError.
    """
    kind, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if kind in (Union, types.UnionType) and type(None) in arguments:
        rest = tuple(each for each in arguments if each is not type(None))
        return None if items == ["none"] else read_option(rest[0], items)
    if kind in (frozenset, tuple):
        return kind(read_option(arguments[0], [item]) for item in items if item != EMPTY)
    if len(items) != 1:
        raise OptionError(f"expected {describe(wanted)}, not several")
    return _read_one(wanted, items[0])


def expect_at_least(least: int, **options: int) -> None:
    """Raise PassError for one of ``options``, the values of a pass's options by name, that is less than ``least``."""
    for name, value in options.items():
        if value < least:
            raise PassError(f"{name} is {value}, expected at least {least}")


def describe(wanted) -> str:
    """What text of type ``wanted`` is, for messages: 'an integer', 'exact or better'."""
    kind, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if kind in (Union, types.UnionType):
        return f"{describe(arguments[0])} or none"
    if kind in (frozenset, tuple):
        return f"{describe(arguments[0])}, or several with | between"
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a word or a string in double quotes"}
    return names.get(wanted) or " or ".join(_choices(wanted))


def _choices(wanted) -> dict:
    """The values of a Literal or an Enum by their text."""
    if typing.get_origin(wanted) is Literal:
        return {format_option(choice): choice for choice in typing.get_args(wanted)}
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return dict(wanted.__members__)
    raise OptionError(f"options of type {wanted} have no text")


def _read_one(wanted, item: str):
    try:
        if wanted is str:
            return json.loads(item) if item.startswith('"') else item
        if wanted is bool:
            return {"true": True, "false": False}[item]
        if wanted in (int, float):
            return wanted(item)
    except (KeyError, ValueError):
        raise OptionError(f"expected {describe(wanted)}") from None
    choices = _choices(wanted)
    if item not in choices:
        raise OptionError(f"expected {describe(wanted)}", did_you_mean(item, choices))
    return choices[item]
