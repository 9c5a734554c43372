"""The text form of graphs: ``parse_graph(print_graph(graph))`` is ``graph`` again, bit for bit."""

from euler_ir.text.parser import parse_graph
from euler_ir.text.printer import print_graph

__all__ = ["parse_graph", "print_graph"]
