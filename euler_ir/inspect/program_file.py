"""A program of any level: the graph that a function makes, or what a ``.eir`` file says after its level's word."""

from __future__ import annotations

from euler_ir.graph import Graph
from euler_ir.inspect.user_graph import load_graph, text_of, text_of_stdin
from euler_ir.loops.kernel import Kernel
from euler_ir.loops.parser import parse_kernels
from euler_ir.passes.fused_parser import parse_fused
from euler_ir.passes.groups import FusedGraph
from euler_ir.text import parse_graph
from euler_ir.text.reader import Reader

LEVELS = {"graph": parse_graph, "fused": parse_fused, "kernel": parse_kernels}
"""By the word that follows the version line: what reads a text of that level."""

Program = Graph | FusedGraph | tuple[Kernel, ...]


def load_program(target: str) -> Program:
    """What ``target`` is: ``FILE.py:function``, ``FILE.eir`` of any level, or ``-`` for text on stdin.

    Raises UserGraphError, and ParseError for wrong text.
    """
    if target == "-":
        return parse_program(text_of_stdin(), "<stdin>")
    return parse_program(text_of(target), target) if target.endswith(".eir") else load_graph(target)


def parse_program(text: str, filename: str = "<text>") -> Program:
    """The graph, the fused graph or the kernels that ``text`` describes. Raises ParseError."""
    reader = Reader(text, filename)
    reader.expect("eir")
    reader.take("number", "a version number")
    if reader.token.text not in LEVELS:
        raise reader.expected(f"a level: {', '.join(LEVELS)}", LEVELS)
    return LEVELS[reader.token.text](text, filename)


def level_of(program: Program) -> str:
    """The word of the level that ``program`` is of."""
    if isinstance(program, tuple):
        return "kernel"
    return "graph" if isinstance(program, Graph) else "fused"
