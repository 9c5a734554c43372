"""Text to graphs: one pass over the tokens, every fault reported at its place. ``printer`` says how the text looks."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from euler_ir.dtypes import DTYPES
from euler_ir.errors import EulerError, GraphError, Location, ParseError
from euler_ir.graph import Graph, Op, Value
from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.shapes import TensorType
from euler_ir.text.literals import FROM_TYPE, Literal, LiteralError, read_attribute
from euler_ir.text.printer import VERSION, is_default_name
from euler_ir.verify import operand_count_fault, random_streams

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
_TOKENS = re.compile(
    rf"""(?P<space>(?:\s|//[^\n]*)+)
    |(?P<value>%(?:{_WORD}|{_STRING})(?:\#[0-9]+)?)
    |(?P<string>{_STRING})
    |(?P<number>-?(?:inf\b|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)|nan\(0x[0-9a-f]+\)|nan\b)
    |(?P<type>[a-z][a-z0-9]*\[[0-9,\ ]*\])
    |(?P<word>{_WORD})
    |(?P<mark>[=:{{}}\[\](),@])
    |(?P<strange>.)""",
    re.VERBOSE,
)
_EXCERPT = 100
"""Characters of a long source line that a message shows."""


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


def parse_graph(text: str, filename: str = "<text>") -> Graph:
    """The graph that ``text`` describes.

    Raises ParseError with the file, line and column of the first fault, what was expected there, and the nearest
    known name for a misspelt one.
    """
    return _Parser(text, filename).graph()


class _Parser:
    def __init__(self, text: str, filename: str) -> None:
        self.text = text
        self.filename = filename
        self.tokens = [
            _Token(match.lastgroup, match[0], match.start())
            for match in _TOKENS.finditer(text)
            if match.lastgroup != "space"
        ]
        self.tokens.append(_Token("end", "", len(text.rstrip())))
        self.position = 0
        self.values: dict[str, Value] = {}
        self.types: dict[str, TensorType] = {}

    # -- tokens --------------------------------------------------------------------------------------------------------

    def error(self, what: str, offset: int, hint: str | None = None, details: tuple[str, ...] = ()) -> ParseError:
        """``what``, with the place, the source line and a caret under the fault."""
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        column = offset - start
        source = self.text[start:].split("\n", 1)[0].expandtabs(1)
        first = max(0, column - _EXCERPT // 2) if len(source) > _EXCERPT else 0
        caret = " " * (column - first) + "^"
        excerpt = source[first : first + _EXCERPT]
        return ParseError(
            f"{self.filename}:{line}:{column + 1}: {what}", details=(excerpt, caret, *details), hint=hint
        )

    def expected(self, what: str, token: _Token | None = None, words: Iterable[str] = ()) -> ParseError:
        token = token or self.tokens[self.position]
        found = repr(token.text) if token.text else "the end of the text"
        return self.error(f"expected {what}, found {found}", token.offset, _did_you_mean(token.text, words))

    def take(self, kind: str, what: str) -> _Token:
        """The next token, which must be of ``kind``."""
        token = self.tokens[self.position]
        if token.kind != kind:
            raise self.expected(what)
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        """Whether the next token is the mark or word ``text``, which is then consumed."""
        token = self.tokens[self.position]
        if token.text != text or token.kind not in ("mark", "word"):
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.expected(f"'{text}'")

    def string(self, what: str) -> str:
        token = self.take("string", what)
        return self.unquote(token.text, token.offset)

    def unquote(self, text: str, offset: int) -> str:
        try:
            return json.loads(text)
        except ValueError:
            raise self.error(f"{text} has an escape that JSON does not know", offset) from None

    def name(self, what: str) -> str:
        token = self.tokens[self.position]
        return self.string(what) if token.kind == "string" else self.take("word", what).text

    # -- statements ----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        self.expect("eir")
        version = self.take("number", "a version number")
        if version.text != str(VERSION):
            raise self.error(f"this is version {version.text} of the text form, not {VERSION}", version.offset)
        self.expect("graph")
        self.expect("@")
        graph = Graph(self.name("the name of the graph"))
        self.expect("{")
        while not self.accept("}"):
            token = self.tokens[self.position]
            if token.kind == "value":
                self.op(graph)
            elif token.text in ("output", "update"):
                self.end(graph)
            else:
                raise self.expected("a value, 'output', 'update' or '}'", words=("output", "update"))
        if self.tokens[self.position].kind != "end":
            raise self.expected("nothing after the graph")
        graph._streams = max((streams.stop - 1 for op in graph.ops if (streams := random_streams(op))), default=0)
        return graph

    def end(self, graph: Graph) -> None:
        keyword = self.take("word", "'output' or 'update'")
        name = self.string(f"the name of the {keyword.text} in double quotes")
        self.expect("=")
        value = self.use()
        if name in (graph.outputs if keyword.text == "output" else graph.updates):
            raise self.error(f"{keyword.text} {name!r} is given twice", keyword.offset)
        if keyword.text == "output":
            graph.outputs[name] = value
            return
        leaf = graph.leaf(name)
        if leaf is None:
            known = [other.op.attributes["name"] for other in (*graph.parameters, *graph.states)]
            hint = _did_you_mean(name, known)
            raise self.error(f"{name!r} is no parameter or state of the graph", keyword.offset, hint)
        try:
            graph.set_update(leaf, value)
        except GraphError as error:
            raise self.error(error.message, keyword.offset, error.hint, error.details) from None

    def op(self, graph: Graph) -> None:
        names = [self.take("value", "a value")]
        while self.accept(","):
            names.append(self.take("value", "a value"))
        self.expect("=")
        token = self.take("word", "an operator")
        if token.text not in OPS:
            raise self.error(f"there is no operator {token.text!r}", token.offset, _did_you_mean(token.text, OPS))
        definition = OPS[token.text]
        operands = self.operands()
        fault = operand_count_fault(definition, len(operands))
        if fault:
            raise self.error(fault, token.offset)
        literals = self.literals(definition)
        self.expect(":")
        types_at = self.tokens[self.position].offset
        types = self.result_types()
        if len(types) != len(names):
            raise self.error(f"{len(names)} values but {len(types)} types", types_at)
        attributes = self.attributes(definition, literals, types[0], token)
        self.check_types(definition, operands, attributes, types, token, types_at)
        op = Op(definition, operands, attributes, types, graph, *self.origin())
        graph.ops.append(op)
        if definition.has_identity:
            self.add_leaf(graph, op, token)
        for name, value in zip(names, op.results):
            self.define(name, value)

    def operands(self) -> tuple[Value, ...]:
        if self.tokens[self.position].kind != "value":
            return ()
        operands = [self.use()]
        while self.accept(","):
            operands.append(self.use())
        return tuple(operands)

    def result_types(self) -> list[TensorType]:
        types = [self.type()]
        while self.accept(","):
            types.append(self.type())
        return types

    def type(self) -> TensorType:
        token = self.take("type", "a type such as f32[2, 3]")
        known = self.types.get(token.text)
        if known is not None:
            return known
        dtype, sizes = token.text[:-1].split("[")
        if dtype not in DTYPES:
            raise self.error(f"there is no element type {dtype!r}", token.offset, _did_you_mean(dtype, DTYPES))
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not all(part.isdigit() for part in parts):
            raise self.error(f"[{sizes}] is not a shape", token.offset, "sizes are separated by commas: f32[2, 3]")
        return self.types.setdefault(token.text, TensorType(DTYPES[dtype], tuple(map(int, parts))))

    def origin(self) -> tuple[Location | None, str]:
        location = None
        if self.accept("@"):
            file = self.string("a file in double quotes")
            self.expect(":")
            line = int(self.take("number", "a line number").text)
            self.expect("in")
            location = Location(file, line, self.name("a function"))
        return location, self.string("a scope in double quotes") if self.accept("scope") else ""

    # -- values --------------------------------------------------------------------------------------------------------

    def use(self) -> Value:
        token = self.take("value", "a value")
        value = self.values.get(token.text)
        if value is None:
            hint = _did_you_mean(token.text, self.values)
            raise self.error(f"{token.text} is not defined before this use", token.offset, hint)
        return value

    def define(self, token: _Token, value: Value) -> None:
        if token.text in self.values:
            raise self.error(f"{token.text} is defined twice", token.offset)
        self.values[token.text] = value
        body = token.text[1:]
        if body.startswith('"'):
            value.name = self.unquote(body[: body.rindex('"') + 1], token.offset)
        else:
            hint = body.split("#")[0]
            value.name = None if is_default_name(hint, value.op.name) else hint

    def add_leaf(self, graph: Graph, op: Op, token: _Token) -> None:
        name = op.attributes["name"]
        held = graph.leaf(name)
        if held is not None:
            raise self.error(f"graph {graph.name!r} already has {held.op.name} {name!r}", token.offset)
        graph._leaves[name] = op.result

    # -- attributes ----------------------------------------------------------------------------------------------------

    def literals(self, definition: OpDefinition) -> dict[str, Literal]:
        """The attributes in braces, by name, not yet turned into what their kind wants."""
        literals: dict[str, Literal] = {}
        if not self.accept("{"):
            return literals
        known = [name for name in definition.attributes if name not in FROM_TYPE]
        while True:
            token = self.take("word", "the name of an attribute")
            if token.text in literals:
                raise self.error(f"attribute {token.text!r} is given twice", token.offset)
            if token.text not in known:
                hint = _did_you_mean(token.text, known) or _alternatives(definition, known)
                raise self.error(f"{definition.name} has no attribute {token.text!r} here", token.offset, hint)
            self.expect("=")
            literals[token.text] = self.literal()
            if self.accept("}"):
                return literals
            if not self.accept(","):
                raise self.expected("',' or '}'")

    def literal(self) -> Literal:
        """A number, string, word, call or nested list. Lists that are still open are kept on a stack."""
        unfinished: list[Literal] = []
        while True:
            offset = self.tokens[self.position].offset
            if self.accept("["):
                item = Literal("list", "", offset)
                if not self.accept("]"):
                    unfinished.append(item)
                    continue
            else:
                item = self.scalar()
            while unfinished:
                unfinished[-1].items.append(item)
                if self.accept(","):
                    break
                if not self.accept("]"):
                    raise self.expected("',' or ']'")
                item = unfinished.pop()
            else:
                return item

    def scalar(self) -> Literal:
        token = self.tokens[self.position]
        if token.kind not in ("number", "string", "word"):
            raise self.expected("a number, a string, a word or a list")
        self.position += 1
        text = self.unquote(token.text, token.offset) if token.kind == "string" else token.text
        if token.kind != "word" or not self.accept("("):
            return Literal(token.kind, text, token.offset)
        call = Literal("call", text, token.offset)
        while not self.accept(")"):
            if call.items:
                self.expect(",")
            argument = self.tokens[self.position]
            if argument.kind not in ("number", "string"):
                raise self.expected("a number, a string or ')'")
            self.position += 1
            inner = self.unquote(argument.text, argument.offset) if argument.kind == "string" else argument.text
            call.items.append(Literal(argument.kind, inner, argument.offset))
        return call

    def attributes(self, definition: OpDefinition, literals: dict[str, Literal], type: TensorType, token) -> dict:
        attributes = {}
        for name, kind in definition.attributes.items():
            if name in FROM_TYPE:
                attributes[name] = getattr(type, name)
                continue
            if name not in literals:
                raise self.error(f"{definition.name} lacks attribute {name!r} of kind {kind}", token.offset)
            try:
                attributes[name] = read_attribute(kind, literals[name], type)
            except LiteralError as error:
                what = f"{definition.name}, attribute {name!r}: {error}"
                hint = _did_you_mean(error.literal.text, error.words)
                raise self.error(what, error.literal.offset, hint) from None
        return attributes

    def check_types(self, definition, operands, attributes, types, token: _Token, types_at: int) -> None:
        try:
            inferred = definition.infer(tuple(value.type for value in operands), attributes)
        except EulerError as error:
            raise self.error(error.message, token.offset, error.hint, _describe(operands)) from None
        if list(inferred) != types:
            what = f"{definition.name} gives {', '.join(map(str, inferred))} here, another type is written"
            raise self.error(what, types_at, None, _describe(operands))


def _describe(operands: tuple[Value, ...]) -> tuple[str, ...]:
    return tuple(value.describe() for value in operands)


def _did_you_mean(word: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None


def _alternatives(definition: OpDefinition, known: list[str]) -> str:
    return f"{definition.name} takes {', '.join(known)}" if known else f"{definition.name} takes none in braces"
