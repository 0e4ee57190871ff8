"""Closed-form regression against dense conditioning and brute force."""

import pytest
import torch

from gcgp.inference import GaussianRegression, Statistics
from slow_reference import dense_bound, dense_prediction


def problem(signals=30, size=6, noise=0.1, seed=0):
    """Targets that are a function of the features, with noise."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(signals, size, generator=generator, dtype=torch.float64)
    weights = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    error = noise**0.5 * torch.randn(signals, generator=generator, dtype=torch.float64)
    residual = 0.01 * torch.rand(signals, generator=generator, dtype=torch.float64)
    return features, residual, features @ weights + error


def statistics_of(features, residual, targets):
    statistics = Statistics.empty(1, features.shape[1])
    statistics.add(features, torch.zeros(len(targets), dtype=torch.int64), targets, residual)
    return statistics


def size_of(features, residual):
    return float((features.square().sum(dim=1) + residual).mean())


@pytest.mark.parametrize("noise", [0.01, 0.5])
@pytest.mark.parametrize("variance", [0.3, 50.0])
def test_posterior_and_bound_are_the_dense_ones(noise, variance):
    features, residual, targets = problem()
    statistics, likelihood = statistics_of(features, residual, targets), GaussianRegression(noise)
    new, left, _ = problem(signals=5, seed=1)
    level = torch.full_like(targets, noise)
    mean, spread = likelihood.posterior(statistics, variance).predict(new, left)
    expected, explained = dense_prediction(features, targets, level, variance, new)
    torch.testing.assert_close(mean[:, 0], expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(spread[:, 0], explained + variance * left, rtol=1e-7, atol=1e-9)
    bound = dense_bound(features, residual, targets, level, variance)
    assert likelihood.bound(statistics, variance).item() == pytest.approx(bound, rel=1e-8)


def test_groups_count_together():
    features, residual, targets = problem()
    grouped = Statistics.empty(3, 6)
    grouped.add(features, torch.arange(30) % 3, targets, residual)
    single, likelihood = statistics_of(features, residual, targets), GaussianRegression(0.1)
    assert likelihood.bound(grouped, 2.0).item() == pytest.approx(
        likelihood.bound(single, 2.0).item(), rel=1e-10
    )


def best_of_grid(statistics, noises, variances):
    return max(
        GaussianRegression(float(noise)).bound(statistics, float(variance)).item()
        for noise in noises
        for variance in variances
    )


@pytest.mark.parametrize(("signals", "size"), [(30, 6), (8, 20)])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_choice_has_the_largest_bound(signals, size, noise):
    features, residual, targets = problem(signals, size, noise)
    statistics = statistics_of(features, residual, targets)
    choice = GaussianRegression.choose(statistics, size_of(features, residual))
    reached = choice.likelihood.bound(statistics, choice.variance).item()
    assert choice.loss == pytest.approx(-reached / signals, rel=1e-6, abs=1e-9)
    grid = torch.logspace(-6, 4, 11, dtype=torch.float64)
    assert reached >= best_of_grid(statistics, grid, grid) - 1e-4
    near = torch.logspace(-0.2, 0.2, 5, dtype=torch.float64)
    around = near * choice.likelihood.noise, near * choice.variance
    assert reached >= best_of_grid(statistics, *around) - 1e-4


def test_choice_scales_with_the_targets():
    features, residual, targets = problem()
    size = size_of(features, residual)
    small = GaussianRegression.choose(statistics_of(features, residual, targets), size)
    large = GaussianRegression.choose(statistics_of(features, residual, 1000 * targets), size)
    assert large.likelihood.noise == pytest.approx(1e6 * small.likelihood.noise, rel=1e-3)
    assert large.variance == pytest.approx(1e6 * small.variance, rel=1e-3)


@pytest.mark.parametrize("noise", [0.02, 5.0])
def test_given_noise_is_kept_and_its_variance_chosen(noise):
    features, residual, targets = problem()
    statistics = statistics_of(features, residual, targets)
    choice = GaussianRegression.choose(statistics, size_of(features, residual), noise=noise)
    assert choice.likelihood.noise == noise
    reached = choice.likelihood.bound(statistics, choice.variance).item()
    variances = torch.logspace(-4, 4, 41, dtype=torch.float64)
    assert reached >= best_of_grid(statistics, [noise], variances) - 1e-4


@pytest.mark.parametrize("variance", [0.05, 40.0])
def test_given_variance_is_kept_and_its_noise_chosen(variance):
    features, residual, targets = problem()
    statistics = statistics_of(features, residual, targets)
    choice = GaussianRegression.choose(statistics, size_of(features, residual), variance=variance)
    assert choice.variance == variance
    reached = choice.likelihood.bound(statistics, variance).item()
    noises = torch.logspace(-4, 4, 41, dtype=torch.float64)
    assert reached >= best_of_grid(statistics, noises, [variance]) - 1e-4


def test_given_noise_and_variance_are_scored_as_they_are():
    features, residual, targets = problem()
    statistics = statistics_of(features, residual, targets)
    choice = GaussianRegression.choose(statistics, size_of(features, residual), noise=0.2, variance=3.0)
    assert (choice.likelihood.noise, choice.variance) == (0.2, 3.0)
    expected = -GaussianRegression(0.2).bound(statistics, 3.0).item() / 30
    assert choice.loss == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("level", [0.0, 1e-17, 1e-200])
def test_targets_that_are_all_but_zero_give_a_usable_model(level):
    """What is left of constant targets once their mean is taken off."""
    features, residual, targets = problem()
    statistics = statistics_of(10 * features, residual, level * targets)
    choice = GaussianRegression.choose(statistics, size_of(10 * features, residual))
    assert choice.likelihood.noise > 0
    assert choice.variance > 0
    posterior = choice.likelihood.posterior(statistics, choice.variance)
    mean, spread = posterior.predict(features, residual)
    assert mean.isfinite().all()
    assert spread.isfinite().all()
    assert (mean.abs() <= 10 * level * targets.abs().max()).all()


def test_targets_that_the_features_explain_wholly_keep_some_noise():
    features, _, targets = problem(noise=0.0)
    statistics = statistics_of(features, torch.zeros(30, dtype=torch.float64), targets)
    choice = GaussianRegression.choose(statistics, size_of(features, torch.zeros(30)))
    assert choice.likelihood.noise > 0
    posterior = choice.likelihood.posterior(statistics, choice.variance)
    torch.testing.assert_close(posterior.mean(features)[:, 0], targets, rtol=1e-3, atol=1e-3)


def test_signals_without_prior_variance_are_an_error():
    features, residual, targets = problem()
    statistics = statistics_of(0 * features, 0 * residual, targets)
    with pytest.raises(ValueError, match="the prior variance of all signals is 0"):
        GaussianRegression.choose(statistics, 0.0)
