"""The text form of graphs: ``parse_graph(print_graph(graph))`` is ``graph`` again, bit for bit. See docs/eir.md."""

from pathlib import Path

from euler_ir.graph import Graph
from euler_ir.text.parser import parse_graph
from euler_ir.text.printer import print_graph
from euler_ir.text.resources import write_text

__all__ = ["parse_graph", "print_graph", "read_graph", "write_graph"]


def read_graph(path: str | Path) -> Graph:
    """The graph of the file at ``path``, with what `write_graph` put beside it. Raises ParseError, and OSError."""
    return parse_graph(Path(path).read_text(encoding="utf-8"), str(path))


def write_graph(graph: Graph, path: str | Path, locations: bool = True) -> None:
    """Write ``graph`` to ``path``, say ``g.eir``, and the data of large constants to ``g.safetensors`` beside it.

    Raises GraphError where that file is there and holds something else, and OSError.
    """
    write_text(path, print_graph(graph, locations))
