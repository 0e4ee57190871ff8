"""Charts of graphs, compared with double loops and the Floyd–Warshall algorithm."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcgp.domain import Domains, Graphs, Signals
from random_graphs import random_graphs, small
from slow_patches import graph_pairs, shortest_paths

NOTHING = np.zeros((0, 2), dtype=np.int64)


def one_graph(vertices, edges, lengths=None, coordinates=None):
    return Signals.from_graphs(
        [np.zeros(vertices)],
        [edges],
        None if lengths is None else [lengths],
        None if coordinates is None else [coordinates],
    ).domains


def rows_of(chart, name):
    """For each row, the coordinate of each neighbor by its index."""
    return [
        dict(zip(chart.neighbors[a:b].tolist(), chart.coordinates[name][a:b].tolist(), strict=True))
        for a, b in pairwise(chart.row_offsets)
    ]


def assert_chart_is(chart, tables, reach):
    """Compare a chart with the tables of all pairs of its graphs, cut at the reach."""
    seen = [[pair for pair in row if pair.rho <= reach] for pairs in tables for row in pairs]
    neighbors = [w for pairs in tables for row in pairs for w, pair in enumerate(row) if pair.rho <= reach]
    assert np.diff(chart.row_offsets).tolist() == [len(row) for row in seen]
    assert chart.neighbors.tolist() == neighbors
    for name, actual in chart.coordinates.items():
        expected = [getattr(pair, name) for row in seen for pair in row]
        np.testing.assert_allclose(actual, np.array(expected).reshape(actual.shape), atol=1e-12)


@small
@given(random_graphs(), st.sampled_from([0.0, 1.0, 2.0, 3.5, 100.0]))
def test_euclidean_chart_is_the_double_loop(graph, reach):
    chart = graph.signals().domains.chart(["rho", "theta", "offset", "degree"], reach, "euclidean")
    pairs = graph_pairs("euclidean", len(graph.values), graph.edges, graph.lengths, graph.coordinates)
    assert_chart_is(chart, [pairs], reach)


@small
@given(random_graphs(), st.sampled_from([0.0, 1.0, 3.0, 5.0, 100.0]), st.booleans(), st.booleans())
def test_path_chart_is_shortest_paths_cut_at_reach(graph, reach, weighted, located):
    domains = graph.signals(weighted, located).domains
    names = ["rho", "degree", *(["theta", "offset"] if located else [])]
    chart = domains.chart(names, reach, "path")
    pairs = graph_pairs(
        "path",
        len(graph.values),
        graph.edges,
        graph.lengths if weighted else None,
        graph.coordinates if located else None,
    )
    assert_chart_is(chart, [pairs], reach)


@pytest.mark.parametrize("kind", ["euclidean", "path"])
def test_charts_of_several_graphs_are_concatenated(kind):
    random = np.random.default_rng(0)
    counts = [5, 1, 150, 2]
    coordinates = [random.normal(size=(count, 2)) for count in counts]
    edges = [random.integers(0, count, size=(2 * count, 2)) for count in counts]
    signals = Signals.from_graphs([np.zeros(count) for count in counts], edges, None, coordinates)
    chart = signals.domains.chart(["rho", "theta", "offset", "degree"], 0.8, kind)
    tables = [
        graph_pairs(kind, *graph, None, positions)
        for *graph, positions in zip(counts, edges, coordinates, strict=True)
    ]
    assert_chart_is(chart, tables, 0.8)


def test_the_shortest_of_parallel_edges_counts_whatever_its_direction():
    chart = one_graph(2, [[0, 1], [1, 0], [0, 1]], [5.0, 2.0, 3.0]).chart(["rho"], 10.0)
    assert rows_of(chart, "rho") == [{0: 0.0, 1: 2.0}, {0: 2.0, 1: 0.0}]


def test_self_loops_are_ignored():
    graph = one_graph(2, [[0, 0], [0, 1], [1, 1]], [0.5, 1.0, 0.0])
    assert rows_of(graph.chart(["rho"], 10.0), "rho") == [{0: 0.0, 1: 1.0}, {0: 1.0, 1: 0.0}]
    assert graph.degrees().tolist() == [1, 1]


def test_paths_do_not_leave_their_component():
    chart = one_graph(5, [[0, 1], [2, 3]]).chart(["rho"], 100.0)
    seen = [sorted(row) for row in rows_of(chart, "rho")]
    assert seen == [[0, 1], [0, 1], [2, 3], [2, 3], [4]]


def test_a_detour_may_be_shorter_than_the_edge():
    graph = one_graph(3, [[0, 2], [0, 1], [1, 2]], [10.0, 1.0, 2.0])
    assert rows_of(graph.chart(["rho"], 3.0), "rho")[0] == {0: 0.0, 1: 1.0, 2: 3.0}
    assert rows_of(graph.chart(["rho"], 2.9), "rho")[0] == {0: 0.0, 1: 1.0}


def test_edges_of_length_zero_join_vertices():
    graph = one_graph(3, [[0, 1], [1, 2]], [0.0, 1.0])
    assert rows_of(graph.chart(["rho"], 1.0), "rho")[2] == {0: 1.0, 1: 1.0, 2: 0.0}
    assert graph.degrees().tolist() == [1, 2, 1]


def test_edge_lengths_default_to_distances():
    coordinates = np.array([[0.0, 0.0], [3.0, 4.0]])
    located = one_graph(2, [[0, 1]], None, coordinates)
    weighted = one_graph(2, [[0, 1]], [2.0], coordinates)
    assert rows_of(located.chart(["rho"], 9.0, "path"), "rho")[0][1] == 5.0
    assert rows_of(weighted.chart(["rho"], 9.0, "path"), "rho")[0][1] == 2.0
    assert rows_of(weighted.chart(["rho"], 9.0, "euclidean"), "rho")[0][1] == 5.0


def test_hops_count_edges_whatever_their_lengths():
    chain = [[0, 1], [1, 2], [2, 3]]
    long = Signals.from_graphs([np.zeros(4)], [chain], edge_lengths=[[5.0, 0.1, 7.0]]).domains
    unit = Signals.from_graphs([np.zeros(4)], [chain]).domains
    assert long.chart_kinds == ("path", "hops")
    assert unit.chart_kinds == ("path",)
    expected = unit.chart(["rho"], 2.0, "path")
    hops = long.chart(["rho"], 2.0, "hops")
    np.testing.assert_array_equal(hops.neighbors, expected.neighbors)
    np.testing.assert_array_equal(hops.coordinates["rho"], expected.coordinates["rho"])


def test_auto_is_euclidean_with_coordinates_and_path_without():
    coordinates = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert len(one_graph(3, NOTHING, None, coordinates).chart(["rho"], 2.0).neighbors) == 9
    assert len(one_graph(3, NOTHING).chart(["rho"], 2.0).neighbors) == 3


def test_long_chains_need_many_steps():
    vertices = 200
    chain = np.stack([np.arange(vertices - 1), np.arange(1, vertices)], axis=1)
    chart = one_graph(vertices, chain).chart(["rho"], 150.0)
    expected = abs(np.subtract.outer(np.arange(vertices), np.arange(vertices)))
    assert len(chart.neighbors) == (expected <= 150).sum()
    np.testing.assert_array_equal(chart.coordinates["rho"], expected[expected <= 150])


def test_degree_coordinates_by_hand():
    star = [[0, 1], [0, 2], [3, 0], [0, 4], [4, 0]]
    chart = one_graph(6, star).chart(["degree"], 1.0)
    rows = rows_of(chart, "degree")
    assert rows[0] == {0: [0.5, 0.5], 1: [0.5, 1.0], 2: [0.5, 1.0], 3: [0.5, 1.0], 4: [0.5, 1.0]}
    assert rows[1] == {0: [1.0, 0.5], 1: [1.0, 1.0]}
    assert rows[5] == {5: [1.0, 1.0]}


@pytest.mark.parametrize("kind", ["euclidean", "path"])
def test_direction_is_undefined_exactly_where_vertices_coincide(kind):
    coordinates = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [-1.0, -1.0]])
    complete = [[a, b] for a in range(4) for b in range(a)]
    chart = one_graph(4, complete, None, coordinates).chart(["theta"], 10.0, kind)
    rows = rows_of(chart, "theta")
    undefined = [(v, w) for v in range(4) for w in range(4) if math.isnan(rows[v][w])]
    assert undefined == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (3, 3)]
    assert rows[1][0] == pytest.approx(math.pi)
    assert rows[0][3] == pytest.approx(-3 * math.pi / 4)


def test_coordinates_of_three_dimensions_have_distances_and_offsets_but_no_angle():
    coordinates = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
    graph = one_graph(2, [[0, 1]], None, coordinates)
    chart = graph.chart(["rho", "offset"], 5.0)
    assert rows_of(chart, "rho")[0][1] == 3.0
    assert rows_of(chart, "offset")[1][0] == [-1.0, -2.0, -2.0]
    with pytest.raises(ValueError, match="'theta' needs two-dimensional coordinates; these have 3"):
        graph.chart(["rho", "theta"], 5.0)


def test_charts_that_need_coordinates_say_so():
    graph = one_graph(2, [[0, 1]])
    with pytest.raises(ValueError, match="'theta' needs graphs with coordinates; these have none"):
        graph.chart(["theta"], 1.0)
    with pytest.raises(ValueError, match="'offset' needs graphs with coordinates; these have none"):
        graph.chart(["offset"], 1.0)
    with pytest.raises(ValueError, match="kind='euclidean' needs graphs with coordinates"):
        graph.chart(["rho"], 1.0, "euclidean")


def test_unknown_options_raise():
    with pytest.raises(ValueError, match=r"kind='geodesic' is not known.*'auto', 'euclidean', 'path'"):
        one_graph(1, NOTHING).chart(["rho"], 1.0, "geodesic")
    with pytest.raises(ValueError, match=r"graph='phi' is not known.*'rho', 'theta', 'offset', 'degree'"):
        one_graph(1, NOTHING).chart(["rho", "phi"], 1.0)


def test_a_shared_graph_has_one_chart_for_all_signals():
    signals = Signals.on_graph(np.zeros((20, 3)), [[0, 1], [1, 2]])
    assert len(signals.domains.chart(["rho"], 1.0).row_offsets) == 3 + 1


def test_spacing_is_the_median_distance_to_the_nearest_vertex():
    line = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [3.0, 0.0], [9.0, 0.0]])
    assert one_graph(5, NOTHING, None, line).spacing() == 2.0
    assert one_graph(3, [[0, 1], [1, 2], [0, 2]], [0.0, 2.0, 6.0]).spacing() == 4.0
    assert one_graph(2, [[0, 1]]).spacing() == 1.0
    assert one_graph(2, NOTHING, None, np.zeros((2, 2))).spacing() == 1.0


def test_choosing_graphs_takes_their_vertices_and_edges():
    signals = Signals.from_graphs(
        [np.zeros(2), np.zeros(3), np.zeros(1)],
        [[[0, 1]], [[0, 2], [1, 2]], []],
        [[1.0], [2.0, 3.0], []],
        [np.full((2, 2), 0.0), np.full((3, 2), 1.0), np.full((1, 2), 2.0)],
    )
    chosen = signals.domains.take(np.array([2, 1]))
    assert isinstance(chosen, Graphs)
    assert chosen.vertex_counts.tolist() == [1, 3]
    assert chosen.edge_offsets.tolist() == [0, 0, 2]
    assert chosen.edges.tolist() == [[0, 2], [1, 2]]
    assert chosen.edge_lengths.tolist() == [2.0, 3.0]
    assert chosen.coordinates[:, 0].tolist() == [2.0, 1.0, 1.0, 1.0]
    assert signals.domains.take(np.arange(3)) is signals.domains
    assert isinstance(chosen, Domains)


def test_the_slow_reference_agrees_with_hand_made_distances():
    edges = np.array([[0, 1], [1, 2], [0, 2]])
    paths = shortest_paths(4, edges, np.array([1.0, 2.0, 10.0]))
    inf = np.inf
    expected = [[0, 1, 3, inf], [1, 0, 2, inf], [3, 2, 0, inf], [inf, inf, inf, 0]]
    assert paths.tolist() == expected
