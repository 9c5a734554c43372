"""What there is to use: the passes, presets, rules and operators, those of users among them, as data for tables."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass

from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.passes import NUMERICS, PASSES, PRESETS, RULES, Pass, Rule
from euler_ir.passes.options import describe, format_option
from euler_ir.passes.patterns import show


@dataclass(frozen=True)
class Option:
    """A field of a pass: its type in words, and its default as text, None when it must be given."""

    name: str
    type: str
    default: str | None

    def __str__(self) -> str:
        return self.name if self.default is None else f"{self.name}={self.default}"


@dataclass(frozen=True)
class PassEntry:
    """A pass: what it makes, its label of numerics, its options, and the first line of its docstring."""

    name: str
    level: str
    numerics: str
    options: tuple[Option, ...]
    doc: str

    def record(self) -> dict:
        return {**vars(self), "options": [vars(option) for option in self.options]}


def passes() -> list[PassEntry]:
    """Every pass that is defined, in the order of definition."""
    return [_pass_entry(made) for made in PASSES.values()]


def _pass_entry(made: type[Pass]) -> PassEntry:
    numerics = made.numerics if isinstance(made.numerics, str) else "that of its rules"
    return PassEntry(made.name, made.level, numerics, tuple(_options(made)), made.summary())


def _options(made: type[Pass]) -> typing.Iterator[Option]:
    types = typing.get_type_hints(made)
    for field in dataclasses.fields(made):
        given = field.default is dataclasses.MISSING
        yield Option(field.name, describe(types[field.name]), None if given else format_option(field.default))


@dataclass(frozen=True)
class RuleEntry:
    """A rule: its label of numerics, what it says, its pattern, and the place where a user defined it."""

    name: str
    numerics: str
    doc: str
    pattern: str
    location: str | None

    def record(self) -> dict:
        return dict(vars(self))


def rules() -> list[RuleEntry]:
    """Every rule that is defined, from strict to loose and in each label in the order of definition."""
    order = list(NUMERICS)
    return [_rule_entry(rule) for rule in sorted(RULES.values(), key=lambda rule: order.index(rule.numerics))]


def _rule_entry(rule: Rule) -> RuleEntry:
    location = rule.location and f"{rule.location.file}:{rule.location.line}"
    return RuleEntry(rule.name, rule.numerics, rule.doc, show(rule.pattern), location)


def presets() -> dict[str, str]:
    """The text of each preset by its name."""
    return {name: text or "none" for name, text in PRESETS.items()}


@dataclass(frozen=True)
class OperatorEntry:
    """An operator: what it reads, its attributes with their kinds, how the compiler treats it, and what it means."""

    name: str
    family: str
    operands: tuple[str, ...]
    attributes: dict[str, str]
    has_gradient: bool
    has_decomposition: bool
    is_commutative: bool
    doc: str

    def record(self) -> dict:
        return {**vars(self), "operands": list(self.operands)}


def operators() -> list[OperatorEntry]:
    """Every operator that is defined, family by family."""
    return [_operator_entry(definition) for definition in OPS.values()]


def _operands(definition: OpDefinition) -> tuple[str, ...]:
    """Its operands' names, in brackets those that may be left out."""
    if not definition.operand_names:
        return () if definition.family == "leaf" else ("operands...",)
    needed = len(definition.operand_names) - definition.optional
    return (*definition.operand_names[:needed], *(f"[{name}]" for name in definition.operand_names[needed:]))


def _operator_entry(definition: OpDefinition) -> OperatorEntry:
    return OperatorEntry(
        definition.name,
        definition.family,
        _operands(definition),
        dict(definition.attributes),
        definition.vjp is not None,
        definition.decompose is not None,
        definition.commutative,
        definition.doc,
    )
