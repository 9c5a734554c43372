"""Text to graphs: one pass over the tokens, every fault reported at its place. ``printer`` says how the text looks."""

from __future__ import annotations

import os
from collections.abc import Sequence

from euler_ir.dtypes import DTYPES
from euler_ir.errors import EulerError, GraphError, ParseError, did_you_mean
from euler_ir.graph import Graph, Op, Value
from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.shapes import MAX_AXES, TensorType
from euler_ir.text.literals import FROM_TYPE, Literal, LiteralError, read_attribute
from euler_ir.text.origins import read_origins
from euler_ir.text.printer import VERSION
from euler_ir.text.reader import FollowUp, Reader, Token
from euler_ir.text.resources import fill, read_resources
from euler_ir.verify import operand_count_fault, random_streams

LEVELS = ("graph", "fused", "kernel")
"""The words that follow the version line of a file."""
_STATEMENTS = ("output", "update")
"""The words that a statement of a graph begins with, where it does not begin with a value."""
_LONGEST_SIZE = 18
"""Digits of a size: what has more is no 64-bit number."""


def parse_graph(text: str, filename: str = "<text>") -> Graph:
    """The graph that ``text`` describes.

    Raises ParseError for what is wrong with it, for each error with the file, line and column, what was expected
    there, and the nearest known name for a misspelt one. Data of large constants that the text lacks are looked for
    beside the file ``filename``: see `text.resources`.
    """
    return GraphParser(text, filename, _STATEMENTS).graph()


def unpickled_graph(text: str, folder: str) -> Graph:
    """The graph of a pickle, which holds its ``text`` with paths relative to ``folder``."""
    parser = GraphParser(text, "<pickle>", _STATEMENTS)
    parser.folder = folder
    return parser.graph()


class GraphParser(Reader):
    """Reads a graph; the parser of the fused level reads its operators with it."""

    def __init__(self, text: str, filename: str, begins: Sequence[str]) -> None:
        super().__init__(text, filename, begins)
        self.values: dict[str, Value] = {}
        self.failed: set[str] = set()
        self.folder = os.getcwd()
        self.marks: list[tuple[Op, int, int]] = []
        self.types: dict[str, TensorType] = {}

    # -- statements ----------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        self.version(VERSION)
        graph = self.head("graph")
        self.statements(lambda: self.statement(graph), "a value, 'output', 'update' or '}'")
        self.trailer(graph.ops)
        self.finish()
        return self.completed(graph)

    def head(self, level: str) -> Graph:
        """An empty graph of the name that follows the word ``level``, up to the opening brace."""
        if self.token.text != level and self.token.text in LEVELS:
            what = f"this is a file of level {self.token.text!r}, not {level!r}"
            raise self.error(what, self.token.offset, "euler-ir run and euler-ir kernel take files of any level")
        self.expect(level)
        self.expect("@")
        graph = Graph(self.name("the name of the graph"))
        self.expect("{")
        return graph

    def completed(self, graph: Graph) -> Graph:
        graph._streams = max((streams.stop - 1 for op in graph.ops if (streams := random_streams(op))), default=0)
        return graph

    def trailer(self, ops: list[Op]) -> None:
        """What follows the graph: the table of origins, and the data of large constants."""
        try:
            origins, data = read_origins(self, self.folder), read_resources(self)
            for op, number, offset in self.marks:
                if number not in origins:
                    raise self.error(f"there is no location @{number}", offset)
                op.location, op.scope, op.via = origins[number]
            if self.token.kind != "end":
                raise self.expected("nothing after the graph", ("loc", "resource"))
            fill(ops, data, self.filename)
        except ParseError as error:
            self.keep(error)

    def statement(self, graph: Graph) -> None:
        if self.token.kind != "value":
            self.end(graph)
            return
        names = self.each(lambda: self.take("value", "a value"))
        try:
            self.op(graph, names)
        except ParseError:
            self.failed.update(map(self.value_name, names))
            raise

    def end(self, graph: Graph) -> None:
        keyword = self.advance()
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
            hint = did_you_mean(name, known)
            raise self.error(f"{name!r} is no parameter or state of the graph", keyword.offset, hint)
        try:
            graph.set_update(leaf, value)
        except GraphError as error:
            raise self.error(error.message, keyword.offset, error.hint, error.details) from None

    def op(self, graph: Graph, names: list[Token]) -> None:
        op, at = self.operation(graph, names)
        self.add(graph, op, names, at)
        self.mark(op)

    def add(self, graph: Graph, op: Op, names: list[Token], at: Token) -> None:
        """Put ``op``, whose values are called ``names`` and whose operator stands ``at`` there, into ``graph``."""
        self.take_names(graph, names)
        if op.definition.has_identity:
            self.add_leaf(graph, op, at)
        graph.ops.append(op)
        self.values.update((value.name, value) for value in op.results)

    def operation(self, graph: Graph, names: list[Token]) -> tuple[Op, Token]:
        """The op whose line begins with ``names``, read up to its types, and its operator; not in ``graph`` yet."""
        self.expect("=")
        token = self.take("word", "an operator")
        if token.text not in OPS:
            raise self.error(f"there is no operator {token.text!r}", token.offset, did_you_mean(token.text, OPS))
        definition = OPS[token.text]
        operands = tuple(self.each(self.use)) if self.token.kind == "value" else ()
        fault = operand_count_fault(definition, len(operands))
        if fault:
            raise self.error(fault, token.offset)
        literals = self.literals(definition)
        self.expect(":")
        types_at = self.token.offset
        types = self.each(self.type)
        if len(types) != len(names):
            raise self.error(f"{len(names)} values but {len(types)} types", types_at)
        attributes = self.attributes(definition, literals, types[0], token)
        self.check_types(definition, operands, attributes, types, token, types_at)
        return Op(definition, operands, attributes, types, list(map(self.value_name, names)), graph), token

    def mark(self, op: Op) -> None:
        """The number of the location of ``op``, if there is one."""
        if self.accept("@"):
            at = self.token.offset
            self.marks.append((op, self.integer("the number of a location"), at))

    def type(self) -> TensorType:
        token = self.take("type", "a type such as f32[2, 3]")
        known = self.types.get(token.text)
        if known is not None:
            return known
        dtype, sizes = token.text[:-1].split("[")
        if dtype not in DTYPES:
            raise self.error(f"there is no element type {dtype!r}", token.offset, did_you_mean(dtype, DTYPES))
        parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
        if not all(part.isdigit() and len(part) <= _LONGEST_SIZE for part in parts):
            raise self.error(f"[{sizes}] is not a shape", token.offset, "sizes are separated by commas: f32[2, 3]")
        if len(parts) > MAX_AXES:
            raise self.error(f"a tensor has at most {MAX_AXES} axes, not {len(parts)}", token.offset)
        return self.types.setdefault(token.text, TensorType(DTYPES[dtype], tuple(map(int, parts))))

    # -- values --------------------------------------------------------------------------------------------------------

    def use(self) -> Value:
        token = self.take("value", "a value")
        name = self.value_name(token)
        value = self.values.get(name)
        if value is None:
            what = f"{token.text} is not defined before this use"
            if name in self.failed:
                raise FollowUp(what)
            raise self.error(what, token.offset, did_you_mean(token.text, [f"%{known}" for known in self.values]))
        return value

    def take_names(self, graph: Graph, tokens: list[Token]) -> None:
        """Let no other values be called as ``tokens`` say."""
        for token in tokens:
            name = self.value_name(token)
            if name in graph._names:
                raise self.error(f"{token.text} is defined twice", token.offset)
            graph._names.take(name)

    def add_leaf(self, graph: Graph, op: Op, token: Token) -> None:
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
                hint = did_you_mean(token.text, known) or _alternatives(definition, known)
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
            offset = self.token.offset
            if self.accept("["):
                item = Literal("list", "", offset)
                if not self.accept("]"):
                    unfinished.append(item)
                    if len(unfinished) > MAX_AXES:
                        raise self.error(f"lists are nested at most {MAX_AXES} deep", offset)
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
        if self.token.kind not in ("number", "string", "word"):
            raise self.expected("a number, a string, a word or a list")
        token = self.advance()
        text = self.unquote(token.text, token.offset) if token.kind == "string" else token.text
        if token.kind != "word" or not self.accept("("):
            return Literal(token.kind, text, token.offset)
        call = Literal("call", text, token.offset)
        while not self.accept(")"):
            if call.items:
                self.expect(",")
            if self.token.kind not in ("number", "string", "word"):
                raise self.expected("a number, a string or ')'")
            argument = self.advance()
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
                hint = did_you_mean(error.literal.text, error.words)
                raise self.error(what, error.literal.offset, hint) from None
        return attributes

    def check_types(self, definition, operands, attributes, types, token: Token, types_at: int) -> None:
        try:
            inferred = definition.infer(tuple(value.type for value in operands), attributes)
        except EulerError as error:
            raise self.error(error.message, token.offset, error.hint, _describe(operands)) from None
        if list(inferred) != types:
            what = f"{definition.name} gives {', '.join(map(str, inferred))} here, another type is written"
            raise self.error(what, types_at, None, _describe(operands))


def _describe(operands: tuple[Value, ...]) -> tuple[str, ...]:
    return tuple(value.describe() for value in operands)


def _alternatives(definition: OpDefinition, known: list[str]) -> str:
    return f"{definition.name} takes {', '.join(known)}" if known else f"{definition.name} takes none in braces"
