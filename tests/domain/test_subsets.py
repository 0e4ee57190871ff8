"""Coarse graphs and meshes: which vertices are kept, and charts on them."""

import itertools

import numpy as np
import pytest

from gcgp import Signals, articulated_bodies
from gcgp.domain import Graphs, Meshes
from gcgp.domain.subsets import Subsets


def geometric_graphs(count=4, seed=0):
    """Random points in the plane, joined if they are close."""
    rng = np.random.default_rng(seed)
    coordinates = [rng.uniform(0, 4, (size, 2)) for size in rng.integers(12, 25, count)]
    edges = [
        np.argwhere(np.triu(np.linalg.norm(x[:, None] - x, axis=2) < 1.3, 1)).tolist() for x in coordinates
    ]
    values = [np.zeros((len(x), 1)) for x in coordinates]
    return Signals.from_graphs(values, edges, coordinates=coordinates).domains


def bodies():
    return Meshes(tuple(articulated_bodies(2, 1, vertices=200, random_state=0).meshes))


def dense(chart, counts):
    """ρ of all pairs of each domain, infinite beyond the reach."""
    starts = np.cumsum([0, *counts])
    tables = []
    for start, stop in itertools.pairwise(starts):
        table = np.full((stop - start, stop - start), np.inf)
        for row in range(start, stop):
            pairs = slice(chart.row_offsets[row], chart.row_offsets[row + 1])
            table[row - start, chart.neighbors[pairs]] = chart.coordinates["rho"][pairs]
        tables.append(table)
    return tables


CASES = [(geometric_graphs, "euclidean", 1.2), (geometric_graphs, "path", 1.2), (bodies, "geodesic", 0.15)]


@pytest.mark.parametrize(("domains", "kind", "distance"), CASES)
def test_kept_vertices_are_apart_and_near_to_all_others(domains, kind, distance):
    domains = domains()
    subset = Subsets.spread(domains, distance, kind)
    tables = dense(domains.chart(["rho"], 3 * distance, kind), domains.vertex_counts)
    assert len(subset.kept) < domains.vertex_counts.sum()
    for table, kept in zip(tables, subset.kept_of_each, strict=True):
        apart = np.maximum(table, table.T)[np.ix_(kept, kept)]  # marched distances are not quite symmetric
        assert apart[~np.eye(len(kept), dtype=bool)].min(initial=np.inf) >= distance * (1 - 1e-5)
        assert (table[kept].min(axis=0) < distance).all()


@pytest.mark.parametrize(("domains", "kind", "distance"), CASES)
def test_charts_have_the_distances_of_the_whole_domains(domains, kind, distance):
    domains = domains()
    subset = Subsets.spread(domains, distance, kind)
    whole = dense(domains.chart(["rho"], 2 * distance, kind), domains.vertex_counts)
    coarse = dense(subset.chart(["rho"], 2 * distance, kind), subset.vertex_counts)
    for table, part, kept in zip(whole, coarse, subset.kept_of_each, strict=True):
        np.testing.assert_array_equal(part, table[np.ix_(kept, kept)])
    rows = np.arange(0, len(subset.kept), 3)
    some = subset.chart(["rho"], 2 * distance, kind, rows)
    pairs = np.diff(subset.chart(["rho"], 2 * distance, kind).row_offsets)
    assert np.diff(some.row_offsets)[rows].tolist() == pairs[rows].tolist()
    assert some.row_offsets[-1] == pairs[rows].sum()


def test_areas_of_kept_vertices_add_up():
    meshes = bodies()
    subset = Subsets.spread(meshes, 0.2)
    starts = np.cumsum([0, *subset.vertex_counts])[:-1]
    np.testing.assert_allclose(
        np.add.reduceat(subset.measure, starts), [mesh.vertex_areas.sum() for mesh in meshes]
    )
    assert not subset.oriented


@pytest.mark.parametrize("domains", [geometric_graphs, bodies])
def test_chosen_and_concatenated_subsets(domains):
    whole = domains()
    subset = Subsets.spread(whole, 0.5)
    chosen = subset.take(np.array([1, 0]))
    expected = Subsets.spread(whole.take(np.array([1, 0])), 0.5)
    assert chosen.kept.tolist() == expected.kept.tolist()
    assert chosen.vertex_counts.tolist() == subset.vertex_counts[[1, 0]].tolist()
    joined, indices = Subsets.concatenate([chosen, subset])
    assert [part.tolist() for part in indices] == [[0, 1], list(range(2, 2 + len(whole)))]
    back = joined.take(indices[1])
    for array, given in zip(back.arrays(), subset.arrays(), strict=True):
        assert (array is None) == (given is None)
        assert array is None or np.array_equal(array, given)
    if subset.areas is not None:
        np.testing.assert_array_equal(back.areas, subset.areas)


def test_the_order_of_vertices_does_not_matter():
    graph = geometric_graphs(1)
    rng = np.random.default_rng(1)
    order = rng.permutation(graph.vertex_counts[0])
    number = np.argsort(order)
    turned = Graphs(
        graph.vertex_offsets,
        number[graph.edges],
        graph.edge_offsets,
        coordinates=graph.coordinates[order],
    )
    for kind in ("euclidean", "path"):
        kept, other = (Subsets.spread(domains, 1.0, kind).kept for domains in (graph, turned))
        assert sorted(order[other]) == kept.tolist()
