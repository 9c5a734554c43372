"""Rules by example: a function that writes down the graph before and the graph after.

    @rewrite_rule("exp-of-sum", numerics="reassociating")
    def _(x: float, y: float):
        return ei.exp(x) * ei.exp(y), ei.exp(x + y)

Positional arguments stand for any value, annotated ``float``, ``int`` or ``bool`` for one of such elements, and
annotated ``Number`` for a constant number, which the function is given as a Python number. Arguments after a ``*``
stand for the attribute of that name, with an example as default. What comes before may be a list of spellings.

The function is called once on examples, which gives the pattern; then, where the pattern is found, on values of the
types found there, whose graph must agree with what is there in every attribute and number; at last on the values
themselves, in the graph that is being made.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from euler_ir.dtypes import DTYPES, DType, bool_, f64, i32
from euler_ir.errors import EulerError, Location, PassError
from euler_ir.graph import Graph, Op, Value
from euler_ir.graph_equality import attribute_key
from euler_ir.ops.definition import OPS
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.patterns import (
    DTYPES_OF,
    Anything,
    Apply,
    Bound,
    Either,
    Number,
    Pattern,
    merged,
    number_of,
    parts,
    same_number,
    show,
)
from euler_ir.passes.rewriting import Match, Rule, register

_DTYPES = {float: DTYPES_OF["float"], int: DTYPES_OF["integer"], bool: DTYPES_OF["bool"]}
_EXAMPLE_DTYPES = {float: f64, int: i32, bool: bool_}
_SHAPES = (((4, 4), (6, 6)), ((4,), (6,)), ((2, 4, 4), (3, 6, 6)), ((2, 3, 4, 4), (3, 2, 6, 6)))
"""Pairs of shapes to try a function on: what differs between the two depends on the shape."""
_NUMBERS = {float: (0.731059, 1.380661, 2.718282, 0.577216, 3.141593), int: (37, 41, 43, 47, 53)}
"""What stands for a constant number, in functions of floats and of integers; they are found again by their value."""
_SAMPLE_SHAPES = ((), (1,), (3,), (0,), (3, 5), (1, 4), (4, 4), (2, 1, 3), (2, 4, 4), (2, 2, 3, 3))
_SAMPLE_NUMBERS = (0.5, 3.0, -2.0, 0.1, 1024.0, -0.375, 7.0, 1e-3)
"""What graphs that a rule is tried on are drawn from."""
_MOST_PARTS = 200
"""Parts of a pattern: what is shared in the function is looked for as often as it is used."""


def rewrite_rule(
    name: str,
    numerics: str,
    guard: Callable[..., str | None] | None = None,
    tolerance: float = 0.0,
    used_once: bool = False,
) -> Callable[[Callable], Rule]:
    """Make a rule of a function that returns what to look for and what to put in its place, and register it.

    ``numerics`` is one of NUMERICS. ``guard`` is given those of the function's arguments that it names, as they were
    found, and gives None or the reason why the rule must stay away. Constants may differ by ``tolerance``, relative to
    the written ones, beside what their dtype rounds off. With ``used_once`` nothing else may use what is in between.
    Raises PassError for a function that no example fits, or that gives no pattern.
    """

    def decorate(function: Callable) -> Rule:
        example = Example(name, function, guard, tolerance, used_once)
        return register(example.rule(numerics))[0]

    return decorate


@dataclass(frozen=True)
class _Argument:
    name: str
    kind: object
    """float, int or bool, or Any; Number; or 'attribute', whose example is ``default``."""
    default: object = None


class Example:
    """A function as described above, and what it was found to mean."""

    def __init__(self, name: str, function: Callable, guard, tolerance: float, used_once: bool) -> None:
        self.name = name
        self.function = function
        self.guard = guard
        self.tolerance = tolerance
        self.used_once = used_once
        code = function.__code__
        self.location = Location(code.co_filename, code.co_firstlineno, code.co_name)
        self.arguments = self._arguments()
        self.instances: dict[tuple, _Instance] = {}
        self.guarded = set(inspect.signature(guard).parameters) if guard else set()
        unknown = self.guarded - {argument.name for argument in self.arguments}
        if unknown:
            raise self._error(f"the guard wants {min(unknown)!r}, which is no argument of the rule")
        self.patterns, self.after = self._patterns()
        self.is_checked = any(map(_needs_a_look, (part for pattern in self.patterns for part in parts(pattern))))

    def rule(self, numerics: str) -> Rule:
        doc = inspect.getdoc(self.function) or f"{show(self.patterns[0])} = {show(self.after)}"
        patterns = self.patterns if self.is_checked else merged(self.patterns)
        pattern = patterns[0] if len(patterns) == 1 else Either(tuple(patterns))
        return Rule(self.name, numerics, doc, pattern, self.build, self.refusal, self.location, self.sample)

    def _error(self, message: str, hint: str | None = None) -> PassError:
        return PassError(f"rule {self.name!r}: {message}", location=self.location, hint=hint)

    # -- what the function says ----------------------------------------------------------------------------------------

    def _arguments(self) -> list[_Argument]:
        arguments = []
        for each in inspect.signature(self.function, eval_str=True).parameters.values():
            if each.kind is each.KEYWORD_ONLY:
                if each.default is each.empty:
                    raise self._error(f"attribute {each.name!r} has no example", f"write `{each.name}=...`")
                arguments.append(_Argument(each.name, "attribute", each.default))
            elif each.kind is each.POSITIONAL_OR_KEYWORD:
                kind = object if each.annotation is each.empty else each.annotation
                if kind not in (object, Number, *_DTYPES) and not isinstance(kind, DType):
                    raise self._error(f"argument {each.name!r} is annotated {kind!r}", "use float, int, bool or Number")
                arguments.append(_Argument(each.name, kind))
            else:
                raise self._error(f"takes {each}", "name each argument")
        return arguments

    def _patterns(self) -> tuple[list[Pattern], Pattern]:
        """What to look for and, for readers, what to put in its place; from the first examples that fit."""
        reason = None
        for shapes in _SHAPES:
            for any_kind in (float, bool, int):
                try:
                    first, second = (self._traced(shape, any_kind, number) for number, shape in enumerate(shapes))
                except PassError:
                    raise
                except EulerError as error:
                    reason = reason or error
                    continue
                patterns = [self._merged(*pair) for pair in zip(first[0], second[0], strict=True)]
                return patterns, self._merged(first[1], second[1])
        raise self._error(f"no example fits: {reason.message}", "say with `x: float`, int or bool what an argument is")

    def _traced(self, shape: tuple[int, ...], any_kind: type, first: int) -> tuple[list[Pattern], Pattern]:
        graph = Graph(self.name)
        values, numbers = {}, iter(_NUMBERS[float if any_kind is bool else any_kind][first:])
        for argument in self.arguments:
            if argument.kind is Number:
                values[argument.name] = next(numbers)
            elif argument.kind == "attribute":
                values[argument.name] = argument.default
            else:
                kind = any_kind if argument.kind is object else argument.kind
                dtype = _EXAMPLE_DTYPES.get(kind, kind)
                values[argument.name] = graph.input(argument.name, shape, dtype)
        befores, after = self.call(graph, values)
        reader = _PatternReader(self, values)
        return [reader.read_root(before) for before in befores], reader.read(after)

    def _merged(self, pattern: Pattern, other: Pattern) -> Pattern:
        """What two examples have in common: a number that differs depends on the shape, or on other numbers."""
        if type(pattern) is not type(other) or (isinstance(pattern, Apply) and pattern.names != other.names):
            raise self._error("looks for one thing in one shape and for another in another shape")
        if isinstance(pattern, Apply):
            pairs = zip(pattern.operands, other.operands, strict=True)
            return Apply(pattern.names, tuple(self._merged(*pair) for pair in pairs), pattern.once, pattern.index)
        if isinstance(pattern, Number) and pattern.name is None:
            return pattern if repr(pattern.number) == repr(other.number) else Number()
        return pattern

    def call(self, graph: Graph, values: Mapping[str, object]) -> tuple[list[Value], Value]:
        """The spellings of what comes before, and what comes after, made in ``graph``."""
        with graph, graph.derived_from(graph.ops[0], self.name) if graph.ops else contextlib.nullcontext():
            given = self.function(**values)
        if not isinstance(given, tuple) or len(given) != 2:
            raise self._error("must return what to look for and what to put in its place")
        befores, after = given
        befores = befores if isinstance(befores, list) else [befores]
        if not befores or not all(isinstance(value, Value) for value in befores):
            raise self._error(f"looks for {given[0]!r}, which is no tensor")
        if not isinstance(after, Value):
            raise self._error(f"puts {after!r} in its place, which is no tensor")
        return befores, after

    def sample(self, random: Random) -> Graph:
        """One of the spellings on values of a drawn shape and dtype; raises what the function raises for these."""
        graph, shape = Graph("instance"), random.choice(_SAMPLE_SHAPES)
        any_dtype, floats = random.choice(list(DTYPES.values())), random.choice(DTYPES_OF["float"])
        given = {}
        for argument in self.arguments:
            if argument.kind is Number:
                given[argument.name] = random.choice(_SAMPLE_NUMBERS)
            elif argument.kind == "attribute":
                given[argument.name] = _drawn_attribute(argument.default, len(shape), random)
            else:
                dtype = {object: any_dtype, float: floats, int: i32, bool: bool_}.get(argument.kind, argument.kind)
                given[argument.name] = graph.input(argument.name, shape, dtype)
        befores, _ = self.call(graph, given)
        graph.set_outputs(result=random.choice(befores))
        return RemoveDead().run(graph)

    # -- where the pattern is found ------------------------------------------------------------------------------------

    def refusal(self, match: Match) -> str | None:
        """Why the rule must stay away from where its pattern is found, or None."""
        values = self._found(match)
        if self.guard is not None:
            reason = self.guard(**{name: value for name, value in values.items() if name in self.guarded})
            if reason is not None:
                return reason
        return self._difference(match, values) if self.is_checked else None

    def build(self, match: Match) -> Value:
        """What comes after, emitted in the graph of ``match``."""
        values = self._found(match)
        instance = self._instance(values)
        target = match.op.graph
        made = {leaf: values[name] for name, leaf in instance.leaves.items()}
        for op in instance.after_ops:
            results = target.emit(op.name, tuple(made[operand] for operand in op.operands), **op.attributes)
            made.update(zip(op.results, results if isinstance(results, tuple) else (results,)))
        return made[instance.after]

    def _found(self, match: Match) -> dict[str, object]:
        """The arguments of the function, as ``match`` has found them."""
        return {argument.name: self._argument(argument, match.values) for argument in self.arguments}

    def _argument(self, argument: _Argument, bound: Bound):
        if argument.kind == "attribute":
            holders = (value.op.attributes for value in bound.values() if argument.name in value.op.attributes)
            return next((each[argument.name] for each in holders), argument.default)
        value = bound[argument.name]
        return number_of(value) if argument.kind is Number else value

    def _instance(self, values: dict[str, object]) -> _Instance:
        """What the function makes of values of the types of ``values``; kept for the next ones of these types."""
        key = tuple(value.type if isinstance(value, Value) else attribute_key(value) for value in values.values())
        if key not in self.instances:
            graph = Graph(self.name)
            given = {
                name: graph.input(name, value.shape, value.dtype) if isinstance(value, Value) else value
                for name, value in values.items()
            }
            befores, after = self.call(graph, given)
            leaves = {name: value for name, value in given.items() if isinstance(value, Value)}
            after_ops = tuple(op for op in graph.needed([after]) if op.name != "input")
            self.instances[key] = _Instance(befores, after, leaves, after_ops)
        return self.instances[key]

    def _difference(self, match: Match, values: dict[str, object]) -> str | None:
        """Where the function, called on values of the types that were found, gives another graph than is there."""
        position, pattern = next(pair for pair in enumerate(self.patterns) if pair[1].key in match.values)
        try:
            befores = self._instance(values).befores
        except EulerError as error:
            return f"the example does not fit these types: {error.message}"
        pending = [(pattern, befores[position])]
        while pending:
            pattern, wanted = pending.pop()
            found = match.values[pattern.key]
            if isinstance(pattern, Number):
                number = number_of(wanted)
                if number is None or not same_number(number_of(found), number, found.dtype, self.tolerance):
                    return f"a number is {number_of(found)!r} here, and {number!r} in the rule"
            elif isinstance(pattern, Apply):
                if wanted.op.name not in pattern.names:
                    return f"for these types the rule looks for {wanted.op.name}, not for {found.op.name}"
                reason = _attribute_difference(found.op, wanted.op)
                if reason is not None:
                    return reason
                pending.extend(zip(pattern.operands, wanted.op.operands, strict=True))
        return None


@dataclass(frozen=True)
class _Instance:
    """What a function made in a graph of its own: the spellings of what comes before, and what comes after it, with the
    ops that this takes, of its arguments ``leaves``.
    """

    befores: list[Value]
    after: Value
    leaves: dict[str, Value]
    after_ops: tuple[Op, ...]


class _PatternReader:
    def __init__(self, example: Example, values: Mapping[str, object]) -> None:
        self.example = example
        self.names = {value: name for name, value in values.items() if isinstance(value, Value)}
        self.numbers = {value: name for name, value in values.items() if name not in self.names.values()}
        kinds = {argument.name: argument.kind for argument in example.arguments}
        self.dtypes = {name: _dtypes(kinds[name]) for name in self.names.values()}
        self.count = 0

    def read_root(self, value: Value) -> Pattern:
        self.count = 0
        pattern = self.read(value)
        if not isinstance(pattern, Apply):
            raise self.example._error(f"looks for {show(pattern)} alone, which is everywhere")
        found = {part.key for part in parts(pattern)}
        missing = [argument.name for argument in self.example.arguments if argument.kind != "attribute"]
        missing = [name for name in missing if name not in found]
        if missing:
            raise self.example._error(
                f"{missing[0]!r} is not in {show(pattern)}", "what comes before names every argument"
            )
        return Apply(pattern.names, pattern.operands, False, pattern.index)

    def read(self, value: Value) -> Pattern:
        """It recurses as deep as the function's expression."""
        self.count += 1
        if self.count > _MOST_PARTS:
            raise self.example._error(f"has more than {_MOST_PARTS} parts")
        if value in self.names:
            return Anything(self.names[value], self.dtypes[self.names[value]])
        number = number_of(value)
        if number is not None:
            name = next((name for held, name in self.numbers.items() if _is_example(held, number, value)), None)
            return Number(None if name else number, name, self.example.tolerance)
        operands = tuple(map(self.read, value.op.operands))
        return Apply((value.op.name,), operands, self.example.used_once, value.index)


def _dtypes(kind) -> tuple[DType, ...]:
    return (kind,) if isinstance(kind, DType) else _DTYPES.get(kind, ())


def _drawn_attribute(example, rank: int, random: Random):
    """An attribute like ``example``: integers are taken for axes."""
    if isinstance(example, tuple):
        return tuple(axis for axis in range(rank) if random.random() < 0.6)
    return random.randrange(rank) if type(example) is int and rank else example


def _is_example(held, number, value: Value) -> bool:
    return isinstance(held, (int, float)) and not isinstance(held, bool) and same_number(number, held, value.dtype)


def _needs_a_look(part: Pattern) -> bool:
    """Whether a part of a pattern leaves open what only types decide: an attribute, or a number."""
    if isinstance(part, Apply):
        return any(OPS[name].attributes for name in part.names)
    return isinstance(part, Number) and part.number is None and part.name is None


def _attribute_difference(found: Op, wanted: Op) -> str | None:
    from euler_ir.text.literals import format_attribute  # where it is used: importing euler_ir needs no text form

    for name, kind in found.definition.attributes.items():
        if attribute_key(found.attributes[name]) != attribute_key(wanted.attributes[name]):
            texts = (format_attribute(kind, op.attributes[name]) for op in (found, wanted))
            return f"{name} of {found.name} is {next(texts)} here, and {next(texts)} in the rule"
    return None
