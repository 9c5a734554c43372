"""The minimum cut beside networkx's, and by trying every cut."""

import itertools

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from euler_ir.passes.min_cut import UNBOUNDED, Network

EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 20)), max_size=30)


def cut(edges):
    network = Network()
    for tail, head, capacity in edges:
        network.add_edge(tail, head, capacity)
    return network.near_sink(0, 7)


def capacity_of(edges, near_sink):
    return sum(capacity for tail, head, capacity in edges if tail not in near_sink and head in near_sink)


@settings(max_examples=300, deadline=None)
@given(EDGES)
def test_the_capacity_is_that_of_networkx(edges):
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(8))
    for tail, head, capacity in edges:
        held = graph.get_edge_data(tail, head, {"capacity": 0})["capacity"]
        graph.add_edge(tail, head, capacity=held + capacity)
    near_sink = cut(edges)
    assert 7 in near_sink and 0 not in near_sink
    assert capacity_of(edges, near_sink) == networkx.minimum_cut_value(graph, 0, 7)


@settings(max_examples=100, deadline=None)
@given(EDGES)
def test_no_cut_as_good_has_fewer_nodes_at_the_sink(edges):
    nodes = {node for edge in edges for node in edge[:2]} - {0, 7}
    cuts = [{7, *chosen} for count in range(len(nodes) + 1) for chosen in itertools.combinations(sorted(nodes), count)]
    least = min(capacity_of(edges, near_sink) for near_sink in cuts)
    assert cut(edges) == next(near_sink for near_sink in cuts if capacity_of(edges, near_sink) == least)


def test_a_network_that_cannot_be_cut_is_refused():
    with pytest.raises(ValueError, match="without a bound"):
        cut([(0, 3, UNBOUNDED), (3, 7, UNBOUNDED)])
