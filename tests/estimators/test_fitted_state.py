"""Predictions depend on what was fitted, and not on options that are changed afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from gcgp import GCGPClassifier, GCGPRegressor
from gcgp.weighting import Box

CHANGES = {
    "weighting": "polar",
    "chart": "path",
    "position": True,
    "bin_counts": True,
    "pool_rotations": True,
    "kernel": "matern12",
    "lengthscale": 0.01,
    "aggregate": "sum",
    "vertex_weights": [1.0],
    "n_inducing": 3,
    "inducing": "random",
    "variance": 1e-3,
    "learn": True,
    "objective": "bound",
    "optimizer": "adam",
    "max_iter": 1,
    "inference": "variational",
    "batch_size": 3,
    "learning_rate": 9.0,
    "dtype": "float32",
    "random_state": 7,
}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return rng.normal(size=(24, 5, 5)) + (np.arange(24) % 3)[:, None, None]


def fixed(**options):
    return {"weighting": Box(3), "n_inducing": 10, "lengthscale": 2.0, "position": False} | options


def outputs(model, images):
    predicted = [*model.predict_latent(images, return_std=True), model.predict(images)]
    if isinstance(model, GCGPClassifier):
        predicted.append(model.predict_proba(images))
    return [*predicted, model.evidence(images).mean]


@pytest.mark.parametrize(
    "model",
    [
        GCGPClassifier(**fixed()),
        GCGPClassifier(**fixed(inference="variational", likelihood="robust-max")),
        GCGPClassifier(**fixed(inference="refined")),
        GCGPRegressor(**fixed()),
    ],
    ids=["closed form", "robust-max", "refined", "regression"],
)
def test_set_params_after_fit_changes_no_prediction(model, images):
    model.fit(images, np.arange(24) % 3)
    expected = outputs(model, images[:5])
    changes = CHANGES | ({"likelihood": "softmax", "alpha": 0.5} if "alpha" in model.get_params() else {})
    model.set_params(**changes)
    for before, after in zip(expected, outputs(model, images[:5]), strict=True):
        np.testing.assert_array_equal(after, before)
