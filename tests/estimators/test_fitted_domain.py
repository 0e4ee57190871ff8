"""`fit` determines the chart kind and the kind of domain; signals that differ are rejected."""

import re

import numpy as np
import pytest

import gcgp
from gcgp import GCGPClassifier, Patch, PatchKernel, Signals

FAST = {
    "n_inducing": 20,
    "kernel": PatchKernel(lengthscale=0.5, variance=5.0),
    "patch": Patch(position=False),
}
LABELS = np.arange(16) % 2


def rings(coordinates=0, lengths=False, count=16):
    """Rings of 6 vertices with a chord (class 1) or without; optionally with coordinates or edge lengths."""
    rng = np.random.default_rng(0)
    ring = [[i, (i + 1) % 6] for i in range(6)]
    edges = [ring + [[0, 3]] * int(label) for label in LABELS[:count]]
    return Signals.from_graphs(
        [rng.normal(1.0, 0.1, 6) for _ in edges],
        edges,
        [np.full(len(item), 1.0) for item in edges] if lengths else None,
        [rng.normal(size=(6, coordinates)) for _ in edges] if coordinates else None,
    )


@pytest.mark.parametrize(
    ("training", "chart", "expected"),
    [
        (rings(), "auto", "path"),
        (rings(coordinates=2), "auto", "euclidean"),
        (rings(coordinates=2), "path", "path"),
        (np.random.default_rng(0).random((16, 5, 5)), "auto", "path"),
    ],
    ids=["graphs", "graphs with coordinates", "path", "images"],
)
def test_the_fitted_convolution_has_a_concrete_chart_kind(training, chart, expected, tmp_path):
    model = GCGPClassifier(chart=chart, search=None, **FAST).fit(training, LABELS)
    assert model.features_.terms[0].convolution.chart == expected
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert loaded.features_.terms[0].convolution.chart == expected
    np.testing.assert_array_equal(loaded.predict_proba(training), model.predict_proba(training))


@pytest.mark.parametrize(
    ("training", "other", "chart", "message"),
    [
        (
            rings(),
            rings(coordinates=2),
            "auto",
            "X: graphs with 2-D coordinates, but training had graphs without coordinates",
        ),
        (
            rings(),
            rings(coordinates=2),
            "path",
            "X: graphs with 2-D coordinates, but training had graphs without coordinates",
        ),
        (
            rings(coordinates=2),
            rings(),
            "auto",
            "X: graphs without coordinates, but training had graphs with 2-D coordinates",
        ),
        (
            rings(coordinates=2),
            rings(coordinates=3),
            "path",
            "X: graphs with 3-D coordinates, but training had graphs with 2-D coordinates",
        ),
        (
            rings(),
            rings(lengths=True),
            "auto",
            "X: graphs with edge_lengths, but training had graphs without",
        ),
        (
            rings(coordinates=2, lengths=True),
            rings(coordinates=2),
            "path",
            "X: graphs without edge_lengths, but training had graphs with",
        ),
    ],
)
def test_graphs_unlike_those_of_training_are_rejected(training, other, chart, message, tmp_path):
    model = GCGPClassifier("radial", chart=chart, **FAST).fit(training, LABELS)
    model.save(tmp_path / "model.gcgp")
    for fitted in (model, gcgp.load(tmp_path / "model.gcgp")):
        for method in (fitted.predict, fitted.predict_proba, fitted.predict_latent, fitted.evidence):
            with pytest.raises(ValueError, match=re.escape(message)):
                method(other)


def test_edge_lengths_that_the_chart_does_not_use_may_differ():
    model = GCGPClassifier(chart="euclidean", **FAST).fit(rings(coordinates=2), LABELS)
    with_lengths, without = rings(coordinates=2, lengths=True), rings(coordinates=2)
    np.testing.assert_array_equal(model.predict_proba(with_lengths), model.predict_proba(without))


def test_options_set_after_the_fit_do_not_change_the_chart():
    signals = rings(coordinates=2)
    model = GCGPClassifier(**FAST).fit(signals, LABELS)
    before = model.predict_latent(signals)
    model.set_params(chart="path")
    np.testing.assert_array_equal(model.predict_latent(signals), before)
