"""The constant term of kernels that sum over signals of different sizes."""

from __future__ import annotations

import numpy as np
import pytest

from gcgp import GCGPClassifier, GCGPRegressor, Learn, Signals, load


def constant_graphs(count: int = 60) -> tuple[Signals, np.ndarray]:
    """Graphs without edges whose values are all 1; only their sizes differ."""
    sizes = np.random.default_rng(0).integers(3, 30, count)
    return Signals.from_graphs([np.ones(size) for size in sizes], [[] for _ in sizes]), sizes


@pytest.fixture(scope="module")
def graphs():
    return constant_graphs()


IDENTICAL = pytest.mark.filterwarnings("ignore:.*identical")


@IDENTICAL
def test_a_sum_can_learn_the_size(graphs):
    signals, sizes = graphs
    model = GCGPRegressor(aggregate="sum").fit(signals[:40], sizes[:40].astype(float))
    assert model.score(signals[40:], sizes[40:]) >= 0.99


@IDENTICAL
def test_a_sum_can_classify_by_size(graphs):
    signals, sizes = graphs
    model = GCGPClassifier(aggregate="sum").fit(signals[:40], sizes[:40] > 15)
    assert model.score(signals[40:], sizes[40:] > 15) >= 0.95


@IDENTICAL
def test_evidence_sums_and_files_keep_the_constant(graphs, tmp_path):
    signals, sizes = graphs
    model = GCGPRegressor(aggregate="sum").fit(signals[:40], sizes[:40].astype(float))
    evidence = model.evidence(signals[40:])
    summed = [evidence[n][0].sum(axis=0) for n in range(len(evidence))]
    np.testing.assert_allclose(summed, model.predict_latent(signals[40:]), atol=1e-6)
    model.save(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(load(tmp_path / "model.gcgp").predict(signals), model.predict(signals))


@IDENTICAL
@pytest.mark.parametrize(
    "options", [{"inference": "natural-gradient"}, {"learn": Learn("lengthscale", max_iter=2)}], ids=str
)
def test_other_methods_have_the_constant_term(graphs, options):
    signals, sizes = graphs
    model = GCGPRegressor(aggregate="sum", **options).fit(signals[:40], sizes[:40].astype(float))
    assert model.score(signals[40:], sizes[40:]) >= 0.99


def test_signals_of_one_size_and_means_have_no_constant_term():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(20, 4, 4))
    for aggregate in ("sum", "mean"):
        model = GCGPRegressor(aggregate=aggregate, n_inducing=10).fit(images, images[:, 0, 0])
        assert model.constant_ == 0.0
