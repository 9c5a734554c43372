"""What no result needs goes; what a caller names stays."""

import euler_ir as e
from euler_ir.passes import RemoveDead


def test_streams_of_removed_random_ops_are_not_given_out_again():
    graph = e.Graph()
    with graph:
        kept = e.random_uniform((3,), 1, 2)
        e.random_uniform((3,), 1, 2)
        e.output(kept=kept)
    found = RemoveDead().run(graph)
    with found:
        assert e.random_uniform((3,), 1, 2).op.attributes["stream"] == 3
