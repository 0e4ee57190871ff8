"""What users pass as signals: images, graphs and meshes of several libraries, or a clear error."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import trimesh

from gcgp import GCGPClassifier, GeometryVectors, Mesh, Patch, PatchKernel, Signals
from gcgp.domain import as_signals

IMAGES = np.random.default_rng(0).random((6, 4, 4))
LABELS = [3, 1, 3, 1, 1, 3]
FAST = {"n_inducing": 5, "kernel": PatchKernel(lengthscale=1.0, variance=1.0), "patch": Patch(position=False)}


def path_graphs(count=6):
    graphs = [nx.path_graph(4) for _ in range(count)]
    for n, graph in enumerate(graphs):
        nx.set_node_attributes(graph, {i: float(i * n) for i in range(4)}, "x")
    return graphs


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(IMAGES, requires_grad=True),
        list(torch.tensor(IMAGES, requires_grad=True)),
        pd.Series(list(IMAGES)),
        np.ma.masked_array(IMAGES),
        (image for image in IMAGES),
        [Signals.from_images(IMAGES[:2]), Signals.from_images(IMAGES[2:])],
    ],
    ids=["tensor", "tensors", "series", "masked", "generator", "signals"],
)
def test_images_in_other_containers(given):
    np.testing.assert_array_equal(as_signals(given).values, Signals.from_images(IMAGES).values)


def test_images_in_half_precision():
    signals = as_signals(torch.tensor(IMAGES, dtype=torch.bfloat16, requires_grad=True))
    np.testing.assert_allclose(signals.values[:, 0], IMAGES.reshape(-1), rtol=0.01)


def test_an_estimator_accepts_networkx_graphs():
    model = GCGPClassifier(**FAST).fit(path_graphs(), LABELS)
    expected = model.predict_proba(Signals.from_networkx(path_graphs()))
    np.testing.assert_array_equal(model.predict_proba(path_graphs()), expected)
    assert len(as_signals(path_graphs(1)[0])) == 1


def test_an_array_of_objects_is_read_as_a_list():
    graphs = np.empty(6, dtype=object)
    graphs[:] = path_graphs()
    assert len(as_signals(graphs)) == 6


BOX = trimesh.creation.box()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([BOX, BOX], ValueError, "Signals.on_meshes(values, meshes)"),
        (BOX, ValueError, "Signals.on_meshes(values, meshes)"),
        (Mesh(BOX.vertices, BOX.faces), ValueError, "Signals.on_meshes(values, meshes)"),
        (pd.DataFrame(IMAGES[0]), ValueError, "Signals.on_graph(values, edges)"),
        (torch.ones(3, 4, requires_grad=True), ValueError, "Signals.on_graph(values, edges)"),
        (scipy.sparse.eye(3).tocsr(), ValueError, "Signals.on_graph(values, edges)"),
        ([scipy.sparse.eye(3).tocsr()] * 2, TypeError, "Signals.from_graphs(values, edges)"),
        ([nx.path_graph(3)], ValueError, "Signals.from_networkx(graphs, values=...)"),
        ([Signals.from_images(IMAGES), IMAGES[0]], TypeError, "X[1] is a ndarray, but X[0] a Signals"),
        ([IMAGES[0], BOX], ValueError, "Signals.on_meshes(values, meshes)"),
        ({"a": IMAGES}, ValueError, "X: expected Signals or an array of images, got dict"),
        (None, ValueError, "X: expected Signals or an array of images, got NoneType"),
        ([None, None], ValueError, "image 0: values at [] is None"),
        (torch.utils.data.DataLoader(IMAGES), TypeError, "instead of PyTorch Geometric Data"),
    ],
)
def test_errors_suggest_the_right_constructor(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        as_signals(given)


def test_descriptors_accept_trimesh_objects():
    ball = trimesh.creation.icosphere(subdivisions=1)
    mesh = Mesh(ball.vertices, ball.faces)
    descriptor = GeometryVectors(eigenpairs=5)
    expected = descriptor.fit_transform([mesh, mesh]).values
    np.testing.assert_allclose(descriptor.fit_transform([ball, ball]).values, expected)
