"""Text to fused graphs: every fault reported at its place. ``fused_printer`` says how the text looks.

Numbers and names of groups are for readers: they are read and forgotten. What a call does is not written but found
anew from the operators of its group, so that the two can never differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from euler_ir.errors import ParseError, VerifyError, did_you_mean
from euler_ir.graph import Graph, Op, Value
from euler_ir.graph_equality import attributes_key
from euler_ir.index import Axis, Index, Indices
from euler_ir.passes.groups import FusedGraph, Group, frame_axes, root_of
from euler_ir.passes.verify_fused import call_of, verify_fused
from euler_ir.shapes import TensorType
from euler_ir.text.parser import GraphParser
from euler_ir.text.printer import VERSION
from euler_ir.text.reader import FollowUp, Token

KINDS = ("pointwise", "reduction", "scatter", "update", "scan")
CALLS = ("matmul", "attention", "attention_gradient")
_STATEMENTS = ("group", "reads", "writes", "prologue", "output", "update")
"""The words that a statement begins with, where it does not begin with a value."""


def parse_fused(text: str, filename: str = "<text>") -> FusedGraph:
    """The fused graph that ``text`` describes, which keeps the rules of ``verify_fused``.

    Raises ParseError with the file, line and column of each fault, what was expected there, and the nearest known name
    for a misspelt one.
    """
    return _Parser(text, filename).fused()


@dataclass
class _Open:
    """A group, or a prologue, while its lines are read: the operators that they list, where each stands, and what these
    may read; ``axes`` are its loops by the names that the text gives them.
    """

    group: Group
    axes: dict[str, Axis]
    listed: dict[Op, Token] = field(default_factory=dict)
    visible: set[Value] = field(default_factory=set)
    written: list[tuple[Token, TensorType]] = field(default_factory=list)
    is_broken: bool = False  # a line was wrong: what others seem to lack may be its doing


class _Parser(GraphParser):
    def __init__(self, text: str, filename: str) -> None:
        super().__init__(text, filename, _STATEMENTS)
        self.groups: list[Group] = []
        self.places: dict[int, int] = {}  # where each group stands, by its id
        self.open: _Open | None = None

    def fused(self) -> FusedGraph:
        self.version(VERSION)
        start = self.token
        graph = self.head("fused")
        self.statements(lambda: self.statement(graph), "a value, 'group', 'output', 'update' or '}'")
        self.trailer(graph.ops)
        self.finish()
        fused = FusedGraph(self.completed(graph), tuple(self.groups))
        try:
            verify_fused(fused)
        except VerifyError as error:
            raise self.broken(error, self.places.get(id(error.subject), start.offset)) from None
        return fused

    def statement(self, graph: Graph) -> None:
        start = self.token
        if not self.accept("group"):
            super().statement(graph)
            return
        self.integer("the number of the group")
        self.name("the name of the group")
        self.expect(":")
        opened = self.group_head()
        self.lines(graph, opened, "a value, 'reads', 'writes', 'prologue' or '}'")
        if not opened.is_broken:
            self.complete(opened, start)
            self.places[id(opened.group)] = start.offset
            self.groups.append(opened.group)

    def lines(self, graph: Graph, opened: _Open, what: str) -> None:
        """Read the lines of ``opened``; those that are wrong are noted for `finish`."""
        outer, self.open = self.open, opened
        self.statements(lambda: self.line(graph), what)
        self.open = outer

    def line(self, graph: Graph) -> None:
        try:
            self.group_line(graph)
        except ParseError:
            self.open.is_broken = True
            raise

    # -- groups --------------------------------------------------------------------------------------------------------

    def group_head(self) -> _Open:
        """The kind and the loops of a group, up to the opening brace. What is wrong with them is noted for `finish`."""
        opened = _Open(Group("pointwise", (), len(self.groups)), {})
        try:
            self.kind_and_loops(opened)
            self.expect("{")
        except ParseError as error:
            self.keep(error)
            opened.is_broken = True
            while self.token.kind != "end" and not self.accept("{"):
                self.advance()
        return opened

    def kind_and_loops(self, opened: _Open) -> None:
        kind = self.take("word", "the kind of the group")
        if kind.text not in (*KINDS, *CALLS):
            hint = did_you_mean(kind.text, (*KINDS, *CALLS)) or f"use one of {', '.join((*KINDS, *CALLS))}"
            raise self.error(f"there is no kind of group {kind.text!r}", kind.offset, hint)
        loops = self.each(self.loop) if self.accept("for") else []
        opened.group.kind, opened.group.frame = kind.text, tuple(extent for _, extent in loops)
        opened.axes = dict(zip((name for name, _ in loops), frame_axes(opened.group.frame)))
        if len(opened.axes) < len(loops):
            raise self.error("two loops have the same name", kind.offset)
        if kind.text == "reduction":
            axes = self.each(lambda: self.axis(opened)) if self.accept("reducing") else []
            positions = {axis: position for position, axis in enumerate(opened.axes.values())}
            opened.group.reduced = tuple(sorted(positions[axis] for axis in axes))

    def loop(self) -> tuple[str, int]:
        name = self.name("the name of a loop")
        self.expect("in")
        return name, self.integer("how often the loop runs")

    def axis(self, opened: _Open) -> Axis:
        token = self.token
        name = self.name("the name of a loop")
        if name not in opened.axes and opened.is_broken:
            raise FollowUp(name)
        if name not in opened.axes:
            hint = did_you_mean(name, opened.axes) or f"the loops are {', '.join(opened.axes) or 'none'}"
            raise self.error(f"there is no loop {name!r} here", token.offset, hint)
        return opened.axes[name]

    def group_line(self, graph: Graph) -> None:
        if self.accept("reads"):
            values = tuple(self.find(*typed) for typed in self.each(self.typed_value))
            self.open.group.inputs += values
            self.open.visible.update(values)
        elif self.accept("writes"):
            self.open.written += self.each(self.typed_value)
        elif self.token.text == "prologue":
            self.prologue(graph)
        elif self.token.kind == "value":
            names = self.each(lambda: self.take("value", "a value"))
            try:
                self.computed(graph, names)
            except ParseError:
                self.failed.update(map(self.value_name, names))
                raise
        else:
            raise self.expected("a value, 'reads', 'writes', 'prologue' or '}'")

    def typed_value(self) -> tuple[Token, TensorType]:
        token = self.take("value", "a value")
        self.expect(":")
        return token, self.type()

    def find(self, token: Token, type: TensorType) -> Value:
        """The value of any group so far that is called as ``token`` says and has that type."""
        name = self.value_name(token)
        value = self.values.get(name)
        if value is None and name in self.failed:
            raise FollowUp(token.text)
        if value is None:
            hint = did_you_mean(token.text, [f"%{known}" for known in self.values])
            raise self.error(f"{token.text} is not made before", token.offset, hint)
        if value.type != type:
            raise self.error(f"{token.text} is {value.type}, not {type}", token.offset)
        return value

    def computed(self, graph: Graph, names: list[Token]) -> None:
        """An operator of the group; one that another group computes too must be the same there."""
        op, at = self.operation(graph, names)
        held = self.values.get(op.result.name)
        if held is None:
            self.add(graph, op, names, at)
        elif _same(held.op, op):
            op = held.op
        else:
            raise self.error(f"{names[0].text} is another operator in an earlier group", names[0].offset)
        if op in self.open.listed:
            raise self.error(f"{names[0].text} is computed twice in this group", names[0].offset)
        if self.accept("at"):
            self.open.group.roots[op.result] = self.indices()
        self.mark(op)
        self.open.listed[op] = names[0]
        self.open.visible.update(op.results)

    def indices(self) -> Indices:
        """Where in the loops a value is made: for each of its axes a loop, or 0."""
        self.expect("[")
        if self.accept("]"):
            return ()
        indices = tuple(self.each(self.place))
        self.expect("]")
        return indices

    def place(self) -> Index:
        if self.token.kind != "number":
            return Index.of(self.axis(self.open))
        if self.token.text != "0":
            raise self.expected("a loop or 0")
        self.advance()
        return Index()

    def use(self) -> Value:
        token = self.token
        value = super().use()
        if self.open is not None and value not in self.open.visible:
            if self.open.is_broken:
                raise FollowUp(token.text)
            what = f"{token.text} is neither read nor computed by this group before this use"
            raise self.error(what, token.offset, "put it behind 'reads', or copy the line that computes it")
        return value

    def prologue(self, graph: Graph) -> None:
        start = self.advance()
        written = self.take("value", "the operand that the prologue makes")
        self.expect("{")
        made = _Open(Group("pointwise", (), self.open.group.order), {})
        self.lines(graph, made, "a value, 'reads' or '}'")
        if made.is_broken:
            raise FollowUp(start.text)
        name = self.value_name(written)
        value = next((value for op in made.listed for value in op.results if value.name == name), None)
        if value is None or made.written or made.group.prologues or made.group.roots:
            raise self.error(f"a prologue has lines that compute {written.text}, and what they read", start.offset)
        group = made.group
        group.frame, group.outputs, group.ops, group.size = value.shape, (value,), [value.op], len(made.listed)
        group.roots = {value: root_of(value.shape, group, full=True)}
        self.expect_needed(made)
        self.open.group.prologues[value] = group
        self.open.listed |= made.listed
        self.open.visible.update((value, *(result for op in made.listed for result in op.results)))

    # -- what the lines say together -----------------------------------------------------------------------------------

    def complete(self, opened: _Open, start: Token) -> None:
        group = opened.group
        computed = {value.name: value for op in opened.listed for value in op.results}
        for token, type in opened.written:
            if self.value_name(token) not in computed:
                hint = did_you_mean(self.value_name(token), computed)
                raise self.error(f"{token.text} is written and not computed in this group", token.offset, hint)
            group.outputs += (self.find(token, type),)
        if not group.outputs:
            raise self.error("the group does not say what it writes", start.offset, "writes %value: f32[2, 3]")
        group.size = len(opened.listed)
        if group.kind not in CALLS:
            group.ops = [op for op in opened.listed if op.result in group.roots]
        else:
            self.complete_call(group, start)
        self.expect_needed(opened)

    def complete_call(self, group: Group, start: Token) -> None:
        if group.roots:
            raise self.error("the operators of a call are made at no indices of loops", start.offset)
        try:
            group.call = call_of(group)
        except VerifyError as error:
            raise self.broken(error, start.offset) from None
        group.ops = list(group.call.ops)
        group.outputs = tuple(dict.fromkeys(group.call.results))
        if set(group.inputs) == set(group.read_by_call):
            group.inputs = group.read_by_call

    def expect_needed(self, opened: _Open) -> None:
        needed = opened.group.computed()
        for op, token in opened.listed.items():
            if op not in needed:
                raise self.error(f"nothing that the group writes needs {token.text}", token.offset)

    def broken(self, error: VerifyError, place: int) -> ParseError:
        return self.error(error.message, place, error.hint, error.details)


def _same(held: Op, op: Op) -> bool:
    """Whether two lines say the same operator."""
    return (
        held.definition is op.definition
        and held.operands == op.operands
        and attributes_key(held.attributes) == attributes_key(op.attributes)
        and [(value.name, value.type) for value in held.results] == [(value.name, value.type) for value in op.results]
    )
