"""Baseline graph networks: coarser graphs, batches, convolutions and training."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import trimesh
from torch_geometric.nn import ChebConv, GMMConv

from experiments import graph_hierarchy, networks
from experiments.data import hold_out
from experiments.graph_convolutions import chebyshev_convolution, mixture_convolution
from experiments.graph_hierarchy import Hierarchy
from experiments.metrics import Scores
from gcgp import Mesh, Signals, articulated_bodies

SMALL = replace(networks.ON_GRAPHS, kernels=9, min_steps=1)


@pytest.fixture(scope="module")
def graphs():
    """Random points in a square, with edges between near points; graphs of different sizes."""
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


def test_a_coarser_graph_merges_pairs_of_neighbors(graphs):
    fine, coarse, _ = Hierarchy.build(graphs, 3, True).levels
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


def test_edges_connect_nearest_neighbors(graphs, monkeypatch):
    monkeypatch.setattr(graph_hierarchy, "NEAREST_NEIGHBORS", 3)
    (level,) = Hierarchy.build(graphs, 1, True).levels
    expected = set()
    for first, last in itertools.pairwise(level.vertex_offsets):
        positions = level.positions[first:last]
        order = np.argsort(np.linalg.norm(positions[:, None] - positions[None], axis=2), axis=1)
        expected |= {(first + a, first + b) for a, row in enumerate(order) for b in row[1:4]}
    expected |= {(b, a) for a, b in expected}
    pairs = flat_edges(level)
    assert set(map(tuple, pairs.tolist())) == expected
    assert (np.diff(pairs[:, 1]) >= 0).all()


def test_the_size_of_chunks_does_not_matter(graphs, monkeypatch):
    whole = Hierarchy.build(graphs, 3, True)
    monkeypatch.setattr(graph_hierarchy, "GRAPHS_PER_CHUNK", 3)
    parts = Hierarchy.build(graphs, 3, True)
    assert parts.reach == whole.reach
    for chunked, expected in zip(parts.levels, whole.levels, strict=True):
        for field in fields(chunked):
            np.testing.assert_array_equal(getattr(chunked, field.name), getattr(expected, field.name))


def test_edges_of_a_graph_do_not_depend_on_other_graphs():
    """On a grid many neighbors have the same distance."""
    signals, _ = strokes(20, 0)
    all_graphs, one_graph = Hierarchy.build(signals, 3, True), Hierarchy.build(signals[7:8], 3, True)
    levels = zip(one_graph.batch(np.array([0]))[1], all_graphs.batch(np.array([7]))[1], strict=True)
    for alone, together in levels:
        torch.testing.assert_close(alone.edges, together.edges, rtol=0, atol=0)


def test_coordinates_of_edges_are_between_zero_and_one(graphs):
    _, levels = Hierarchy.build(graphs, 3, True).batch(np.arange(4))
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
def test_predictions_do_not_depend_on_the_batch(graphs, kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = networks.GraphNetwork(kind, 1, 3)
    hierarchy = Hierarchy.build(graphs, 3, True)
    whole = networks.probabilities(network, hierarchy.batch, 4, 64)
    for order in ([2], [3, 0], [1, 2, 3, 0]):
        rows = np.array(order)
        found = networks.probabilities(
            network, lambda some, rows=rows: hierarchy.batch(rows[some]), len(rows), 64
        )
        np.testing.assert_allclose(found, whole[rows], atol=1e-5)


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_convolutions_and_gradients_are_those_of_pyg(graphs, kind):
    layer = GMMConv(3, 5, dim=2, kernel_size=7) if kind == "monet" else ChebConv(3, 5, 7)
    _, levels = Hierarchy.build(graphs, 2, True).batch(np.arange(4))
    draw = torch.Generator().manual_seed(0)
    for level in levels:
        values = torch.randn(len(level.graph_of), 3, generator=draw).requires_grad_()
        gradient = torch.randn(len(level.graph_of), 5, generator=draw)
        arguments = (level.edges, level.pseudo) if kind == "monet" else (level.edges,)
        convolution = mixture_convolution if kind == "monet" else chebyshev_convolution
        ours, theirs = convolution(layer, values, *arguments), layer(values, *arguments)
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        leaves = [values, *layer.parameters()]
        our_gradients, their_gradients = (torch.autograd.grad(y, leaves, gradient) for y in (ours, theirs))
        torch.testing.assert_close(our_gradients, their_gradients, atol=1e-4, rtol=1e-4)


def test_neighbors_on_a_mesh():
    (mesh,) = articulated_bodies(1, 1, 300).meshes
    signals = Signals.on_meshes([np.zeros((300, 2))] * 2, [mesh, mesh])
    hierarchy = Hierarchy.build(signals, 3, False)
    values, (first, second, third) = hierarchy.batch(np.array([1, 0]))
    assert values.shape == (600, 2)
    assert first is second is third
    assert first.parents is None
    assert (first.edges[0] != first.edges[1]).all()
    assert torch.equal(first.edges[0] // 300, first.edges[1] // 300)
    degrees = torch.bincount(first.edges[1], minlength=600)
    assert 4 < degrees.float().mean() < 12
    assert (first.pseudo >= 0).all()
    assert (first.pseudo <= 1).all()
    straight = np.linalg.norm(np.diff(mesh.vertices[first.edges.T % 300], axis=1)[:, 0], axis=1)
    assert (first.pseudo[:, 0].numpy() * hierarchy.reach[0] >= 0.999 * straight).all()


def test_edge_lengths_of_test_graphs_are_relative_to_those_of_training(graphs):
    training = Hierarchy.build(graphs, 2, True)
    _, (level, _) = Hierarchy.build(graphs[[3]], 2, True, training.reach).batch(np.array([0]))
    _, (expected, _) = training.batch(np.array([3]))
    assert torch.equal(level.pseudo, expected.pseudo)


def test_monet_classifies_meshes(small):
    rng, sphere = np.random.default_rng(0), trimesh.creation.icosphere(subdivisions=2)
    labels = np.arange(24) % 2
    meshes = [
        Mesh(sphere.vertices * [1, 1, 1 + 2 * label] + 0.02 * rng.normal(size=(162, 3)), sphere.faces)
        for label in labels
    ]
    model = networks.fit_mesh_network(meshes[:16], labels[:16], None, 0)
    probabilities = model.predict(meshes[16:])
    assert probabilities.shape == (8, 2)
    assert (probabilities.argmax(axis=1) == labels[16:]).mean() > 0.8


def test_a_class_with_one_signal(small, monkeypatch):
    monkeypatch.setattr(networks, "MIN_EPOCHS", 2)
    train, labels = strokes(30, 0)
    rows = [int(np.argmax(labels == 0)), *np.flatnonzero(labels == 1)[:5]]
    model = networks.graph_network("monet", SMALL)(train[rows], labels[rows], None, 0)
    assert model.predict(train[:3]).shape == (3, 2)


def strokes(count, seed):
    """Grids of 6 × 6 vertices with a bright column or a bright row."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=count)
    images = 0.1 * rng.random((count, 6, 6))
    for image, label in zip(images, labels, strict=True):
        index = rng.integers(6)
        image[(slice(None), index) if label else index] += 1.0
    rows, columns = np.indices((6, 6)).reshape(2, -1)
    positions = np.stack([columns, rows], axis=1).astype(float)
    near = np.linalg.norm(positions[:, None] - positions[None], axis=2) < 1.5
    edges = np.argwhere(np.triu(near, 1))
    return Signals.on_graph(images.reshape(count, 36), edges, coordinates=positions), labels


@pytest.fixture
def small(monkeypatch):
    """Networks that train in seconds."""
    monkeypatch.setattr(networks, "CHANNELS", (8, 8, 8))
    monkeypatch.setattr(networks, "ON_MESHES", replace(networks.ON_MESHES, kernels=4, min_steps=1))


def test_monet_learns_directions(small, capsys):
    (train, labels), (test, truth) = strokes(250, 0), strokes(100, 1)
    model = networks.graph_network("monet", SMALL)(train, labels, None, 0)
    assert Scores.of(model.predict(test), truth).error < 0.2
    assert model.note["epochs"] == networks.MIN_EPOCHS
    progress = capsys.readouterr().err.splitlines()
    assert len(progress) == model.note["epochs"]
    assert f"held-out NLL {model.note['held_out_nll']:.4f}" in progress[model.note["best_epoch"] - 1]


@pytest.mark.parametrize("kind", ["monet", "chebnet"])
def test_the_same_seed_gives_the_same_network(small, kind, monkeypatch):
    monkeypatch.setattr(networks, "MIN_EPOCHS", 3)
    (train, labels), (test, _) = strokes(40, 0), strokes(5, 1)
    state = torch.get_rng_state()
    once, again = (
        networks.graph_network(kind, SMALL)(train, labels, None, 3).predict(test) for _ in range(2)
    )
    np.testing.assert_array_equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_best_epoch_is_used(small, monkeypatch):
    """With a learning rate so large that the loss increases in later epochs."""
    monkeypatch.setattr(networks, "MAX_LEARNING_RATE", 1.0)
    train, labels = strokes(80, 0)
    model = networks.graph_network("monet", SMALL)(train, labels, None, 0)
    _, held_out = hold_out(labels, networks.HELD_OUT_SHARE, 0)
    probabilities = model.predict(train[held_out])[np.arange(len(held_out)), labels[held_out]]
    assert model.note["best_epoch"] < model.note["epochs"]
    assert -np.log(probabilities).mean() == pytest.approx(model.note["held_out_nll"], rel=1e-4)


def test_few_signals_get_more_epochs(monkeypatch):
    monkeypatch.setattr(networks, "CHANNELS", (4, 4, 4))
    config = replace(networks.ON_GRAPHS, kernels=3, min_steps=140)
    note = networks.graph_network("monet", config)(*strokes(16, 0), None, 0).note
    assert note["epochs"] == 20  # 14 signals in batches of two
