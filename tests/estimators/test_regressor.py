"""Regression: accuracy, standard deviations, and given hyperparameters."""

import numpy as np

from example_signals import bars
from gcgp import Gaussian, GCGPRegressor, Patch, PatchKernel
from gcgp.weighting import Radial


def test_standard_deviations_match_the_errors():
    rng = np.random.default_rng(0)
    images = rng.random((150, 8, 8))
    targets = 5 + np.sin(3 * images).sum(axis=(1, 2)) + 0.1 * rng.normal(size=150)
    model = GCGPRegressor(Radial([0, 1]), n_inducing=80).fit(images[:100], targets[:100])
    mean, std = model.predict(images[100:], return_std=True)
    assert model.score(images[100:], targets[100:]) > 0.8
    standardized = (targets[100:] - mean) / std
    assert 0.6 < np.sqrt((standardized**2).mean()) < 1.6
    np.testing.assert_array_equal(model.predict(images[100:]), mean)
    latent, latent_std = model.predict_latent(images[100:], return_std=True)
    np.testing.assert_allclose(latent[:, 0] + model.intercept_, mean)
    np.testing.assert_allclose(latent_std[:, 0] ** 2 + model.noise_, std**2)


def test_given_hyperparameters_are_used():
    images, targets = bars()
    model = GCGPRegressor(
        kernel=PatchKernel(variance=2.0),
        patch=Patch(position=4.0),
        likelihood=Gaussian(noise=0.3),
        n_inducing=25,
    ).fit(images, targets)
    assert model.noise_ == 0.3
    assert model.variance_ == 2.0
    np.testing.assert_allclose(model.kernels_[0].lengthscale[0, -2:].numpy(), 4.0, rtol=1e-6)


def test_noise_and_variance_are_selected_where_they_are_not_given():
    images, _ = bars()
    targets = images.mean(axis=(1, 2))
    model = GCGPRegressor(n_inducing=25, kernel=PatchKernel(lengthscale=0.5), patch=Patch(position=False))
    model.fit(images, targets)
    assert 0 < model.noise_ < targets.var()
    assert model.variance_ > 0
    assert model.likelihood_.noise == model.noise_
