"""Graph networks that we compare with: coarser graphs, batches, and training."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import trimesh
from torch_geometric.nn import ChebConv, GMMConv

from experiments import hierarchies, networks
from experiments.hierarchies import Hierarchy
from experiments.metrics import Scores
from experiments.mixing import chebyshev, mixed
from experiments.sets import held_out
from gcgp import Mesh, Signals, articulated_bodies

SMALL = replace(networks.USUAL, kernels=9, steps=1)


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


def test_a_coarser_graph_joins_neighbors_two_by_two(graphs):
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


def test_a_vertex_of_a_graph_sees_the_nearest_ones(graphs, monkeypatch):
    monkeypatch.setattr(hierarchies, "NEAREST", 3)
    (level,) = Hierarchy.of(graphs, 1).levels
    expected = set()
    for first, last in itertools.pairwise(level.vertex_offsets):
        places = level.positions[first:last]
        order = np.argsort(np.linalg.norm(places[:, None] - places[None], axis=2), axis=1)
        expected |= {(first + a, first + b) for a, row in enumerate(order) for b in row[1:4]}
    expected |= {(b, a) for a, b in expected}
    pairs = flat_edges(level)
    assert set(map(tuple, pairs.tolist())) == expected
    assert (np.diff(pairs[:, 1]) >= 0).all()


def test_graphs_a_few_at_a_time_give_the_same(graphs, monkeypatch):
    whole = Hierarchy.of(graphs, 3)
    monkeypatch.setattr(hierarchies, "TOGETHER", 3)
    parts = Hierarchy.of(graphs, 3)
    assert parts.reach == whole.reach
    for mine, other in zip(parts.levels, whole.levels, strict=True):
        for field in fields(mine):
            np.testing.assert_array_equal(getattr(mine, field.name), getattr(other, field.name))


def test_a_graph_is_seen_alike_in_any_company():
    """On a grid many neighbors are equally near."""
    signals, _ = strokes(20, 0)
    every, alone = Hierarchy.of(signals, 3), Hierarchy.of(signals[7:8], 3)
    for mine, other in zip(alone.batch(np.array([0]))[1], every.batch(np.array([7]))[1], strict=True):
        torch.testing.assert_close(mine.edges, other.edges, rtol=0, atol=0)


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


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_layers_compute_what_those_of_pyg_do_and_so_are_their_gradients(graphs, kind):
    layer = GMMConv(3, 5, dim=2, kernel_size=7) if kind == "monet" else ChebConv(3, 5, 7)
    _, levels = Hierarchy.of(graphs, 2).batch(np.arange(4))
    draw = torch.Generator().manual_seed(0)
    for level in levels:
        values = torch.randn(len(level.graph_of), 3, generator=draw).requires_grad_()
        pull = torch.randn(len(level.graph_of), 5, generator=draw)
        seen = (level.edges, level.pseudo) if kind == "monet" else (level.edges,)
        ours, theirs = (mixed if kind == "monet" else chebyshev)(layer, values, *seen), layer(values, *seen)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        leaves = [values, *layer.parameters()]
        for mine, other in zip(
            torch.autograd.grad(ours, leaves, pull), torch.autograd.grad(theirs, leaves, pull), strict=True
        ):
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_a_vertex_of_a_mesh_sees_those_around_it():
    (mesh,) = articulated_bodies(1, 1, 300).meshes
    signals = Signals.on_meshes([np.zeros((300, 2))] * 2, [mesh, mesh])
    hierarchy = Hierarchy.of(signals, 3)
    values, (first, second, third) = hierarchy.batch(np.array([1, 0]))
    assert values.shape == (600, 2)
    assert first is second is third
    assert first.parents is None
    assert (first.edges[0] != first.edges[1]).all()
    assert torch.equal(first.edges[0] // 300, first.edges[1] // 300)
    seen = torch.bincount(first.edges[1], minlength=600)
    assert 4 < seen.float().mean() < 12
    assert (first.pseudo >= 0).all()
    assert (first.pseudo <= 1).all()
    straight = np.linalg.norm(np.diff(mesh.vertices[first.edges.T % 300], axis=1)[:, 0], axis=1)
    assert (first.pseudo[:, 0].numpy() * hierarchy.reach[0] >= 0.999 * straight).all()


def test_graphs_that_are_tested_are_measured_as_those_that_were_learned_from(graphs):
    learned = Hierarchy.of(graphs, 2)
    _, (level, _) = Hierarchy.of(graphs[[3]], 2, learned.reach).batch(np.array([0]))
    _, (alike, _) = learned.batch(np.array([3]))
    assert torch.equal(level.pseudo, alike.pseudo)


def test_monet_tells_meshes_apart(small):
    rng, sphere = np.random.default_rng(0), trimesh.creation.icosphere(subdivisions=2)
    labels = np.arange(24) % 2
    meshes = [
        Mesh(sphere.vertices * [1, 1, 1 + 2 * label] + 0.02 * rng.normal(size=(162, 3)), sphere.faces)
        for label in labels
    ]
    model = networks.mesh_network(meshes[:16], labels[:16], None, 0)
    found = model.predict(meshes[16:])
    assert found.shape == (8, 2)
    assert (found.argmax(axis=1) == labels[16:]).mean() > 0.8


def test_one_signal_of_a_class_is_learned_from(small, monkeypatch):
    monkeypatch.setattr(networks, "LEAST_PASSES", 2)
    train, labels = strokes(30, 0)
    rows = [int(np.argmax(labels == 0)), *np.flatnonzero(labels == 1)[:5]]
    model = networks.network("monet", SMALL)(train[rows], labels[rows], None, 0)
    assert model.predict(train[:3]).shape == (3, 2)


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
    monkeypatch.setattr(networks, "CHANNELS", (8, 8, 8))
    monkeypatch.setattr(networks, "ON_MESHES", replace(networks.ON_MESHES, kernels=4, steps=1))


def test_monet_learns_directions(small, capsys):
    (train, labels), (test, truth) = strokes(250, 0), strokes(100, 1)
    model = networks.network("monet", SMALL)(train, labels, None, 0)
    assert Scores.of(model.predict(test), truth).error < 0.2
    assert model.note["passes"] == networks.LEAST_PASSES
    told = capsys.readouterr().err.splitlines()
    assert len(told) == model.note["passes"]
    assert f"held-out NLL {model.note['held_out_nll']:.4f}" in told[model.note["best_pass"] - 1]


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_the_same_seed_learns_the_same(small, kind, monkeypatch):
    monkeypatch.setattr(networks, "LEAST_PASSES", 3)
    (train, labels), (test, _) = strokes(40, 0), strokes(5, 1)
    state = torch.get_rng_state()
    once, again = (networks.network(kind, SMALL)(train, labels, None, 3).predict(test) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_best_pass_is_kept(small, monkeypatch):
    """Steps so large that later passes spoil what the first ones learned."""
    monkeypatch.setattr(networks, "LARGEST_STEP", 1.0)
    train, labels = strokes(80, 0)
    model = networks.network("monet", SMALL)(train, labels, None, 0)
    _, held = held_out(labels, networks.HELD_OUT, 0)
    found = model.predict(train[held])[np.arange(len(held)), labels[held]]
    assert model.note["best_pass"] < model.note["passes"]
    assert -np.log(found).mean() == pytest.approx(model.note["held_out_nll"], rel=1e-4)


def test_few_signals_are_seen_more_often(monkeypatch):
    monkeypatch.setattr(networks, "CHANNELS", (4, 4, 4))
    recipe = replace(networks.USUAL, kernels=3, steps=140)
    note = networks.network("monet", recipe)(*strokes(16, 0), None, 0).note
    assert note["passes"] == 20  # of 14 signals, two at a time
