"""Layers: features of patches against slow references, strides, averages, rotations and errors."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import gcgp
from gcgp import Box, GCGPClassifier, GeodesicPolar, Layer, Patch, Polar, Radial, Signals, articulated_bodies
from gcgp.layers import fit_layers
from gcgp.patches import Convolution


def ragged_graphs(count=12, channels=2, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 9, count)
    values = [rng.normal(size=(size, channels)) for size in sizes]
    return Signals.from_graphs(values, [[[i, i + 1] for i in range(size - 1)] for size in sizes])


def slow_kernel(layer, x, y):
    """The kernel between two patches, by definition."""
    if layer.kernel == "rbf":
        return np.exp(-0.5 * np.sum((x - y) ** 2) / float(layer.lengthscale) ** 2)
    size = np.linalg.norm(x)
    cosine = x @ y / size if size > 0 else 0.0
    return size / layer.unit * np.exp((cosine - 1) / float(layer.lengthscale) ** 2)


@pytest.mark.parametrize("kernel", ["homogeneous", "rbf"])
def test_inner_products_of_features_are_projected_kernels(kernel):
    """⟨φ(z), φ(z')⟩ = k(z, U) K_UU⁻¹ k(U, z')."""
    signals = ragged_graphs()
    layer = Layer(Radial([0.0, 1.0]), n_anchors=7, kernel=kernel).fitted(signals, torch.float64)
    patches = Convolution(layer.convolution.weighting, dtype=torch.float64).patches(signals).values.numpy()
    if kernel == "homogeneous":
        patches = patches.reshape(len(patches), 2, 2)
        patches = (patches - patches.mean(axis=2, keepdims=True)).reshape(len(patches), 4)
    anchors = layer.anchors.numpy()
    slow = np.array([[slow_kernel(layer, x, u) for u in anchors] for x in patches])
    kuu = np.array([[slow_kernel(layer, x, u) for u in anchors] for x in anchors])
    if kernel == "homogeneous":
        kuu *= layer.unit
        np.testing.assert_allclose(np.linalg.norm(anchors, axis=1), 1.0)
    features = layer(signals).values
    np.testing.assert_allclose(
        features @ features.T, slow @ np.linalg.solve(kuu + 1e-6 * np.eye(7), slow.T), atol=1e-6
    )


def test_averages_and_strides_of_images_of_different_sizes():
    rng = np.random.default_rng(0)
    images = [rng.random((6, 5)), rng.random((7, 8)), rng.random((6, 5))]
    signals = Signals.from_images(images)
    plain = Layer(n_anchors=5).fitted(signals, torch.float64)
    averaged = Layer(n_anchors=5, average=1.5, stride=2).fitted(signals, torch.float64)
    torch.testing.assert_close(plain.anchors, averaged.anchors)
    before, after = plain(signals), averaged(signals)
    for n, image in enumerate(images):
        height, width = image.shape
        values = before[n].values.reshape(height, width, -1)
        rows, columns = np.arange(1, height, 2), np.arange(1, width, 2)
        expected = np.empty((len(rows), len(columns), 5))
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                y, x = np.abs(np.arange(height) - row)[:, None], np.abs(np.arange(width) - column)
                weights = np.exp(-0.5 * (y**2 + x**2) / 1.5**2) * (y <= 4.5) * (x <= 4.5)
                expected[i, j] = (weights[..., None] * values).sum(axis=(0, 1)) / weights.sum()
        np.testing.assert_allclose(after[n].values, expected.reshape(-1, 5), atol=1e-10)
    assert after.domains.vertex_shape(int(after.domain_of[1])) == (3, 4)


def test_averages_on_graphs_weight_neighbors_by_distance():
    signals = ragged_graphs(count=1)
    plain = Layer(Radial([0.0]), n_anchors=4).fitted(signals, torch.float64)
    averaged = Layer(Radial([0.0]), n_anchors=4, average=0.5).fitted(signals, torch.float64)
    count = len(signals.values)
    distance = np.abs(np.arange(count)[:, None] - np.arange(count))
    weights = np.exp(-0.5 * (distance / 0.5) ** 2) * (distance <= 1.5)
    expected = weights @ plain(signals).values / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(averaged(signals).values, expected, atol=1e-9)


def test_anchors_are_all_patches_if_these_are_few():
    """With one-hot labels, a layer counts patterns: each is an anchor."""
    values = [np.eye(2)[[0, 1, 0]], np.eye(2)[[1, 1]]]
    signals = Signals.from_graphs(values, [[[0, 1], [1, 2]], [[0, 1]]])
    layer = Layer(Radial([0.0, 1.0], 0.1, normalize=False), kernel="rbf", lengthscale=0.01)
    features = layer.fit_transform(signals).values
    assert features.shape == (5, 3)  # an end 0 with neighbor 1, its neighbor with two 0, and an end 1
    products = features @ features.T
    same = np.array([0, 1, 0, 2, 2])
    np.testing.assert_allclose(products, same[:, None] == same, atol=1e-3)


def test_features_on_meshes_do_not_depend_on_the_first_direction():
    meshes = articulated_bodies(2, 1, vertices=200, random_state=0).meshes
    values = [mesh.vertices[:, 2] for mesh in meshes]
    layer = Layer(GeodesicPolar([0.0, 0.2], 4, 0.1), n_anchors=6).fitted(
        Signals.on_meshes(values, meshes), torch.float64
    )
    assert layer.rotation_average
    patches = torch.rand(5, 8, dtype=torch.float64)
    columns = layer.rotations[1]
    torch.testing.assert_close(layer._kernel_values(patches), layer._kernel_values(patches[:, columns]))


def test_a_layer_is_a_transformer():
    images = np.random.default_rng(0).random((10, 8, 8))
    layer = clone(Layer(n_anchors=4, stride=2))
    assert layer.get_feature_names_out is not None
    model = make_pipeline(layer, GCGPClassifier(Box(1), n_inducing=10))
    labels = np.arange(10) % 2
    images[labels == 1, 2:6] += 1.0
    assert model.fit(images, labels).score(images, labels) == 1.0
    assert list(layer.get_feature_names_out()) == [f"layer{i}" for i in range(4)]


def test_blank_signals_have_zero_features():
    images = np.zeros((3, 8, 8))
    images[:2, 3] = 1.0
    features = Layer(n_anchors=4).fit(images).transform(images[2:])
    assert not features.values.any()
    assert Layer(n_anchors=4).fit_transform(np.zeros((2, 8, 8))).channels == 1


def test_layers_are_fitted_to_the_result_of_those_before():
    images = Signals.from_images(np.random.default_rng(0).random((6, 8, 8)))
    first, second = fit_layers(
        [Layer(n_anchors=3), Layer(Box(1, inside=False), n_anchors=5)], images, torch.float32
    )
    assert second.anchors.shape == (5, 3)
    assert second(first(images)).channels == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_anchors": 0}, "n_anchors=0"),
        ({"kernel": "linear"}, "kernel='linear' is not known"),
        ({"lengthscale": -1.0}, "lengthscale=-1.0"),
        ({"average": -1.0}, "average=-1.0"),
        ({"stride": 0}, "stride=0"),
        ({"weighting": "box"}, "weighting='box': expected 'auto' or a Weighting"),
        ({"weighting": Box(3)}, "a layer needs a patch at every vertex"),
        ({"centered": "yes"}, "centered='yes'"),
    ],
)
def test_invalid_arguments(arguments, message):
    images = np.random.default_rng(0).random((4, 8, 8))
    with pytest.raises(ValueError, match=message):
        Layer(**arguments).fit(images)
    with pytest.raises(ValueError, match=rf"layers\[0\]: .*{message}"):
        GCGPClassifier(layers=[Layer(**arguments)]).fit(images, [0, 1, 0, 1])


@pytest.mark.parametrize("average", [0.0, 0.8])
def test_strides_on_graphs_leave_features_of_vertices_that_are_apart(average):
    signals = ragged_graphs()
    options = {"n_anchors": 7, "average": average, "skip": True}
    plain = Layer(Radial([0.0, 1.0]), **options).fitted(signals, torch.float64)(signals)
    layer = Layer(Radial([0.0, 1.0]), **options, stride=2).fitted(signals, torch.float64)
    coarse, kept = layer.coarse(signals)
    result = layer(signals)
    np.testing.assert_allclose(result.values, plain.values[kept], atol=1e-12)
    assert result.vertex_counts.tolist() == coarse.vertex_counts.tolist()
    for size, count in zip(signals.vertex_counts, result.vertex_counts, strict=True):
        assert size / 3 <= count <= (size + 1) / 2  # of a path


def test_a_model_of_coarse_graphs_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 2
    values = rng.normal(size=(20, 12, 1)) + labels[:, None, None]
    graphs = Signals.from_graphs(values, [[[0, 1]]] * 20, coordinates=rng.uniform(0, 4, (20, 12, 2)))
    pipeline = make_pipeline(Layer(n_anchors=6, stride=2), GCGPClassifier(n_inducing=10, search=None))
    pipeline.fit(graphs, labels)
    coarse = pipeline[0].transform(graphs)
    assert "on subsets" in repr(coarse)
    assert coarse.vertex_counts.max() < 12
    pipeline[-1].save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(loaded.predict_proba(coarse), pipeline.predict_proba(graphs))


def test_unsuitable_layers_are_value_errors():
    with pytest.raises(ValueError, match=r"layers\[0\]='box': expected a Layer"):
        GCGPClassifier(layers=["box"]).fit(ragged_graphs(), np.arange(12) % 2)
    with pytest.raises(ValueError, match=r"stride=9: an image of shape \[4, 4\] is too small"):
        Layer(stride=9).fit_transform(np.random.default_rng(0).random((2, 4, 4)))


def test_patches_of_selected_vertices_are_those_of_all():
    images = np.random.default_rng(0).random((6, 8, 8))
    labels = np.arange(6) % 2
    layers = [Layer(n_anchors=3, stride=2), Layer(Polar([1.0], 4), n_anchors=4)]
    model = GCGPClassifier(Box(1), layers=layers, n_inducing=5, patch=Patch(position=True), search=None)
    convolution = model.fit(images, labels).features_.terms[0].convolution
    signals = Signals.from_images(images)
    everything = convolution.patches(signals)
    assert everything.vertices[:3].tolist() == [9, 11, 13]
    rows = torch.tensor([0, 5, 20, 40])
    some = convolution.patches(signals, None, convolution.empty_patches(signals).select_rows(rows))
    torch.testing.assert_close(some.values, everything.values[rows])
    assert some.vertices.tolist() == everything.vertices[rows].tolist()


def test_representation_is_one_line():
    layer = Layer(
        Polar([1.0, 3.0, 5.0], 8, 0.7), n_anchors=256, kernel="rbf", lengthscale=0.25, average=1.5, stride=2
    )
    assert repr(layer) == (
        "Layer(average=1.5, kernel='rbf', lengthscale=0.25, n_anchors=256, stride=2, "
        "weighting=Polar(radial_width=0.7))"
    )
    assert repr(Layer()) == "Layer()"


def test_opposite_directions_have_no_common_anchor():
    """Patches (1, −1) and (−1, 1): their center is zero."""
    signals = Signals.from_graphs([[[1.0], [-1.0]]], [[[0, 1]]])
    layer = Layer(Radial([0.0, 1.0], 0.1), n_anchors=1).fitted(signals, torch.float64)
    torch.testing.assert_close(layer.anchors.norm(dim=1), torch.ones(1, dtype=torch.float64))
    assert np.isfinite(layer(signals).values).all()
