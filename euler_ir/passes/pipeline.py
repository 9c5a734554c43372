"""Pipelines: the passes between the user's graph and fusion in their order, and any list of passes as text.

pipeline = "none" or entry, entry, ...      an entry is a pass or a preset, which stands for all of its passes
pass     = name or name{option=value, ...}  see ``options`` for values
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Sequence
from typing import NoReturn

from euler_ir.errors import EulerError, ParseError, PassError, did_you_mean
from euler_ir.graph import Graph
from euler_ir.passes.attention_calls import OPERATORS as ATTENTION
from euler_ir.passes.instruments import Instrument
from euler_ir.passes.manager import PASSES, Pass, PassManager
from euler_ir.passes.options import OptionError, describe, format_option, read_option

# Each defines passes, so that a text may name them.
from euler_ir.passes import (  # noqa: F401, isort: skip
    cse,
    dce,
    decompose,
    fold,
    fuse,
    legalize,
    mixed_precision,
    pad_products,
    rematerialize,
    share_transposes,
    simplify,
    split_rows,
)

WHOLE = frozenset(ATTENTION)
"""Composites that backends run as they are."""

_DEFAULT = ",".join(
    (
        "dce",  # what nobody asked for is not worth decomposing
        "simplify",  # some rules look for whole composites
        "cse",  # two equal composites are decomposed once
        f"decompose{{keep={format_option(WHOLE)}}}",
        "simplify",
        "fold",
        "simplify",  # folding makes constants that rules look for
        "cse",
        "dce",
        "split-rows",  # what is equal is one value by now, and sums are whole
        "legalize",
        "simplify",
        "cse",
        "dce",
        "share-transposes",
    )
)

PRESETS = {
    "none": "",
    "default": _DEFAULT,
    "fast": _DEFAULT.replace("simplify", "simplify{numerics=approximate}"),
    "cuda": ",".join(
        (
            # A GPU has the memory for more of the logits, and large products suit it.
            _DEFAULT.replace("split-rows", "split-rows{block_bytes=536870912}").replace(
                "legalize", "legalize{half_calls=true,split_products=false},pad-products"
            ),
            # A GPU computes dozens of times in the time of a read: a GELU's slope again rather than keep it.
            "fuse{max_repeated=40,max_repeated_work=32,prologues=false}",
        )
    ),
}
"""Texts of pipelines by a name that can stand in other texts."""


class Pipeline(tuple):
    """Passes in order, as a tuple; ``str`` is the text that ``parse_pipeline`` reads back to an equal one."""

    def __str__(self) -> str:
        return ",".join(map(str, self)) or "none"


def parse_pipeline(text: str) -> Pipeline:
    """The passes that ``text`` names, such as ``simplify,cse,fuse{max_ops=64}``; presets become their passes.

    Raises ParseError with a caret under the fault, and what was meant or would be possible.
    """
    return _Parser(text).pipeline()


def as_pipeline(passes: str | Iterable[Pass]) -> Pipeline:
    """``passes``, given as text or as passes, checked.

    Raises ParseError for wrong text and PassError for what is no pass or follows the one that leaves the graph level.
    """
    if isinstance(passes, str):
        return parse_pipeline(passes)
    pipeline = Pipeline(passes)
    for position, each in enumerate(pipeline):
        if not isinstance(each, Pass):
            hint = f"write {each.__name__}()" if isinstance(each, type) and issubclass(each, Pass) else None
            raise PassError(f"{each!r} is not a pass", hint=hint)
        if position and pipeline[position - 1].level != "graph":
            raise PassError(_after_the_last(pipeline[position - 1]))
    return pipeline


def _after_the_last(last: Pass) -> str:
    return f"nothing can follow {last.name}, which leaves the level of graphs"


def find_pass(pipeline: Sequence[Pass], name: str) -> int:
    """The position of the pass ``name`` in ``pipeline``; ``name#2`` is the second of that name.

    Raises PassError for one that is not there, with those that are.
    """
    places: dict[str, int] = {}
    counts: dict[str, int] = {}
    for position, each in enumerate(pipeline):
        number = counts[each.name] = counts.get(each.name, 0) + 1
        places[f"{each.name}#{number}"] = position
    wanted = name if "#" in name else f"{name}#1"
    if wanted not in places:
        known = [place.removesuffix("#1") for place in places]
        hint = did_you_mean(name, known) or f"its passes are {', '.join(known) or 'none'}"
        raise PassError(f"there is no pass {name!r} in the pipeline", hint=hint)
    return places[wanted]


_TOKENS = re.compile(
    r"""(?P<space>\s+)
    |(?P<word>[A-Za-z0-9_.+-]+)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<empty>\{\})
    |(?P<mark>[{},=|])
    |(?P<strange>.)""",
    re.VERBOSE | re.DOTALL,
)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.lastgroup, m[0], m.start()) for m in _TOKENS.finditer(text) if m.lastgroup != "space"]
        self.tokens.append(("end", "", len(text.rstrip())))
        self.position = 0

    def fail(self, what: str, offset: int, hint: str | None = None) -> NoReturn:
        line = self.text.replace("\n", " ")
        raise ParseError(f"pipeline: {what}", details=(line, " " * offset + "^"), hint=hint)

    def expected(self, what: str) -> NoReturn:
        _, text, offset = self.tokens[self.position]
        self.fail(f"expected {what}, found {repr(text) if text else 'the end'}", offset)

    def accept(self, mark: str) -> bool:
        is_there = self.tokens[self.position][:2] == ("mark", mark)
        self.position += is_there
        return is_there

    def word(self, what: str) -> tuple[str, int]:
        kind, text, offset = self.tokens[self.position]
        if kind != "word":
            self.expected(what)
        self.position += 1
        return text, offset

    def pipeline(self) -> Pipeline:
        passes: list[Pass] = []
        if self.tokens[0][0] != "end":
            self.entry(passes)
            while self.accept(","):
                self.entry(passes)
            if self.tokens[self.position][0] != "end":
                self.expected("',' or the end")
        return Pipeline(passes)

    def entry(self, passes: list[Pass]) -> None:
        name, offset = self.word("the name of a pass or preset")
        if name in PRESETS:
            entry = parse_pipeline(PRESETS[name])
        elif name in PASSES:
            entry = (self.pass_(PASSES[name], offset),)
        else:
            hint = did_you_mean(name, (*PASSES, *PRESETS)) or "`euler-ir passes` lists them all"
            self.fail(f"there is no pass {name!r}", offset, hint)
        if entry and passes and passes[-1].level != "graph":
            self.fail(_after_the_last(passes[-1]), offset)
        passes.extend(entry)

    def pass_(self, made: type[Pass], offset: int) -> Pass:
        options: dict[str, object] = {}
        if self.tokens[self.position][0] == "empty":
            self.position += 1
        elif self.accept("{"):
            self.option(made, options)
            while self.accept(","):
                self.option(made, options)
            if not self.accept("}"):
                self.expected("',' or '}'")
        try:
            return made(**options)
        except (EulerError, TypeError, ValueError) as error:
            reason = error.message if isinstance(error, EulerError) else str(error)
            self.fail(f"{made.name}: {reason}", offset, getattr(error, "hint", None) or options_text(made))

    def option(self, made: type[Pass], options: dict[str, object]) -> None:
        types = typing.get_type_hints(made)
        known = [field.name for field in dataclasses.fields(made)]
        name, offset = self.word("the name of an option")
        if name not in known:
            self.fail(f"{made.name} has no option {name!r}", offset, did_you_mean(name, known) or options_text(made))
        if name in options:
            self.fail(f"option {name!r} is given twice", offset)
        if not self.accept("="):
            self.expected("'='")
        _, _, offset = self.tokens[self.position]
        items = [self.item()]
        while self.accept("|"):
            items.append(self.item())
        try:
            options[name] = read_option(types[name], items)
        except OptionError as error:
            self.fail(f"{made.name}: {name} is {'|'.join(items)}, {error}", offset, error.hint)

    def item(self) -> str:
        kind, text, _ = self.tokens[self.position]
        if kind not in ("word", "string", "empty"):
            self.expected("a value")
        self.position += 1
        return text


def options_text(made: type[Pass]) -> str:
    """The options of a pass with their types and defaults, in one line."""
    types = typing.get_type_hints(made)
    options = []
    for field in dataclasses.fields(made):
        default = "" if field.default is dataclasses.MISSING else f" (default {format_option(field.default)})"
        options.append(f"{field.name}: {describe(types[field.name])}{default}")
    return f"{made.name} takes {'; '.join(options)}" if options else f"{made.name} takes no options"


PIPELINE = parse_pipeline("default")
"""The passes between the user's graph and fusion."""


def optimize(graph: Graph, passes: str | Sequence[Pass] = PIPELINE, instruments: Iterable[Instrument] = ()) -> Graph:
    """``graph`` after ``passes``, watched by ``instruments``. Raises what PassManager raises."""
    return PassManager(as_pipeline(passes), instruments).run(graph)
