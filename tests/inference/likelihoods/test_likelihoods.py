"""Likelihoods against Monte Carlo, and as option objects."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.base import clone

from gcgp.inference.likelihoods import LIKELIHOODS, Anchored, Dirichlet, Gaussian, RobustMax, Softmax

CLASSES = 4
MANY = 1 << 15


@pytest.fixture
def latent():
    torch.manual_seed(0)
    mean = torch.randn(6, CLASSES, dtype=torch.float64) * 2
    return mean, torch.rand(6, CLASSES, dtype=torch.float64) * 3 + 0.1, torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.fixture
def draws(latent):
    mean, variance, _ = latent
    torch.manual_seed(1)
    return mean + variance.sqrt() * torch.randn(400_000, *mean.shape, dtype=torch.float64)


def test_expected_log_softmax_is_the_mean_over_random_draws(latent, draws):
    logs = torch.log_softmax(draws, dim=-1).mean(dim=0).gather(1, latent[2][:, None])[:, 0]
    torch.testing.assert_close(Softmax(draws=MANY).expected_log(*latent), logs, atol=5e-3, rtol=0)
    torch.testing.assert_close(Softmax().expected_log(*latent), logs, atol=2e-2, rtol=0)


def test_softmax_probabilities_have_the_stated_accuracy(latent, draws):
    truth = torch.softmax(draws, dim=-1).mean(dim=0)
    torch.testing.assert_close(Softmax().probabilities(*latent[:2]), truth, atol=4e-3, rtol=0)


def test_robust_max_is_the_probability_of_being_the_largest(latent, draws):
    right = (draws.argmax(dim=-1) == latent[2]).double().mean(dim=0)
    likelihood = RobustMax()
    torch.testing.assert_close(likelihood.largest(*latent), right, atol=5e-3, rtol=0)
    expected = right * math.log(1 - 1e-3) + (1 - right) * math.log(1e-3 / (CLASSES - 1))
    torch.testing.assert_close(likelihood.expected_log(*latent), expected, atol=5e-2, rtol=0)
    probabilities = likelihood.probabilities(*latent[:2])
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(probabilities.gather(1, latent[2][:, None])[:, 0], right, atol=5e-3, rtol=0)


@pytest.mark.parametrize(
    "likelihood",
    [Softmax(draws=MANY), RobustMax(), Anchored(0.01, 3.0, draws=MANY), Dirichlet(0.01)],
    ids=lambda x: type(x).__name__,
)
def test_sites_are_the_derivatives_of_the_expected_log(likelihood, latent):
    mean, variance, labels = latent
    leaves = mean.clone().requires_grad_(), variance.clone().requires_grad_()
    values = likelihood.expected_log(*leaves, labels)
    by_mean, by_variance = torch.autograd.grad(values.sum(), leaves)
    found, slope, precision = likelihood.sites(*latent)
    torch.testing.assert_close(found, values.detach())
    torch.testing.assert_close(slope, by_mean, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(precision, -2 * by_variance, atol=5e-3, rtol=1e-6)


def test_sites_of_a_softmax_have_nonnegative_precision(latent):
    assert (Softmax(draws=2).sites(*latent)[2] >= 0).all()


def test_anchors_without_a_softmax_are_the_closed_form(latent):
    targets, noise = Dirichlet(0.01).site_targets(latent[2], CLASSES)
    _, slope, precision = Anchored(0.01, 0.0).sites(*latent)
    torch.testing.assert_close(slope + precision * latent[0], targets / noise)
    torch.testing.assert_close(precision, 1 / noise)


def test_gaussian_expectations_have_a_closed_form():
    mean, variance = torch.tensor([[0.3], [-1.0]]).double(), torch.tensor([[0.5], [2.0]]).double()
    targets, likelihood = torch.tensor([0.0, 1.0]).double(), Gaussian(0.7)
    torch.manual_seed(0)
    f = mean[:, 0] + variance[:, 0].sqrt() * torch.randn(400_000, 2, dtype=torch.float64)
    logs = torch.distributions.Normal(f, math.sqrt(0.7)).log_prob(targets)
    torch.testing.assert_close(
        likelihood.expected_log(mean, variance, targets), logs.mean(dim=0), atol=2e-2, rtol=0
    )
    torch.testing.assert_close(
        likelihood.predictive_log(mean, variance, targets), logs.exp().mean(dim=0).log(), atol=1e-2, rtol=0
    )


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_are_option_objects(name):
    likelihood = LIKELIHOODS[name]()
    assert likelihood.name == name
    assert repr(clone(likelihood)) == repr(likelihood) == f"{type(likelihood).__name__}()"
    likelihood.validate()
    field = next(iter(likelihood.get_params()))
    with pytest.raises(ValueError, match=f"{field}=-1"):
        likelihood.set_params(**{field: -1}).validate()


@pytest.mark.parametrize(
    ("likelihood", "predictive", "closed_form"),
    [
        (Dirichlet(0.1), "Softmax()", "Dirichlet(alpha=0.1)"),
        (Softmax(draws=8), "Softmax()", "Dirichlet()"),
        (Anchored(0.1, 2.0), "Softmax()", "Dirichlet(alpha=0.1)"),
        (RobustMax(0.01), "RobustMax(epsilon=0.01)", "Dirichlet()"),
        (Gaussian(0.3), "Gaussian(noise=0.3)", "Gaussian(noise=0.3)"),
    ],
    ids=lambda value: str(value),
)
def test_companions(likelihood, predictive, closed_form):
    assert repr(likelihood.predictive()) == predictive
    assert repr(likelihood.closed_form()) == closed_form
    assert likelihood.predictive().task == likelihood.closed_form().task == likelihood.task


def test_probabilities_of_a_regression_likelihood_are_an_error():
    with pytest.raises(NotImplementedError, match="Gaussian is a likelihood for regression"):
        Gaussian(1.0).probabilities(torch.zeros(1, 1), torch.ones(1, 1))
