"""Pooling: all vertices of a signal together become one."""

import warnings

import numpy as np
import pytest
import torch

import gcgp
from gcgp import (
    Box,
    GCGPClassifier,
    GCGPRegressor,
    Layer,
    Patch,
    Polar,
    Radial,
    SelectionWarning,
    Signals,
    articulated_bodies,
)
from gcgp.domain import Points
from gcgp.domain.base import chart_kind
from gcgp.layers import fit_layers
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution
from gcgp.selection.layers import candidate_layers


def graphs(count=20, seed=0):
    """Paths and rings with random labels."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 9, count)
    values = [np.eye(2)[rng.integers(0, 2, size)] for size in sizes]
    edges = [
        [[i, i + 1] for i in range(size - 1)] + [[0, size - 1]] * (n % 2) for n, size in enumerate(sizes)
    ]
    return Signals.from_graphs(values, edges)


def pattern(**options):
    return Layer(Radial([0.0, 1.0], 0.5, normalize=False), n_anchors=16, kernel="rbf", **options)


@pytest.mark.parametrize("pool", ["mean", "sum"])
def test_pooled_features_are_means_or_sums(pool):
    signals = graphs()
    plain = pattern(average=0.5).fitted(signals, torch.float64)
    pooled = pattern(average=0.5, skip=True, pool=pool).fitted(signals, torch.float64)
    kernel_of_averages = plain(signals)
    input_averages = Layer(Radial([0.0]), average=0.5, skip=True).fitted(signals, torch.float64)(signals)
    result = pooled(signals)
    assert result.vertex_counts.tolist() == [1] * len(signals)
    combine = np.mean if pool == "mean" else np.sum
    for n in range(len(signals)):
        expected = [
            combine(input_averages[n].values[:, :2], axis=0),
            combine(kernel_of_averages[n].values, axis=0),
        ]
        np.testing.assert_allclose(result[n].values[0], np.concatenate(expected), atol=1e-10)


def test_means_over_meshes_weight_vertices_by_area():
    meshes = articulated_bodies(2, 1, vertices=200, random_state=0).meshes
    signals = Signals.on_meshes([mesh.vertices[:, 2] for mesh in meshes], meshes)
    layer = Layer(Radial([0.0]), n_anchors=4, kernel="rbf")
    plain = layer.fitted(signals, torch.float64)(signals)
    pooled = layer.set_params(pool="mean").fitted(signals, torch.float64)(signals)
    for n, mesh in enumerate(meshes):
        expected = np.average(plain[n].values, axis=0, weights=mesh.vertex_areas)
        np.testing.assert_allclose(pooled[n].values[0], expected, atol=1e-10)
    np.testing.assert_allclose(pooled.domains.measure, [mesh.area for mesh in meshes])


def test_flattened_features_are_those_of_all_vertices():
    images = np.random.default_rng(0).random((6, 8, 8))
    layer = Layer(Box(3, inside=False), n_anchors=5, average=1.0, stride=2)
    flat = layer.fit_transform(images)
    layer.set_params(pool="flatten")
    pooled = layer.fit_transform(images)
    np.testing.assert_allclose(pooled.values, flat.values.reshape(6, -1), rtol=1e-5)
    assert layer.layer_.channels == 16 * 5
    with pytest.raises(ValueError, match=r"signal 0 has 25 vertices .* instead of 16"):
        layer.transform(np.zeros((2, 10, 10)))


def test_flattened_signals_need_the_same_vertices():
    with pytest.raises(ValueError, match=r"signal 1 has 9 vertices .* instead of 16"):
        Layer(Box(3, inside=False), pool="flatten").fit([np.ones((4, 4)), np.ones((3, 3))])


def superpixel_graphs(count=12):
    """Graphs of 5 to 9 vertices with coordinates between 0 and 8."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(5, 10, count)
    values = [rng.random((size, 2)) for size in sizes]
    positions = [8 * rng.random((size, 2)) for size in sizes]
    edges = [[[i, i + 1] for i in range(size - 1)] for size in sizes]
    return Signals.from_graphs(values, edges, coordinates=positions)


def test_grid_features_are_weighted_sums_around_cells():
    signals = superpixel_graphs()
    layer = Layer(Polar([1.0, 2.0], 4, 1.0), n_anchors=5, grid=3)
    plain = layer.fitted(signals, torch.float64)(signals)
    pooled = layer.set_params(pool="grid").fitted(signals, torch.float64)
    result = pooled(signals)
    positions = signals.domains.positions
    low, high = positions.min(axis=0), positions.max(axis=0)
    assert pooled.channels == result.channels == 9 * 5
    for n in range(len(signals)):
        here = positions[signals.offsets[n] : signals.offsets[n + 1]]
        expected = np.zeros((3, 3, 5))
        for row in range(3):
            for column in range(3):
                center = low + (high - low) * (np.array([row, column]) + 0.5) / 3
                for position, features in zip(here, plain[n].values, strict=True):
                    distance = np.linalg.norm((position - center) / (0.75 * (high - low) / 3))
                    expected[row, column] += features * np.exp(-0.5 * distance**2) * (distance <= 3)
        np.testing.assert_allclose(result[n].values[0], expected.ravel(), atol=1e-10)


def test_a_grid_needs_coordinates():
    with pytest.raises(ValueError, match="pool='grid': needs domains with coordinates"):
        Layer(Radial([0.0, 1.0], 0.5), pool="grid").fit(graphs())
    layer = Layer(Radial([0.0, 1.0], 0.5), pool="grid", chart="path").fit(superpixel_graphs())
    with pytest.raises(ValueError, match="vertices have 0 coordinates instead of 2"):
        layer.transform(graphs())


def test_a_saved_model_with_a_grid_predicts_the_same(tmp_path):
    signals, labels = superpixel_graphs(24), np.arange(24) % 2
    layer = Layer(Polar([1.0, 2.0], 4, 1.0), n_anchors=5, pool="grid", grid=3, normalized=True)
    fitted = GCGPClassifier(layers=[layer], random_state=0).fit(signals, labels)
    fitted.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(loaded.predict_proba(signals), fitted.predict_proba(signals))


def test_layers_after_pooling_are_global():
    signals = graphs()
    chain = [pattern(skip=True, pool="sum"), Layer(Radial([0.0]), n_anchors=6, kernel="rbf")]
    first, second = fit_layers(chain, signals, torch.float64)
    convolution = layered(Convolution(Radial([0.0]), "path", dtype=torch.float64), (first, second))
    expected = second(first(signals)).values
    with torch.no_grad():
        patches = convolution.patches(signals).values
    np.testing.assert_allclose(patches, expected, atol=1e-12)
    assert convolution.columns(signals) == {"bins": slice(0, 6)}


@pytest.fixture(scope="module")
def model():
    """A function of the numbers of patterns that is not a sum over vertices."""
    signals = graphs(160)
    rings = np.arange(160) % 2
    first_labels = np.add.reduceat(signals.values[:, 0], signals.offsets[:-1]) > signals.vertex_counts / 2
    y = (rings == first_labels).astype(int)
    layers = [pattern(skip=True), pattern(skip=True, pool="sum")]
    return GCGPClassifier(layers=layers, random_state=0).fit(signals[:120], y[:120]), signals[120:], y[120:]


def test_pooled_models_learn_interactions(model):
    fitted, signals, labels = model
    assert fitted.score(signals, labels) >= 0.7
    assert fitted.features_.terms[0].convolution.pooled


def test_evidence_of_a_pooled_model_is_the_same_at_all_vertices(model):
    fitted, signals, _ = model
    evidence, latents = fitted.evidence(signals), fitted.predict_latent(signals)
    for n in range(len(signals)):
        mean, std = evidence[n]
        np.testing.assert_allclose(mean, np.broadcast_to(latents[n] / len(mean), mean.shape), atol=1e-10)
        assert (std > 0).all()


def test_a_saved_pooled_model_predicts_the_same(model, tmp_path):
    fitted, signals, _ = model
    fitted.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_allclose(loaded.predict_proba(signals), fitted.predict_proba(signals), rtol=1e-10)


def pools(domains):
    candidates = candidate_layers(domains, chart_kind(domains, "auto"), "fast")
    return {layer.pool for terms in candidates for _, layers in terms for layer in layers}


def test_candidates_are_pooled_where_that_is_possible():
    assert pools(graphs().domains) == {None, "mean", "sum"}
    assert pools(superpixel_graphs().domains) == {"grid"}
    assert pools(Signals.from_images(np.zeros((3, 20, 20))).domains) == {None, "flatten"}
    assert pools(Signals.from_images([np.zeros((20, 20)), np.zeros((21, 20))]).domains) == {None}


def test_pooled_models_are_not_compared_if_patches_are_to_contain_bin_counts():
    signals, labels = graphs(12), np.arange(12) % 2
    options = {"layers": "auto", "patch": Patch(bin_counts=True), "n_inducing": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)
        fitted = GCGPClassifier(**options).fit(signals, labels)
    layers = fitted.search_.to_pandas().layers.astype(str)
    assert layers.str.contains("Layer").any()
    assert not layers.str.contains("pool").any()


def test_regression_after_flattening():
    """The product of two pixels that are far apart is not a sum over vertices."""
    images = np.random.default_rng(0).random((150, 6, 6))
    target = images[:, 1, 1] * images[:, 5, 5]
    layer = Layer(Box(1, inside=False), n_anchors=8, kernel="rbf", stride=2, pool="flatten")
    fitted = GCGPRegressor(Box(1), layers=[layer], random_state=0).fit(images[:110], target[:110])
    assert fitted.score(images[110:], target[110:]) > 0.8
    with pytest.raises(ValueError, match="shape"):
        fitted.predict(np.zeros((1, 6, 7)))


@pytest.mark.parametrize("name", ["position", "bin_counts"])
def test_pooled_patches_contain_nothing_about_vertices(name):
    layer = Layer(Box(3, inside=False), pool="mean")
    with pytest.raises(ValueError, match=f"{name}=True, but the layers pool"):
        GCGPClassifier(layers=[layer], patch=Patch(**{name: True})).fit(
            np.random.default_rng(0).random((8, 6, 6)), [0, 1] * 4
        )


def test_points():
    points = Points(3, np.array([1.0, 2.0, 4.0]), dimensions=2)
    chart = points.chart(["rho", "theta", "offset", "degree"], 1.0)
    assert chart.row_offsets.tolist() == [0, 1, 2, 3]
    assert chart.neighbors.tolist() == chart.coordinates["rho"].tolist() == [0, 0, 0]
    assert np.isnan(chart.coordinates["theta"]).all()
    assert chart.coordinates["offset"].shape == (3, 2)
    assert points.chart(["rho"], 1.0, rows=np.array([1])).row_offsets.tolist() == [0, 0, 1, 1]
    both, (first, second) = Points.concatenate([points, points.take(np.array([2]))])
    assert both.measure.tolist() == [1.0, 2.0, 4.0, 4.0]
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3])
    with pytest.raises(ValueError, match="areas are missing"):
        Points.concatenate([points, Points(1)])
    with pytest.raises(ValueError, match="coordinate of a point='rays:8'"):
        points.chart(["rays:8"], 1.0)
