"""For those who test passes, rules and backends: random graphs, and the chain of ways to run one, which must agree.

``graphs()`` is a hypothesis strategy of `Case`, ``random_graph(seed)`` needs no hypothesis; ``check_chain`` runs a
graph in every way and names the first that gives another result; ``read_case`` and ``write_case`` keep what failed as
text. ``.eir`` files that test passes are run by pytest: see docs/testing_passes.md.
"""

from euler_ir.testing.case import Case, read_case, write_case
from euler_ir.testing.chain import BrokenLink, check_chain
from euler_ir.testing.random_graphs import random_graph
from euler_ir.testing.rule_check import check_rule

__all__ = ["BrokenLink", "Case", "check_chain", "check_rule", "graphs", "random_graph", "read_case", "write_case"]


def __getattr__(name: str):
    # hypothesis is imported when its strategy is asked for: everything else here works without it.
    if name != "graphs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from euler_ir.testing.strategies import graphs

    return graphs
