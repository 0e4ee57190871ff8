"""Graph networks that we compare with: coarser graphs, batches, and training that stops by itself."""

import numpy as np
import pytest
import torch

from gcgp import Signals
from gcgp.surface.metrics import Scores
from gcgp.surface.reproduction import networks
from gcgp.surface.reproduction.hierarchies import Hierarchy


@pytest.fixture(scope="module")
def graphs():
    """Random points in a square, joined where they are near; of different sizes."""
    rng = np.random.default_rng(0)
    values, edges, coordinates = [], [], []
    for count in (9, 1, 14, 6):
        place = rng.random((count, 2))
        near = np.linalg.norm(place[:, None] - place[None], axis=2) < 0.5
        edges.append(np.argwhere(np.triu(near, 1)).reshape(-1, 2))
        values.append(rng.random((count, 1)))
        coordinates.append(place)
    return Signals.from_graphs(values, edges, coordinates=coordinates)


def flat_edges(level):
    first = np.repeat(level.vertex_offsets[:-1], np.diff(level.edge_offsets))
    return level.edges + first[:, None]


def test_a_coarser_graph_joins_neighbours_two_by_two(graphs):
    fine, coarse, _ = Hierarchy.of(graphs, 3).levels
    adjacent = set(map(tuple, flat_edges(fine).tolist()))
    graph_of = np.repeat(np.arange(4), np.diff(fine.vertex_offsets))
    parents = coarse.vertex_offsets[graph_of] + fine.parents
    for vertex in range(coarse.vertex_offsets[-1]):
        members = np.flatnonzero(parents == vertex)
        assert len(members) == 1 or tuple(members.tolist()) in adjacent
        np.testing.assert_allclose(coarse.positions[vertex], fine.positions[members].mean(axis=0))
    expected = {(parents[a], parents[b]) for a, b in adjacent if parents[a] != parents[b]}
    assert set(map(tuple, flat_edges(coarse).tolist())) == expected
    assert coarse.vertex_offsets[-1] < 0.75 * fine.vertex_offsets[-1]


def test_coordinates_of_edges_lie_between_zero_and_one(graphs):
    _, levels = Hierarchy.of(graphs, 3).batch(np.arange(4))
    for level in levels:
        assert (level.pseudo >= 0).all()
        assert (level.pseudo <= 1).all()
    back = {
        tuple(pair): pseudo for pair, pseudo in zip(levels[0].edges.T.tolist(), levels[0].pseudo, strict=True)
    }
    for (a, b), pseudo in back.items():
        assert pseudo[0] == back[b, a][0]
        assert abs(float(pseudo[1] - back[b, a][1])) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_a_graph_does_not_see_the_others_of_its_batch(graphs, kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = networks.GraphNetwork(kind, 1, 3)
    hierarchy = Hierarchy.of(graphs, 3)
    whole = networks.probabilities(network, hierarchy.batch, 4)
    for order in ([2], [3, 0], [1, 2, 3, 0]):
        rows = np.array(order)
        found = networks.probabilities(
            network, lambda some, rows=rows: hierarchy.batch(rows[some]), len(rows)
        )
        np.testing.assert_allclose(found, whole[rows], atol=1e-5)


def strokes(count, seed):
    """Grids of 6 × 6 vertices with a bright column or a bright row somewhere."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    images = 0.1 * rng.random((count, 6, 6))
    for image, label in zip(images, labels, strict=True):
        place = rng.integers(6)
        image[(slice(None), place) if label else place] += 1.0
    rows, columns = np.indices((6, 6)).reshape(2, -1)
    place = np.stack([columns, rows], axis=1).astype(float)
    near = np.linalg.norm(place[:, None] - place[None], axis=2) < 1.5
    edges = np.argwhere(np.triu(near, 1))
    return Signals.on_graph(images.reshape(count, 36), edges, coordinates=place), labels


@pytest.fixture
def small(monkeypatch):
    """Networks that are trained in seconds."""
    for name, value in {"CHANNELS": (8, 8, 8), "KERNELS": 9, "LEAST_STEPS": 1, "PATIENCE": 3}.items():
        monkeypatch.setattr(networks, name, value)


def test_monet_learns_directions(small, capsys):
    (train, labels), (test, truth) = strokes(250, 0), strokes(100, 1)
    predict, note = networks.network("monet")(train, labels, None, 0)
    assert Scores.of(predict(test), truth).error < 0.2
    assert note["converged"]
    assert f"pass {note['passes']}: held-out NLL" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_the_same_seed_learns_the_same(small, kind, monkeypatch):
    monkeypatch.setattr(networks, "MOST_PASSES", 3)
    (train, labels), (test, _) = strokes(40, 0), strokes(5, 1)
    state = torch.get_rng_state()
    once, again = (networks.network(kind)(train, labels, None, 3)[0](test) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)


def test_it_stops_in_time(monkeypatch):
    monkeypatch.setattr(networks, "MOST_SECONDS", 0.0)
    _, note = networks.network("chebnet")(*strokes(40, 0), None, 0)
    assert note["passes"] == 0
    assert not note["converged"]
