"""Hierarchical models: what holds for flat models also holds with layers."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

import gcgp
from gcgp import (
    Box,
    GCGPClassifier,
    GCGPRegressor,
    GeodesicPolar,
    Layer,
    Learn,
    Mesh,
    Patch,
    Polar,
    Radial,
    SelectionWarning,
    Signals,
    articulated_bodies,
)


def striped_images(count=40, seed=0):
    """Images with horizontal or vertical stripes, at random places."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = 0.3 * rng.random((count, 12, 12))
    for image, label in zip(images, labels, strict=True):
        start = rng.integers(0, 8)
        (image.T if label else image)[start : start + 4 : 2] += 1.0
    return images, labels


LAYERS = [
    Layer(Box(3, inside=False), n_anchors=8, average=1.0, stride=2),
    Layer(Box(3, inside=False), n_anchors=8),
]


@pytest.fixture(scope="module")
def model():
    images, labels = striped_images()
    return GCGPClassifier(layers=LAYERS, n_inducing=30).fit(images[:30], labels[:30])


def test_layers_separate_directions(model):
    assert model.score(*striped_images(seed=1)) > 0.9
    assert {"layers", "loss"} <= set(model.search_.to_pandas().columns)
    assert len(model.features_.terms[0].convolution.layers) == 2


def test_evidence_sums_to_the_latents(model):
    images, _ = striped_images(count=4, seed=2)
    evidence = model.evidence(images).mean.reshape(4, 12, 12, 2)
    np.testing.assert_allclose(evidence.sum(axis=(1, 2)), model.predict_latent(images), atol=1e-10)
    assert not evidence[:, ::2].any()  # rows that the stride leaves out
    assert evidence[:, 1::2, 1::2].all()


def test_a_saved_model_predicts_the_same(model, tmp_path):
    images, _ = striped_images(seed=3)
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(loaded.predict_proba(images), model.predict_proba(images))
    assert repr(loaded.layers) == repr(LAYERS)


def test_runs_of_signals_do_not_change_features(model):
    signals = Signals.from_images(striped_images(seed=4)[0])
    together, alone = (
        torch.cat([chunk.features for chunk in replace(model.features_, memory=memory).chunks(signals)])
        for memory in (10**9, 1)
    )
    torch.testing.assert_close(together, alone)


def test_the_order_of_signals_does_not_matter(model):
    images, labels = striped_images()
    order = np.random.default_rng(0).permutation(30)
    other = GCGPClassifier(layers=LAYERS, n_inducing=30).fit(images[order], labels[order])
    np.testing.assert_allclose(other.predict_proba(images[30:]), model.predict_proba(images[30:]), atol=1e-6)


def waves(count, seed):
    """Noisy waves of four pixels, along rows or along columns."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = rng.normal(size=(count, 12, 12))
    for image, label, phase in zip(images, labels, rng.uniform(0, 2 * np.pi, count), strict=True):
        lines = image.T if label else image
        lines += np.sin(np.pi / 2 * np.arange(12) + phase)
    return images, labels


def test_learned_layers_are_kept_if_they_predict_better(tmp_path):
    """At a radius of about a whole wave, all directions look alike."""
    images, labels = waves(120, seed=0)
    layer = Layer(Polar([3.5], 4, 1.0), n_anchors=6, lengthscale=1.0, average=2.0)
    options = {"layers": [layer], "n_inducing": 40, "patch": Patch(position=False), "random_state": 0}
    fixed = GCGPClassifier(Box(1), **options).fit(images, labels)
    learned = GCGPClassifier(Box(1), learn=Learn(max_iter=12), **options).fit(images, labels)
    before, after = (model.layers_[0][0] for model in (fixed, learned))
    assert float(after.convolution.weighting.radii) < float(before.convolution.weighting.radii)
    assert not any(tensor.requires_grad for tensor in after.learnable.values())
    np.testing.assert_allclose(after.anchors.norm(dim=1), 1.0, rtol=1e-6)
    test_images, test_labels = waves(200, seed=5)
    losses = [log_loss(test_labels, model.predict_proba(test_images)) for model in (fixed, learned)]
    assert losses[1] < 0.5 * losses[0]
    learned.save(tmp_path / "learned.gcgp")
    loaded = gcgp.load(tmp_path / "learned.gcgp")
    assert np.array_equal(loaded.predict_proba(test_images), learned.predict_proba(test_images))


def test_learned_anchors_do_not_fit_noise():
    images, labels = striped_images(count=40)
    labels = np.random.default_rng(3).permutation(labels)
    options = {"layers": [LAYERS[0]], "n_inducing": 20, "random_state": 0}
    fixed = GCGPClassifier(Box(1), **options).fit(images, labels)
    learn = Learn(["layers.anchors", "layers.lengthscale"], max_iter=5)
    learned = GCGPClassifier(Box(1), learn=learn, **options).fit(images, labels)
    assert torch.equal(learned.layers_[0][0].anchors, fixed.layers_[0][0].anchors)


def test_an_unknown_name_of_a_layer_parameter_is_an_error():
    images, labels = striped_images(count=10)
    with pytest.raises(ValueError, match=r"layers\.anchors"):
        GCGPClassifier(Box(1), layers=LAYERS, learn=["layers.angle"]).fit(images, labels)


def test_regression_on_graphs_of_different_sizes():
    """The target is the number of vertices of label 0 with a neighbor of label 1."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, size) for size in rng.integers(5, 12, 60)]
    edges = [[[i, i + 1] for i in range(len(item) - 1)] for item in labels]
    signals = Signals.from_graphs([np.eye(2)[item] for item in labels], edges)
    padded = [np.pad(item, 1) for item in labels]
    target = [float(((p[1:-1] == 0) & ((p[:-2] == 1) | (p[2:] == 1))).sum()) for p in padded]
    layer = Layer(Radial([0.0, 1.0], 0.1, normalize=False), kernel="rbf", lengthscale=0.1)
    regressor = GCGPRegressor(Radial([0.0], 0.1), layers=layer, aggregate="sum", n_inducing=20)
    assert regressor.fit(signals[:40], target[:40]).score(signals[40:], target[40:]) > 0.99


def test_refined_inference_and_learning_work_on_top_of_layers():
    images, labels = striped_images()
    for options in ({"inference": "refined"}, {"learn": "lengthscale"}):
        fitted = GCGPClassifier(Box(1), layers=LAYERS[:1], n_inducing=15, search=None, **options)
        assert fitted.fit(images, labels).score(images, labels) > 0.9


def test_a_search_compares_layers_with_flat_models():
    images, labels = striped_images()
    table = GCGPClassifier(layers="auto", n_inducing=20).fit(images, labels).search_.to_pandas()
    assert table["layers"].isna().any()
    assert table["layers"].str.startswith("Layer(", na=False).any()
    flat = GCGPClassifier(n_inducing=20).fit(images, labels).search_.to_pandas()
    assert "layers" not in flat.columns


def test_layers_recognize_patterns_of_labels():
    """The labels of neighbors alternate in one class only; histograms of labels and degrees are the same."""
    rng = np.random.default_rng(0)
    classes = np.arange(60) % 2
    values, edges = [], []
    for label in classes:
        ring = np.tile([0, 1], 6) if label else np.repeat([0, 1], 6)
        values.append(np.eye(2)[np.roll(ring, rng.integers(12))])
        edges.append([[i, (i + 1) % 12] for i in range(12)])
    signals = Signals.from_graphs(values, edges)
    model = GCGPClassifier(layers="auto", n_inducing=20).fit(signals[:40], classes[:40])
    assert model.score(signals[40:], classes[40:]) == 1.0
    terms = [row["layers"] for row in model.search_.rows if "layers" in row]
    assert any("→" in text for text in terms)  # two layers
    assert any(text.startswith("none + ") for text in terms)  # a flat term beside layered ones


def test_superpixels_get_polar_layers():
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 2
    values = rng.random((30, 20, 1)) + labels[:, None, None]
    graphs = Signals.from_graphs(values, [[[0, 1]]] * 30, coordinates=rng.uniform(0, 10, (30, 20, 2)))
    table = GCGPClassifier(layers="auto", n_inducing=10).fit(graphs, labels).search_.to_pandas()
    assert table["layers"].str.contains("Polar", na=False).any()


@pytest.mark.parametrize(("pool", "stride"), [(None, 1), ("mean", 1), (None, 2)])
def test_meshes_with_layers(pool, stride):
    """Values of one class are larger; a turned mesh is the same."""
    bodies = articulated_bodies(2, 4, vertices=200, random_state=0)
    labels = np.arange(8) % 2
    values = [(1 + label) * mesh.vertices[:, 2] for mesh, label in zip(bodies.meshes, labels, strict=True)]
    signals = Signals.on_meshes(values, bodies.meshes)
    layer = Layer(GeodesicPolar([0.1, 0.3], 4, 0.1), n_anchors=8, average=0.2, pool=pool, stride=stride)
    train = bodies.poses < 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)
        model = GCGPClassifier(Radial([0.0], 0.05), layers=[layer], n_inducing=30, random_state=0)
        model.fit(signals[train], labels[train])
    assert model.score(signals[~train], labels[~train]) == 1.0
    evidence, latents = model.evidence(signals[~train]), model.predict_latent(signals[~train])
    sums = np.add.reduceat(evidence.mean, evidence.offsets[:-1])
    np.testing.assert_allclose(sums, latents, atol=1e-9)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = [Mesh(mesh.vertices @ rotation.T, mesh.faces) for mesh in bodies.meshes]
    again = model.predict_proba(Signals.on_meshes(values, turned))
    np.testing.assert_allclose(again, model.predict_proba(signals), atol=1e-3)
