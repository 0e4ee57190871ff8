"""Fitted attributes; predictions depend on them, not on options that are changed after the fit."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gpytorch.kernels import Kernel
from sklearn.base import clone

from gcgp import (
    Aggregate,
    GCGPClassifier,
    GCGPRegressor,
    Layer,
    Learn,
    Patch,
    PatchKernel,
    WaveKernelSignature,
)
from gcgp.inference.likelihoods import Gaussian, RobustMax, Softmax
from gcgp.weighting import Box, Polar, Radial

FIXED = {
    "weighting": Box(3),
    "n_inducing": 10,
    "kernel": PatchKernel(lengthscale=2.0),
    "patch": Patch(position=False),
}
MODELS = {
    "closed form": GCGPClassifier(**FIXED),
    "robust-max": GCGPClassifier(inference="natural-gradient", likelihood="robust-max", **FIXED),
    "refined": GCGPClassifier(inference="refined", **FIXED),
    "regression": GCGPRegressor(**FIXED),
}
CHANGES = {
    "weighting": "polar",
    "chart": "path",
    "patch": Patch(position=True, bin_counts=True, area_weighted=True),
    "kernel": PatchKernel("matern12", lengthscale=0.01, variance=1e-3, rotation_average=True),
    "aggregate": Aggregate("sum", vertex_weights=[1.0]),
    "n_inducing": 3,
    "search": "fast",
    "layers": [Layer(stride=2)],
    "descriptor": WaveKernelSignature(),
    "inducing": "random",
    "learn": Learn(["radii"], objective="bound", optimizer="adam", max_iter=1),
    "inference": "svgp",
    "likelihood": "softmax",
    "runtime__dtype": "float32",
    "random_state": 7,
}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return rng.normal(size=(24, 5, 5)) + (np.arange(24) % 3)[:, None, None]


@pytest.fixture(scope="module")
def models(images):
    return {name: clone(model).fit(images, np.arange(24) % 3) for name, model in MODELS.items()}


@pytest.fixture(scope="module", params=MODELS)
def model(request, models):
    return models[request.param]


def outputs(model, images):
    predicted = [*model.predict_latent(images, return_std=True), model.predict(images)]
    if isinstance(model, GCGPClassifier):
        predicted.append(model.predict_proba(images))
    return [*predicted, model.evidence(images).mean]


def test_all_constructor_arguments_are_changed_below(model):
    assert {name.partition("__")[0] for name in CHANGES} == set(model.get_params(deep=False))


def test_options_set_after_the_fit_change_no_prediction(model, images):
    changed = copy.copy(model).set_params(**CHANGES)
    for before, after in zip(outputs(model, images[:5]), outputs(changed, images[:5]), strict=True):
        np.testing.assert_array_equal(after, before)


def test_every_model_has_the_documented_attributes(model):
    for name in ("variance_", "bound_", "history_", "n_iter_", "features_", "posterior_", "constant_"):
        assert hasattr(model, name), name
    assert model.n_features_in_ == 1
    assert model.domain_ == "Grids"
    assert model.domain_signature_["position_dimensions"] == 2
    assert model.n_iter_ == max(1, len(model.history_))
    assert not hasattr(model, "start_weightings_")
    (weighting,), (kernel,) = model.weightings_, model.kernels_
    assert isinstance(weighting, Box)
    assert isinstance(kernel, Kernel)
    assert float(kernel.lengthscale[0, 0]) == pytest.approx(2.0)


def test_likelihoods_and_their_parameters(models):
    assert isinstance(models["closed form"].likelihood_, Softmax)
    assert isinstance(models["robust-max"].likelihood_, RobustMax)
    assert isinstance(models["regression"].likelihood_, Gaussian)
    assert models["regression"].likelihood_.noise == models["regression"].noise_
    assert models["closed form"].classes_.tolist() == [0, 1, 2]
    assert 0 < models["closed form"].alpha_ < 1
    assert models["closed form"].softmax_weight_ == 0
    assert models["refined"].softmax_weight_ >= 0
    assert not hasattr(models["regression"], "alpha_")


def test_one_weighting_and_kernel_per_scale(images):
    weighting = [Polar([1.0], 4), Radial([0.0, 1.0])]
    model = GCGPClassifier(**(FIXED | {"weighting": weighting})).fit(images, np.arange(24) % 3)
    assert list(map(repr, model.weightings_)) == list(map(repr, weighting))
    assert len(model.kernels_) == 2


def test_attributes_of_an_unfitted_model_do_not_exist():
    for name in ("weightings_", "kernels_", "classes_", "likelihood_", "n_features_in_"):
        assert not hasattr(GCGPClassifier(), name)


def test_a_second_fit_replaces_the_first(images):
    labels = np.arange(24) % 3
    options = FIXED | {"weighting": Radial([0.0, 1.0])}
    model = GCGPClassifier(learn=Learn("radii", max_iter=1), **options).fit(images, labels)
    assert hasattr(model, "start_weightings_")
    refitted = model.set_params(learn=None).fit(images, labels)
    assert not hasattr(refitted, "start_weightings_")
    expected = GCGPClassifier(**options).fit(images, labels).predict_proba(images)
    np.testing.assert_array_equal(refitted.predict_proba(images), expected)
