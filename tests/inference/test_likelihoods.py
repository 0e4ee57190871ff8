"""Likelihoods without a closed form, against brute force."""

from __future__ import annotations

import math

import pytest
import torch

from gcgp.inference import DirichletClassification, GaussianRegression
from gcgp.inference.likelihoods import Anchored, RobustMax, Softmax

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


def test_expected_log_softmax_is_that_of_many_random_draws(latent, draws):
    logs = torch.log_softmax(draws, dim=-1).mean(dim=0).gather(1, latent[2][:, None])[:, 0]
    torch.testing.assert_close(Softmax(CLASSES, MANY).expected_log(*latent), logs, atol=5e-3, rtol=0)
    torch.testing.assert_close(Softmax(CLASSES).expected_log(*latent), logs, atol=2e-2, rtol=0)


def test_softmax_probabilities_are_exact_to_the_accuracy_that_is_stated(latent, draws):
    truth = torch.softmax(draws, dim=-1).mean(dim=0)
    torch.testing.assert_close(Softmax(CLASSES).probabilities(*latent[:2]), truth, atol=4e-3, rtol=0)


def test_robust_max_is_the_chance_of_being_the_largest(latent, draws):
    right = (draws.argmax(dim=-1) == latent[2]).double().mean(dim=0)
    likelihood = RobustMax(CLASSES)
    torch.testing.assert_close(likelihood.largest(*latent), right, atol=5e-3, rtol=0)
    expected = right * math.log(1 - 1e-3) + (1 - right) * math.log(1e-3 / (CLASSES - 1))
    torch.testing.assert_close(likelihood.expected_log(*latent), expected, atol=5e-2, rtol=0)
    chances = likelihood.probabilities(*latent[:2])
    torch.testing.assert_close(chances.sum(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(chances.gather(1, latent[2][:, None])[:, 0], right, atol=5e-3, rtol=0)


def anchored(draws):
    return Anchored(Softmax(CLASSES, draws), DirichletClassification(0.01), 3.0)


@pytest.mark.parametrize(
    "likelihood", [Softmax(CLASSES, MANY), RobustMax(CLASSES), anchored(MANY)], ids=lambda x: type(x).__name__
)
def test_sites_are_the_slopes_of_the_expected_logarithm(likelihood, latent):
    mean, variance, labels = latent
    leaves = mean.clone().requires_grad_(), variance.clone().requires_grad_()
    values = likelihood.expected_log(*leaves, labels)
    by_mean, by_variance = torch.autograd.grad(values.sum(), leaves)
    found, slope, precision = likelihood.sites(*latent)
    torch.testing.assert_close(found, values.detach())
    torch.testing.assert_close(slope, by_mean, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(precision, -2 * by_variance, atol=5e-3, rtol=1e-6)


def test_sites_of_a_softmax_have_no_negative_precision(latent):
    assert (Softmax(CLASSES, 2).sites(*latent)[2] >= 0).all()


def test_anchors_without_a_softmax_are_the_closed_form(latent):
    closed = DirichletClassification(0.01)
    targets, noise = closed.targets(latent[2], CLASSES)
    _, slope, precision = Anchored(Softmax(CLASSES), closed, 0.0).sites(*latent)
    torch.testing.assert_close(slope + precision * latent[0], targets / noise)
    torch.testing.assert_close(precision, 1 / noise)


def test_gaussian_expectations_have_a_closed_form():
    mean, variance = torch.tensor([[0.3], [-1.0]]).double(), torch.tensor([[0.5], [2.0]]).double()
    targets, likelihood = torch.tensor([0.0, 1.0]).double(), GaussianRegression(0.7)
    torch.manual_seed(0)
    f = mean[:, 0] + variance[:, 0].sqrt() * torch.randn(400_000, 2, dtype=torch.float64)
    logs = torch.distributions.Normal(f, math.sqrt(0.7)).log_prob(targets)
    torch.testing.assert_close(
        likelihood.expected_log(mean, variance, targets), logs.mean(dim=0), atol=2e-2, rtol=0
    )
    torch.testing.assert_close(
        likelihood.predictive_log(mean, variance, targets), logs.exp().mean(dim=0).log(), atol=1e-2, rtol=0
    )
