"""Graphs of NetworkX."""

import networkx as nx
import numpy as np
import pytest

from gcgp.domain import Signals


def triangle(**options):
    """Nodes c, a, b with the values 3, 1, 2 and edges c–a and b–c."""
    graph = nx.Graph(**options)
    graph.add_nodes_from([(name, {"x": value}) for name, value in (("c", 3.0), ("a", 1.0), ("b", 2.0))])
    graph.add_edges_from([("c", "a", {"length": 2.0}), ("b", "c", {"length": 0.5})])
    return graph


def test_values_and_edges_follow_the_order_of_nodes():
    signals = Signals.from_networkx([triangle(), nx.relabel_nodes(triangle(), {"a": 7})])
    assert signals.values[:, 0].tolist() == [3.0, 1.0, 2.0] * 2
    assert signals.domains.degrees().tolist() == [2, 1, 1] * 2
    assert signals.domains.edge_lengths is None
    assert signals.domains.coordinates is None


def test_the_caller_names_attributes():
    graph = triangle()
    nx.set_node_attributes(graph, {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 0.0)}, "pos")
    nx.set_node_attributes(graph, dict(graph.degree()), "degree")
    signals = Signals.from_networkx(graph, values=["degree", "x"], coordinates="pos", edge_lengths="length")
    assert signals.values.tolist() == [[2.0, 3.0], [1.0, 1.0], [1.0, 2.0]]
    assert signals.domains.coordinates.tolist() == [[0, 0], [0, 1], [1, 0]]
    assert sorted(signals.domains.edge_lengths.tolist()) == [0.5, 2.0]


def test_values_may_be_vectors():
    graph = nx.path_graph(2)
    nx.set_node_attributes(graph, {0: np.array([1.0, 2.0]), 1: [3.0, 4.0]}, "x")
    assert Signals.from_networkx([graph]).values.tolist() == [[1, 2], [3, 4]]


def test_missing_attributes_are_named():
    with pytest.raises(ValueError, match=r"graph 1: node 0 has no attribute 'x'.*values=.*degree"):
        Signals.from_networkx([triangle(), nx.path_graph(2)])
    with pytest.raises(ValueError, match="graph 0: node 'c' has no attribute 'pos'"):
        Signals.from_networkx([triangle()], coordinates="pos")
    with pytest.raises(ValueError, match="graph 0: edge 'c'–'a' has no attribute 'weight'"):
        Signals.from_networkx([triangle()], edge_lengths="weight")
    with pytest.raises(TypeError, match="graph 1: expected a NetworkX graph, got int"):
        Signals.from_networkx([triangle(), 3])
    with pytest.raises(ValueError, match="the set is empty"):
        Signals.from_networkx([])


def test_unused_attributes_give_one_warning():
    graph = triangle()
    nx.set_node_attributes(graph, dict.fromkeys(graph, (0.0, 0.0)), "pos")
    nx.set_edge_attributes(graph, 2.0, "weight")
    with pytest.warns(UserWarning, match="'pos' is not used.*'weight' is not used") as caught:
        signals = Signals.from_networkx([graph, graph])
    assert len(caught) == 1
    assert signals.domains.coordinates is None
    Signals.from_networkx([graph], coordinates=False, edge_lengths=False)
    with pytest.warns(UserWarning, match="edge directions are not used"):
        directed = Signals.from_networkx(triangle().to_directed())
    assert directed.domains.degrees().tolist() == [2, 1, 1]


def test_multigraphs_keep_their_shortest_edge():
    graph = nx.MultiGraph([(0, 1, {"length": 3.0}), (0, 1, {"length": 1.0})])
    nx.set_node_attributes(graph, 1.0, "x")
    chart = Signals.from_networkx(graph, edge_lengths="length").domains.chart(["rho"], 9.0)
    assert sorted(chart.coordinates["rho"].tolist()) == [0.0, 0.0, 1.0, 1.0]
