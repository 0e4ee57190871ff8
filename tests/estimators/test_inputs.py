"""What users pass as signals and labels: read as they mean it, or rejected with the number of the signal."""

import re

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import trimesh

from gcgp import GCGPClassifier, GCGPRegressor, GeometryVectors, Mesh, Signals
from gcgp.estimators.validation import as_signals, as_targets, encode_labels, labels_of

IMAGES = np.random.default_rng(0).random((6, 4, 4))
PLAIN = [3, 1, 3, 1, 1, 3]
FAST = {"n_inducing": 5, "progress": False, "variance": 1.0, "lengthscale": 1.0, "position": False}


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(PLAIN),
        torch.tensor(PLAIN)[:, None],
        [torch.tensor(label) for label in PLAIN],
        [torch.tensor([label]) for label in PLAIN],
        tuple(np.array([label]) for label in PLAIN),
        [np.int64(label) for label in PLAIN],
        np.array([torch.tensor(label) for label in PLAIN] + [None], dtype=object)[:6],
        np.array(PLAIN, dtype=object),
        np.ma.masked_array(PLAIN, mask=False),
        pd.Series(PLAIN, index=range(10, 16)),
        pd.Series(PLAIN, dtype="Int64"),
        pd.DataFrame({"label": PLAIN}),
        iter(PLAIN),
    ],
    ids=lambda given: type(given).__name__,
)
def test_class_numbers(given):
    classes, codes = encode_labels(given, 6)
    assert classes.tolist() == [1, 3]
    assert classes.dtype.kind == "i"
    assert codes.tolist() == [1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_targets_as_tensors(dtype):
    whole = torch.tensor([1.0, 2.0, -0.5], dtype=dtype, requires_grad=True)
    for given in (whole, whole[:, None], list(whole), list(whole[:, None])):
        assert as_targets(given, 3).tolist() == [1.0, 2.0, -0.5]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (pd.Categorical(["b", "a", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"]), ["a", "b"]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        ([torch.tensor(True), torch.tensor(False), torch.tensor(True)], [False, True]),
        ([("b", 1), ("a", 2), ("b", 1)], [("a", 2), ("b", 1)]),
        (np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="datetime64[D]"), None),
    ],
)
def test_other_labels(classes, expected):
    found, codes = encode_labels(classes, 3)
    assert codes.tolist() == [1, 0, 1]
    assert expected is None or found.tolist() == expected


MISSING = {
    "NaN": [0.0, 1.0, np.nan],
    "NaN in an array": np.array([0.0, 1.0, np.nan]),
    "NaN among objects": np.array(["a", "b", np.nan], dtype=object),
    "NaN among texts": ["a", "b", float("nan")],
    "None": [0, 1, None],
    "None among objects": np.array(["a", "b", None], dtype=object),
    "NA": [0, 1, pd.NA],
    "NA in a series": pd.Series([0, 1, pd.NA], dtype="Int64"),
    "NA among texts": pd.Series(["a", "b", None]),
    "not in a category": pd.Categorical(["a", "b", None]),
    "not a time": np.array(["2020-01-02", "2020-01-01", "NaT"], dtype="datetime64[D]"),
    "masked": np.ma.masked_array([0, 1, 1], mask=[False, False, True]),
    "masked column": np.ma.masked_array([[0], [1], [1]], mask=[[False], [False], [True]]),
    "masked constant": [0, 1, np.ma.masked],
    "NaN tensor": torch.tensor([0.0, 1.0, torch.nan]),
    "NaN tensors": [torch.tensor([value]) for value in (0.0, 1.0, torch.nan)],
}


@pytest.mark.parametrize("given", MISSING.values(), ids=MISSING)
def test_a_missing_label_is_named(given):
    with pytest.raises(ValueError, match=r"y\[2\] is .*: signal 2 has no label"):
        encode_labels(given, 3)
    if not any(isinstance(item, str) for item in list(given)):
        with pytest.raises(ValueError, match=r"y\[2\] is .*: signal 2 has no label"):
            as_targets(given, 3)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([torch.tensor([0]), torch.tensor([1, 2])], ValueError, "y[1] has shape (2,): expected one label"),
        ([np.zeros((1, 2)), np.zeros((1, 2))], ValueError, "y[0] has shape (1, 2): expected one label"),
        (np.ma.masked_array(np.eye(2)), ValueError, "y: expected one label per signal, got shape (2, 2)"),
        (torch.eye(2), ValueError, "y: expected one label per signal, got shape (2, 2)"),
        (torch.tensor(1), ValueError, "y: expected one label per signal, got shape ()"),
        ({"a": 0, "b": 1}, TypeError, "y: expected a list or array of labels, got dict"),
        ({0, 1}, TypeError, "y: expected a list or array of labels, got set"),
        ("ab", TypeError, "y: expected a list or array of labels, got str"),
        (7, TypeError, "y: expected a list or array of labels, got int"),
        (scipy.sparse.eye(2).tocsr(), TypeError, "y: expected a list or array of labels, got csr_matrix"),
        (None, ValueError, "y: labels are required, got None"),
    ],
)
def test_what_is_no_list_of_labels_is_rejected(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        labels_of(given)


def test_classifier_with_one_element_tensors_has_two_classes():
    labels = [torch.tensor([label]) for label in PLAIN]
    model = GCGPClassifier(**FAST).fit(IMAGES, labels)
    assert model.classes_.tolist() == [1, 3]
    assert model.score(IMAGES, labels) == model.score(IMAGES, PLAIN)
    with pytest.raises(ValueError, match=r"y\[0\] is None: signal 0 has no label"):
        GCGPClassifier(**FAST).fit(IMAGES, [None, *PLAIN[1:]])


def test_regressor_with_tensors_that_require_gradients():
    targets = torch.tensor(PLAIN, dtype=torch.bfloat16, requires_grad=True)
    model = GCGPRegressor(**FAST).fit(IMAGES, targets)
    assert model.intercept_ == 2.0
    assert np.isfinite(model.score(IMAGES, targets))


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
def test_images_in_other_types(given):
    np.testing.assert_array_equal(as_signals(given).values, Signals.from_images(IMAGES).values)


def test_half_precision_images():
    found = as_signals(torch.tensor(IMAGES, dtype=torch.bfloat16, requires_grad=True))
    np.testing.assert_allclose(found.values[:, 0], IMAGES.reshape(-1), rtol=0.01)


def test_networkx_graphs_go_into_an_estimator():
    model = GCGPClassifier(**FAST).fit(path_graphs(), PLAIN)
    expected = model.predict_proba(Signals.from_networkx(path_graphs()))
    np.testing.assert_array_equal(model.predict_proba(path_graphs()), expected)
    assert len(as_signals(path_graphs(1)[0])) == 1


def test_objects_in_an_array_are_a_list():
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
def test_errors_name_the_right_constructor(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        as_signals(given)


def test_descriptors_take_trimesh_objects():
    ball = trimesh.creation.icosphere(subdivisions=1)
    ours = Mesh(ball.vertices, ball.faces)
    descriptor = GeometryVectors(eigenpairs=5)
    expected = descriptor.fit_transform([ours, ours]).values
    np.testing.assert_allclose(descriptor.fit_transform([ball, ball]).values, expected)
