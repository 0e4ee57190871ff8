"""Classification with the defaults, and with every weighting, kernel and way to choose inducing patches."""

import pickle

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, RQKernel, ScaleKernel
from sklearn.exceptions import NotFittedError

from evidence_checks import check_evidence_sums
from example_signals import bars, rings_and_paths
from gcgp import (
    Aggregate,
    Dirichlet,
    GCGPClassifier,
    GCGPRegressor,
    Patch,
    PatchKernel,
    Runtime,
    Signals,
    superpixels,
)
from gcgp.estimators import fit
from gcgp.weighting import Anisotropic, Box, GaussianMixture, Polar, Radial

FAST = {"n_inducing": 25}
FIXED = FAST | {"kernel": PatchKernel(lengthscale=0.5, variance=10.0), "patch": Patch(position=False)}


@pytest.fixture(scope="module")
def images_and_labels():
    return bars()


@pytest.fixture(scope="module")
def classifier(images_and_labels):
    images, labels = images_and_labels
    return GCGPClassifier(**FAST).fit(images[:40], labels[:40])


def test_rows_and_columns_are_classified_with_defaults(classifier, images_and_labels):
    images, labels = images_and_labels
    probabilities = classifier.predict_proba(images[40:])
    assert classifier.score(images[40:], labels[40:]) == 1.0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (probabilities >= 0).all()


def test_log_probabilities_are_finite_logarithms_of_the_probabilities(classifier, images_and_labels):
    images, _ = images_and_labels
    logs = classifier.predict_log_proba(images[40:])
    assert np.isfinite(logs).all()
    np.testing.assert_allclose(np.exp(logs), classifier.predict_proba(images[40:]), atol=1e-12)


def test_graphs_of_different_sizes_without_coordinates():
    signals, labels = rings_and_paths()
    model = GCGPClassifier(**FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) == 1.0


@pytest.mark.parametrize("chart", ["auto", "euclidean", "path"])
def test_graphs_with_coordinates(chart):
    signals, labels = rings_and_paths(coordinates=True)
    with pytest.warns(UserWarning, match="every patch is identical apart from its position"):
        model = GCGPClassifier(chart=chart, **FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) >= 0.9


def test_superpixels():
    images, labels = bars(side=12)
    signals = superpixels(np.where(images > 0.5, images, 0), foreground=10, background=10)
    model = GCGPClassifier(**FAST).fit(signals[:40], labels[:40])
    assert model.score(signals[40:], labels[40:]) >= 0.9


def test_vertex_weights_select_the_vertex_that_decides():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 6))
    labels = (values[:, 2] > 0).astype(int)
    signals = Signals.on_graph(values, [[i, i + 1] for i in range(5)])
    model = GCGPClassifier(
        Radial([0.0], 0.1),
        aggregate=Aggregate("sum", vertex_weights=[0, 0, 1.0, 0, 0, 0]),
        patch=Patch(bin_counts=False),
        **FAST,
    ).fit(signals[:40], labels[:40])
    assert model.score(signals[40:], labels[40:]) >= 0.9


@pytest.mark.parametrize(
    "weighting",
    [
        "polar",
        "radial",
        "anisotropic",
        "box",
        Polar([1, 3], 4),
        Radial([0, 2]),
        Box(3, inside=False),
        Anisotropic([0, 2], 4),
        GaussianMixture([[0.0, 0.0], [2.0, 0.0]], on=["offset"], reach=3),
        [Polar([1], 4), Polar([3], 4)],
        ["box", Radial([0, 2])],
    ],
    ids=str,
)
def test_every_weighting_can_be_fitted_and_explained(weighting, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(weighting, runtime=Runtime(dtype="float64"), **FIXED).fit(images[:40], labels[:40])
    isotropic = str(weighting).lower().startswith("radial")  # rows and columns look the same to it
    assert isotropic or model.score(images[40:], labels[40:]) > 0.9
    check_evidence_sums(model, images[40:45], 1e-9)


def test_mixture_of_degrees_on_graphs():
    signals, labels = rings_and_paths()
    model = GCGPClassifier("mixture", patch=Patch(bin_counts=True), **FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) == 1.0


def test_the_same_seed_gives_the_same_model_with_any_memory_limit(images_and_labels, monkeypatch):
    """Except for the number of trial signals, which the memory limit bounds."""
    monkeypatch.setattr(fit, "_trial_size", lambda data, options, context: 40)
    images, labels = images_and_labels

    def fitted(**runtime):
        model = GCGPClassifier(runtime=Runtime(dtype="float64", **runtime), random_state=3, **FAST)
        return model.fit(images[:40], labels[:40])

    expected = fitted().predict_proba(images[40:])
    np.testing.assert_array_equal(fitted().predict_proba(images[40:]), expected)
    chunked = fitted(memory_limit="1 MB").set_params(runtime__memory_limit=1)
    np.testing.assert_allclose(chunked.predict_proba(images[40:]), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("position", [False, 3.0])
def test_named_kernels(kind, position, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(
        kernel=PatchKernel(kind, lengthscale=0.5, variance=10.0), patch=Patch(position=position), **FAST
    ).fit(images[:40], labels[:40])
    assert model.score(images[40:], labels[40:]) >= 0.9


def test_a_gpytorch_kernel_keeps_its_parameters(images_and_labels):
    images, labels = images_and_labels
    kernel = ScaleKernel(RQKernel())
    kernel.base_kernel.lengthscale = 0.7
    model = GCGPClassifier(kernel=kernel, **FAST).fit(images[:40], labels[:40])
    assert model.score(images[40:], labels[40:]) >= 0.9
    assert float(model.kernels_[0].base_kernel.lengthscale) == pytest.approx(0.7, rel=1e-6)


def test_gpytorch_evaluation_agrees_with_the_fused_evaluation(images_and_labels):
    images, labels = images_and_labels

    class PlainRBF(RBFKernel):
        """Not known to the fused path, so evaluated by GPyTorch."""

    predictions = []
    for family in (RBFKernel, PlainRBF):
        kernel = family()
        kernel.lengthscale = 0.5
        options = FIXED | {"kernel": PatchKernel(kernel, variance=10.0)}
        model = GCGPClassifier(Polar([1, 3], 4), runtime=Runtime(dtype="float64"), **options)
        predictions.append(model.fit(images[:40], labels[:40]).predict_latent(images[40:]))
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("inducing", ["random", "k-means++", "greedy"])
def test_inducing_patches_are_distinct(inducing, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(inducing=inducing, **FIXED).fit(images[:40], labels[:40])
    chosen = model.features_.terms[0].inducing.numpy()
    assert len(np.unique(chosen, axis=0)) == len(chosen) == 25


@pytest.mark.parametrize(
    "labels",
    [
        ["row", "column"] * 20,
        [True, False] * 20,
        [("a", 1), ("b", 2)] * 20,
        [3, "three"] * 20,
        [frozenset(), frozenset({1})] * 20,
        np.array([2.5, -1.0] * 20),
    ],
    ids=["str", "bool", "tuple", "mixed", "hashable", "float"],
)
def test_labels_can_be_any_hashable_objects(labels, images_and_labels):
    images, _ = images_and_labels
    model = GCGPClassifier(**FIXED).fit(images[:40], labels)
    assert model.score(images[:40], labels) > 0.9
    assert set(model.classes_.tolist()) == set(labels)
    assert set(model.predict(images[:40]).tolist()) <= set(labels)


def test_images_signals_and_lists_of_these_are_equivalent(classifier, images_and_labels):
    images, _ = images_and_labels
    expected = classifier.predict_proba(images[40:])
    signals = Signals.from_images(images[40:])
    for same in (signals, list(signals), list(images[40:]), images[40:, :, :, None]):
        np.testing.assert_allclose(classifier.predict_proba(same), expected, atol=1e-6)


def test_images_of_another_size_can_be_predicted_without_position(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(**FIXED).fit(images, labels)
    larger, truth = bars(count=20, side=12, seed=1)
    assert model.score(larger, truth) >= 0.9


def test_more_classes_than_the_trial_signals_have(monkeypatch):
    monkeypatch.setattr(fit, "TRIAL_SIGNALS", 10)
    monkeypatch.setattr(fit, "MAX_SCORED_TRIAL_SIGNALS", 5)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 20
    images = 0.05 * rng.random((60, 5, 5)) + labels[:, None, None]
    model = GCGPClassifier(**FAST).fit(images, labels)
    assert model.predict_proba(images).shape == (60, 20)
    assert model.score(images, labels) > 0.1  # trial signals without most classes give poor choices


def test_a_fit_does_not_change_its_arguments(images_and_labels):
    images, labels = images_and_labels
    weighting, kernel = Polar([1, 3], 4), RBFKernel()
    model = GCGPClassifier(weighting, **(FIXED | {"kernel": kernel})).fit(images, labels)
    assert model.weighting is weighting
    assert model.kernel is kernel
    assert all(p.requires_grad for p in weighting.parameters())
    assert model.weightings_[0] is not weighting


def test_a_pickled_model_predicts_the_same(classifier, images_and_labels):
    images, _ = images_and_labels
    restored = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(restored.predict_proba(images), classifier.predict_proba(images))


@pytest.mark.parametrize("estimator", [GCGPClassifier(), GCGPRegressor()])
@pytest.mark.parametrize("method", ["predict", "predict_latent", "evidence"])
def test_predictions_before_the_fit_are_errors(estimator, method):
    with pytest.raises(NotFittedError):
        getattr(estimator, method)(np.zeros((2, 5, 5)))


def test_given_hyperparameters_are_used(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(
        kernel=PatchKernel(lengthscale=0.4, variance=7.0),
        patch=Patch(position=False),
        likelihood=Dirichlet(alpha=0.01),
        **FAST,
    ).fit(images, labels)
    assert model.alpha_ == 0.01
    assert model.variance_ == 7.0
    np.testing.assert_allclose(model.kernels_[0].lengthscale.numpy(), 0.4, rtol=1e-6)


def test_signals_of_one_vertex_give_as_many_inducing_patches_as_requested():
    values = np.random.default_rng(0).random((1400, 1, 3))
    signals = Signals.on_graph(values, np.zeros((0, 2), dtype=np.int64))
    model = GCGPClassifier(Radial([0.0]), n_inducing=600, kernel=PatchKernel(lengthscale=1.0))
    assert model.fit(signals, values[:, 0, 0] > 0.5).features_.size == 600
