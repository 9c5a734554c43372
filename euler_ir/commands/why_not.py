"""``euler-ir why-not``: why a rule is not applied to a value."""

from __future__ import annotations

import argparse

from euler_ir.commands.common import add_json, add_pipeline, add_target, print_json
from euler_ir.inspect.user_graph import load_files, load_graph
from euler_ir.inspect.why_not import Answer, Part, why_not
from euler_ir.passes.patterns import STATUS


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say why a rewrite rule is not applied to a value: how much of its pattern is there, and what stops it."
    )
    parser.epilog = "`euler-ir passes --rules` lists the rules, `euler-ir opt TARGET --stop-after P` the values."
    parser.add_argument("rule", metavar="RULE", help="the name of a rule")
    parser.add_argument("value", metavar="%VALUE", help="a value by its name, or the name of an output")
    add_target(parser)
    parser.add_argument("--after", metavar="P", help="in the graph after this pass (default: before all passes)")
    add_pipeline(parser, "the passes that P is one of")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    load_files(options.load)
    answer = why_not(load_graph(options.target), options.rule, options.value, options.passes, options.after)
    if options.json:
        print_json(answer.record())
    else:
        print("\n".join(_lines(answer)))
    return 0


def _lines(answer: Answer) -> list[str]:
    where = f"after {answer.after}" if answer.after else "before all passes"
    lines = [
        f"rule {answer.rule.name} ({answer.rule.numerics}): {answer.rule.doc}",
        f"  pattern  {answer.pattern}",
        f"  value    {answer.operation}  ({where})",
    ]
    if answer.location is not None:
        lines.append(f"           {answer.location}: {answer.location.source_line()}")
    lines.append(f"{STATUS[answer.status]}: {_reason(answer)}")
    if answer.status != "matches":
        lines += _line_of(answer.culprit) if answer.culprit else []
        lines.append(f"{len(answer.found)} of {answer.parts} parts of the pattern are there")
        lines += [f"  {part.pattern}  is  {part.value}" for part in answer.found]
    if answer.applied_in:
        lines.append(f"later the rule is applied to it, in {answer.applied_in}")
    return lines


def _reason(answer: Answer) -> str:
    if answer.culprit is None:
        return answer.reason
    return f"{answer.culprit.value} is no {answer.culprit.pattern}: {answer.reason}"


def _line_of(part: Part) -> list[str]:
    lines = [f"  {part.operation}"]
    if part.location is not None:
        lines.append(f"  {part.location}: {part.location.source_line()}")
    return lines
