import pickle

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RQKernel, ScaleKernel
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gcgp import GCGPClassifier, GCGPRegressor, Signals, superpixels
from gcgp.estimators.fitting import Fitting
from gcgp.selection.term_specs import median_distance
from gcgp.weighting import Anisotropic, Box, GaussianMixture, Polar, Radial

FAST = {"n_inducing": 25, "progress": False}
FIXED = FAST | {"lengthscale": 0.5, "variance": 10.0, "position": False}


def bars(count=60, side=9, seed=0):
    """Images of a bright row (class 0) or column (class 1) on noise."""
    rng = np.random.default_rng(seed)
    images = 0.1 * rng.random((count, side, side))
    labels = np.arange(count) % 2
    for image, label in zip(images, labels, strict=True):
        place = rng.integers(1, side - 1)
        image[(place, slice(None)) if label == 0 else (slice(None), place)] += 1.0
    return images, labels


def rings_and_paths(count=40, seed=0, coordinates=False):
    """Graphs of different size, with a closed ring (class 0) or an open path (class 1), constant values."""
    rng = np.random.default_rng(seed)
    values, edges, places = [], [], []
    labels = np.arange(count) % 2
    for label in labels:
        size = int(rng.integers(5, 9))
        chain = [[i, i + 1] for i in range(size - 1)]
        edges.append(chain + ([[size - 1, 0]] if label == 0 else []))
        values.append(np.ones(size))
        turn = np.linspace(0, 2 * np.pi if label == 0 else 1.0, size, endpoint=False)
        places.append(np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return Signals.from_graphs(values, edges, coordinates=places if coordinates else None), labels


@pytest.fixture(scope="module")
def images_and_labels():
    return bars()


@pytest.fixture(scope="module")
def classifier(images_and_labels):
    images, labels = images_and_labels
    return GCGPClassifier(**FAST).fit(images[:40], labels[:40])


def test_learns_rows_from_columns_with_defaults(classifier, images_and_labels):
    images, labels = images_and_labels
    probabilities = classifier.predict_proba(images[40:])
    assert classifier.score(images[40:], labels[40:]) == 1.0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert (probabilities >= 0).all()


def test_learns_graphs_of_different_size_without_coordinates():
    signals, labels = rings_and_paths()
    model = GCGPClassifier(**FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) == 1.0


@pytest.mark.parametrize("chart", ["auto", "euclidean", "path"])
def test_learns_graphs_with_coordinates(chart):
    signals, labels = rings_and_paths(coordinates=True)
    with pytest.warns(UserWarning, match="every patch is identical apart from its position"):
        model = GCGPClassifier(chart=chart, **FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) >= 0.9


def test_learns_superpixels():
    images, labels = bars(side=12)
    signals = superpixels(np.where(images > 0.5, images, 0), foreground=10, background=10)
    model = GCGPClassifier(**FAST).fit(signals[:40], labels[:40])
    assert model.score(signals[40:], labels[40:]) >= 0.9


def test_learns_signals_on_one_graph_by_vertex_weights():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 6))
    labels = (values[:, 2] > 0).astype(int)
    edges = [[i, i + 1] for i in range(5)]
    signals = Signals.on_graph(values, edges)
    model = GCGPClassifier(
        Radial([0.0], 0.1), vertex_weights=[0, 0, 1.0, 0, 0, 0], aggregate="sum", bin_counts=False, **FAST
    ).fit(signals[:40], labels[:40])
    assert model.score(signals[40:], labels[40:]) >= 0.9


@pytest.mark.parametrize(
    "weighting",
    [
        "polar",
        "diffusion",
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
    model = GCGPClassifier(weighting, dtype="float64", **FIXED).fit(images[:40], labels[:40])
    rings = str(weighting).lower().startswith("diffusion")  # they see no difference of direction
    assert rings or model.score(images[40:], labels[40:]) > 0.9
    assert_evidence_sums_to_latent_mean(model, images[40:45], 1e-9)


def test_mixture_by_degrees_on_graphs():
    signals, labels = rings_and_paths()
    model = GCGPClassifier("mixture", bin_counts=True, **FAST).fit(signals[:30], labels[:30])
    assert model.score(signals[30:], labels[30:]) == 1.0


def assert_evidence_sums_to_latent_mean(model, X, tolerance):
    evidence = model.evidence(X)
    latent, latent_std = model.predict_latent(X, return_std=True)
    starts = evidence.offsets[:-1]
    scale = np.abs(latent).max()
    np.testing.assert_allclose(np.add.reduceat(evidence.mean, starts), latent, atol=tolerance * scale)
    assert (evidence.std >= 0).all()
    # The deviation of a sum is at most the sum of the deviations.
    most = np.add.reduceat(evidence.std, starts)
    assert (latent_std <= most * (1 + 1e-3) + 1e-6).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_evidence_sums_to_the_latent_mean(dtype, tolerance, aggregate, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(dtype=dtype, aggregate=aggregate, **FAST).fit(images[:40], labels[:40])
    assert_evidence_sums_to_latent_mean(model, images[40:], tolerance)


def test_evidence_of_one_signal_and_of_ragged_graphs():
    signals, labels = rings_and_paths()
    model = GCGPClassifier(dtype="float64", **FAST).fit(signals, labels)
    evidence = model.evidence(signals[:7])
    assert len(evidence) == 7
    mean, std = evidence[-1]
    assert mean.shape == std.shape == (signals.vertex_counts[6], 2)
    assert_evidence_sums_to_latent_mean(model, signals, 1e-10)


def test_evidence_is_zero_where_a_vertex_has_no_patch(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(Box(3), **FIXED).fit(images, labels)
    mean, std = model.evidence(images[:1])[0]
    border = np.ones((9, 9), dtype=bool)
    border[1:-1, 1:-1] = False
    assert (mean[border.ravel()] == 0).all()
    assert (std[border.ravel()] == 0).all()
    assert (mean[~border.ravel()] != 0).any()


def test_same_seed_same_model_and_memory_limit_changes_nothing(images_and_labels, monkeypatch):
    """But for the trial signals, of which there are fewer where they would not fit it."""
    monkeypatch.setattr(Fitting, "_trial_size", lambda self: 40)
    images, labels = images_and_labels
    options = FAST | {"dtype": "float64"}
    first = GCGPClassifier(random_state=3, **options).fit(images[:40], labels[:40])
    again = GCGPClassifier(random_state=3, **options).fit(images[:40], labels[:40])
    chunked = GCGPClassifier(random_state=3, memory_limit="1 MB", **options).fit(images[:40], labels[:40])
    expected = first.predict_proba(images[40:])
    np.testing.assert_array_equal(again.predict_proba(images[40:]), expected)
    chunked.memory_limit = 1
    np.testing.assert_allclose(chunked.predict_proba(images[40:]), expected, atol=1e-6)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("position", [False, 3.0])
def test_named_kernels(kernel, position, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(kernel=kernel, **(FIXED | {"position": position})).fit(images[:40], labels[:40])
    assert model.score(images[40:], labels[40:]) >= 0.9


def test_any_gpytorch_kernel_is_used_as_it_is(images_and_labels):
    images, labels = images_and_labels
    kernel = ScaleKernel(RQKernel())
    kernel.base_kernel.lengthscale = 0.7
    model = GCGPClassifier(kernel=kernel, **FAST).fit(images[:40], labels[:40])
    assert model.score(images[40:], labels[40:]) >= 0.9
    fitted = model.features_.terms[0].kernel.base
    assert float(fitted.base_kernel.lengthscale) == pytest.approx(0.7, rel=1e-6)


def test_generic_path_agrees_with_the_fused_one(images_and_labels):
    images, labels = images_and_labels

    class PlainRBF(RBFKernel):
        """Not known to the fused path, so evaluated by GPyTorch."""

    predictions = []
    for family in (RBFKernel, PlainRBF):
        kernel = family()
        kernel.lengthscale = 0.5
        model = GCGPClassifier(Polar([1, 3], 4), kernel=kernel, dtype="float64", **FIXED)
        predictions.append(model.fit(images[:40], labels[:40]).predict_latent(images[40:]))
    np.testing.assert_allclose(predictions[0], predictions[1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("inducing", ["random", "k-means++", "greedy"])
def test_inducing_methods(inducing, images_and_labels):
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
    ids=["text", "bool", "tuple", "mixed", "hashable", "float"],
)
def test_labels_are_anything_hashable(labels, images_and_labels):
    images, _ = images_and_labels
    model = GCGPClassifier(**FIXED).fit(images[:40], labels)
    assert model.score(images[:40], labels) > 0.9
    assert set(model.classes_.tolist()) == set(labels)
    assert set(model.predict(images[:40]).tolist()) <= set(labels)


def test_accepts_images_lists_and_lists_of_signals(classifier, images_and_labels):
    images, _ = images_and_labels
    expected = classifier.predict_proba(images[40:])
    signals = Signals.from_images(images[40:])
    for same in (signals, list(signals), list(images[40:]), images[40:, :, :, None]):
        np.testing.assert_allclose(classifier.predict_proba(same), expected, atol=1e-6)


def test_images_of_another_size_work_where_size_does_not_matter(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(**FIXED).fit(images, labels)
    larger, truth = bars(count=20, side=12, seed=1)
    assert model.score(larger, truth) >= 0.9


def test_more_classes_than_the_trial_signals_show(monkeypatch):
    monkeypatch.setattr("gcgp.estimators.fitting.TRIAL_SIGNALS", 10)
    monkeypatch.setattr("gcgp.estimators.fitting.SCORED_SIGNALS", 5)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 20
    images = 0.05 * rng.random((60, 5, 5)) + labels[:, None, None]
    model = GCGPClassifier(**FAST).fit(images, labels)
    assert model.predict_proba(images).shape == (60, 20)
    assert model.score(images, labels) > 0.1  # a trial that lacks most classes tells little


def test_clone_grid_search_cross_validation_and_pipeline(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(Polar([1, 3], 4), **FIXED)
    copied = clone(model)
    assert copied is not model
    assert repr(copied) == repr(model)
    assert copied.get_params().keys() == model.get_params().keys()
    folds = StratifiedKFold(2)
    assert cross_val_score(model, Signals.from_images(images), labels, cv=folds).mean() > 0.9
    search = GridSearchCV(model, {"n_inducing": [5, 20]}, cv=folds).fit(images, labels)
    assert search.best_score_ > 0.9
    pipeline = make_pipeline(FunctionTransformer(Signals.from_images), model)
    assert cross_val_score(pipeline, images, labels, cv=folds).mean() > 0.9


def test_fitting_changes_no_argument(images_and_labels):
    images, labels = images_and_labels
    weighting, kernel = Polar([1, 3], 4), RBFKernel()
    model = GCGPClassifier(weighting, kernel=kernel, **FIXED).fit(images, labels)
    assert model.weighting is weighting
    assert model.kernel is kernel
    assert all(p.requires_grad for p in weighting.parameters())
    assert model.features_.terms[0].convolution.weighting is not weighting


def test_a_fitted_model_travels_to_other_processes(classifier, images_and_labels):
    images, _ = images_and_labels
    travelled = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(travelled.predict_proba(images), classifier.predict_proba(images))


@pytest.mark.parametrize("estimator", [GCGPClassifier(), GCGPRegressor()])
@pytest.mark.parametrize("method", ["predict", "predict_latent", "evidence"])
def test_not_fitted(estimator, method):
    with pytest.raises(NotFittedError):
        getattr(estimator, method)(np.zeros((2, 5, 5)))


def test_regression_predicts_with_honest_deviations():
    rng = np.random.default_rng(0)
    images = rng.random((150, 8, 8))
    targets = 5 + np.sin(3 * images).sum(axis=(1, 2)) + 0.1 * rng.normal(size=150)
    model = GCGPRegressor(Radial([0, 1]), n_inducing=80, progress=False).fit(images[:100], targets[:100])
    mean, std = model.predict(images[100:], return_std=True)
    assert model.score(images[100:], targets[100:]) > 0.8
    standardized = (targets[100:] - mean) / std
    assert 0.6 < np.sqrt((standardized**2).mean()) < 1.6
    np.testing.assert_array_equal(model.predict(images[100:]), mean)
    latent = model.predict_latent(images[100:])[:, 0]
    np.testing.assert_allclose(latent + model.intercept_, mean)


def test_regression_evidence_sums_to_the_latent_mean():
    rng = np.random.default_rng(0)
    images = rng.random((40, 8, 8))
    model = GCGPRegressor(n_inducing=30, dtype="float64", progress=False).fit(
        images, images.mean(axis=(1, 2))
    )
    assert_evidence_sums_to_latent_mean(model, images[:5], 1e-9)


def test_given_values_are_kept(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(alpha=0.01, variance=7.0, lengthscale=0.4, position=False, **FAST)
    model.fit(images, labels)
    assert model.alpha_ == 0.01
    assert model.variance_ == 7.0
    base = model.features_.terms[0].kernel.base
    np.testing.assert_allclose(base.lengthscale.numpy(), 0.4, rtol=1e-6)
    regressor = GCGPRegressor(noise=0.3, variance=2.0, position=4.0, **FAST).fit(images, labels)
    assert regressor.noise_ == 0.3
    assert regressor.variance_ == 2.0
    base = regressor.features_.terms[0].kernel.base
    np.testing.assert_allclose(base.lengthscale[0, -2:].numpy(), 4.0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_no_distance_between_patches(dtype):
    """Else the masses of a ring, where all vertices are alike, would have a lengthscale of rounding."""
    rng = np.random.default_rng(0)
    alike = torch.full((100, 3), 7.3, dtype=dtype)
    alike *= 1 + torch.finfo(dtype).eps * torch.from_numpy(rng.integers(-2, 3, (100, 3))).to(dtype)
    assert (alike != alike[0]).any()
    assert median_distance(alike, rng) == 1.0
    alike[::2] += 0.5
    assert median_distance(alike, rng) == pytest.approx(0.5 * 3**0.5, rel=1e-4)


def test_signals_of_one_vertex_give_as_many_inducing_patches_as_asked_for():
    values = np.random.default_rng(0).random((1400, 1, 3))
    signals = Signals.on_graph(values, np.zeros((0, 2), dtype=np.int64))
    model = GCGPClassifier(Radial([0.0]), n_inducing=600, lengthscale=1.0).fit(signals, values[:, 0, 0] > 0.5)
    assert model.features_.size == 600
