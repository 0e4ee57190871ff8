"""The search for the structure of a model, and the comparison with class frequencies."""

import warnings

import numpy as np
import pytest

from gcgp import Dirichlet, GCGPClassifier, GCGPRegressor, Learn, Patch, Radial, Signals
from gcgp.inference.likelihoods import dirichlet, gaussian
from gcgp.selection.base_rate import SelectionWarning


def labeled_graphs(count=60, seed=0, noise=1.0):
    """Paths of different lengths: the first channel depends on the class, the second is large noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    values = [
        np.stack([rng.normal(label, noise, size), 100 * rng.normal(size=size)], axis=1)
        for label, size in zip(labels, rng.integers(4, 12, count), strict=True)
    ]
    edges = [[[i, i + 1] for i in range(len(item) - 1)] for item in values]
    return Signals.from_graphs(values, edges), labels


@pytest.fixture(scope="module")
def searched():
    signals, labels = labeled_graphs()
    return GCGPClassifier(n_inducing=40).fit(signals, labels)


def test_a_search_finds_that_channels_have_different_units(searched):
    signals, labels = labeled_graphs(seed=1)
    plain = GCGPClassifier(search=None, n_inducing=40).fit(*labeled_graphs())
    assert searched.score(signals, labels) > plain.score(signals, labels) + 0.1
    scales = searched.kernels_[0].lengthscale.detach().flatten()
    assert float(scales.max() / scales.min()) > 10


def test_the_table_lists_all_comparisons(searched):
    table = searched.search_.to_pandas()
    assert {"weighting", "kernel", "aggregate", "loss", "seconds", "rung"} <= set(table.columns)
    assert set(table["aggregate"]) == {"mean", "sum"}
    assert set(table["kernel"]) == {"rbf", "matern12"}
    assert np.isfinite(table["loss"]).all()
    lines = str(searched.search_).splitlines()
    assert len(lines) == 1 + len(table)
    assert lines[0].split()[:2] == ["rung", "signals"]


def test_what_the_user_specifies_is_not_searched():
    signals, labels = labeled_graphs()
    given = {"kernel": "rbf", "aggregate": "mean", "patch": Patch(bin_counts=False, scale_channels=True)}
    model = GCGPClassifier(Radial([0.0]), search="fast", n_inducing=20, **given).fit(signals, labels)
    assert len(model.search_.rows) == 1  # the model itself
    some = GCGPClassifier(Radial([0.0]), search="fast", n_inducing=20, kernel="rbf").fit(signals, labels)
    table = some.search_.to_pandas()
    assert set(table["kernel"]) == {"rbf"}
    assert set(table["weighting"]) == {"Radial(radii=[0])"}


def test_edges_and_coordinates_are_combined():
    """Graphs with a chord are one class: only edges tell."""
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    ring = [[i, (i + 1) % 8] for i in range(8)]
    edges = [[*ring, [0, 4]] if label else ring for label in labels]
    signals = Signals.from_graphs(
        rng.normal(1.0, 0.1, (80, 8, 1)), edges, coordinates=rng.uniform(0, 10, (80, 8, 2))
    )
    model = GCGPClassifier(n_inducing=20).fit(signals, labels)
    charts = set(model.search_.to_pandas()["chart"])
    assert charts == {"euclidean", "path", "hops", "euclidean + hops"}
    assert model.score(signals, labels) > 0.9
    assert "euclidean" not in {term.convolution.chart for term in model.features_.terms[-1:]}


def test_without_search_nothing_is_compared():
    signals, labels = labeled_graphs(count=12)
    model = GCGPClassifier(search=None, n_inducing=5).fit(signals, labels)
    assert str(model.search_) == "nothing was searched"
    with pytest.raises(ValueError, match="search='slow'"):
        GCGPClassifier(search="slow").fit(signals, labels)


def test_the_same_seed_gives_the_same_search():
    signals, labels = labeled_graphs(count=24)
    tables = [
        GCGPClassifier(search="fast", n_inducing=10).fit(signals, labels).search_.to_pandas()
        for _ in range(2)
    ]
    assert tables[0].drop(columns="seconds").equals(tables[1].drop(columns="seconds"))


def test_regression_finds_that_sums_over_vertices_matter():
    signals, _ = labeled_graphs(noise=0.1)
    sizes = signals.vertex_counts.astype(float)
    model = GCGPRegressor(search="fast", n_inducing=30).fit(signals[:40], sizes[:40])
    assert model.score(signals[40:], sizes[40:]) > 0.95


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_noise_is_predicted_by_class_frequencies(share):
    rng = np.random.default_rng(4)
    images, labels = rng.random((200, 5, 5)), rng.random(200) < share
    with pytest.warns(SelectionWarning, match="no model predicts left-out labels of the 40"):
        model = GCGPClassifier(n_inducing=20).fit(images[:40], labels[:40])
    probabilities = model.predict_proba(images[40:])[:, 1]
    np.testing.assert_allclose(probabilities, labels[:40].mean(), atol=0.1)
    assert np.ptp(probabilities) < 0.02


def test_few_signals_per_class_are_a_warning():
    images = np.zeros((4, 5, 5))
    images[::2, 2] = images[1::2, :, 2] = 1.0
    images += 0.1 * np.random.default_rng(0).random(images.shape)
    with pytest.warns(SelectionWarning, match="a class has 2 training signals"):
        model = GCGPClassifier(n_inducing=10).fit(images, [0, 1, 0, 1])
    assert model.score(images, [0, 1, 0, 1]) == 1.0


def test_a_bound_of_the_search_is_a_warning(monkeypatch):
    signals, labels = labeled_graphs(noise=0.1)
    monkeypatch.setattr(dirichlet, "LOG2_NOISE_RANGE", (-0.5, 3.0))
    with pytest.warns(SelectionWarning, match="ended at a bound of alpha, so"):
        GCGPClassifier(n_inducing=20).fit(signals, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GCGPClassifier(n_inducing=20, likelihood=Dirichlet(1e-3)).fit(signals, labels)


def test_a_bound_of_the_search_is_a_warning_in_regression(monkeypatch):
    signals, _ = labeled_graphs(count=20)
    monkeypatch.setattr(gaussian, "LOG10_VARIANCE_RATIOS", [0.0, 1.0])
    with pytest.warns(SelectionWarning, match="ended at a bound of variance"):
        GCGPRegressor(search=None, aggregate="sum").fit(signals, signals.vertex_counts.astype(float))


def test_many_small_graphs_are_searched_and_learned():
    """There are more trial signals than usual, so that they have enough patches for all inducing patches."""
    rng = np.random.default_rng(0)
    labels = np.arange(1_300) % 2
    signals = Signals.from_graphs(rng.normal(labels[:, None], 0.5, (1_300, 2)), [[[0, 1]]] * 1_300)
    options = {
        "search": "fast",
        "kernel": "rbf",
        "n_inducing": 700,
        "learn": Learn("lengthscale", max_iter=2),
    }
    model = GCGPClassifier(Radial([0.0]), **options).fit(signals, labels)
    assert model.score(signals, labels) > 0.9


def test_one_label_per_class_leaves_lengthscale_and_position_to_the_prior():
    images = np.random.default_rng(0).random((3, 9, 9))
    with pytest.warns(SelectionWarning, match="1 training signals"):
        model = GCGPClassifier(n_inducing=40).fit(images, [0, 1, 2])
    term = model.features_.terms[0]
    assert term.convolution.position
    patches = term.inducing.numpy()[:, :-2]
    distances = np.linalg.norm(patches[:, None] - patches, axis=2)[np.triu_indices(len(patches), 1)]
    lengthscale = float(model.kernels_[0].lengthscale.detach().flatten()[0])
    assert lengthscale == pytest.approx(np.median(distances) / 2, rel=0.2)
