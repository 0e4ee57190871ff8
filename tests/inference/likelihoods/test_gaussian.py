"""Closed-form regression against dense conditioning and brute force."""

import pytest
import torch

from gcgp.inference import Statistics
from gcgp.inference.likelihoods import Gaussian
from gcgp.inference.search import ScoringBatch
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


def select(features, residual, targets, likelihood=None, **options):
    batch = ScoringBatch(features, residual, features.square().sum(dim=1) + residual, None, targets)
    likelihood = Gaussian() if likelihood is None else likelihood
    return likelihood.select(statistics_of(features, residual, targets), batch, **options)


@pytest.mark.parametrize("noise", [0.01, 0.5])
@pytest.mark.parametrize("variance", [0.3, 50.0])
def test_posterior_and_bound_are_the_dense_ones(noise, variance):
    features, residual, targets = problem()
    statistics, likelihood = statistics_of(features, residual, targets), Gaussian(noise)
    new, left, _ = problem(signals=5, seed=1)
    level = torch.full_like(targets, noise)
    mean, spread = likelihood.posterior(statistics, variance).predict(new, left)
    expected, explained = dense_prediction(features, targets, level, variance, new)
    torch.testing.assert_close(mean[:, 0], expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(spread[:, 0], explained + variance * left, rtol=1e-7, atol=1e-9)
    bound = dense_bound(features, residual, targets, level, variance)
    assert likelihood.bound(statistics, variance).item() == pytest.approx(bound, rel=1e-8)


def test_groups_are_summed():
    features, residual, targets = problem()
    grouped = Statistics.empty(3, 6)
    grouped.add(features, torch.arange(30) % 3, targets, residual)
    single, likelihood = statistics_of(features, residual, targets), Gaussian(0.1)
    assert likelihood.bound(grouped, 2.0).item() == pytest.approx(
        likelihood.bound(single, 2.0).item(), rel=1e-10
    )


def left_out_loss(features, residual, targets, noise, variance):
    """Mean negative log density of each target given all others, by dense conditioning."""
    total = 0.0
    for n in range(len(targets)):
        rest = torch.arange(len(targets)) != n
        level = torch.full_like(targets[rest], noise)
        mean, explained = dense_prediction(
            features[rest], targets[rest], level, variance, features[n : n + 1]
        )
        spread = explained[0] + variance * residual[n] + noise
        total += 0.5 * (torch.log(2 * torch.pi * spread) + (targets[n] - mean[0]) ** 2 / spread).item()
    return total / len(targets)


@pytest.mark.parametrize(("signals", "size"), [(30, 6), (8, 20)])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_selection_has_the_best_ratio_by_leave_one_out(signals, size, noise):
    data = problem(signals, size, noise)
    selected = select(*data)
    sigma2, s2 = selected.likelihood.noise, selected.variance
    assert selected.loss == pytest.approx(left_out_loss(*data, sigma2, s2), rel=1e-6, abs=1e-6)
    for factor in (0.01, 0.5, 2.0, 100.0):
        assert selected.loss <= left_out_loss(*data, sigma2, factor * s2) + 1e-4


def test_many_signals_select_the_best_noise_by_leave_one_out():
    data = problem(signals=200)
    selected = select(*data)
    for factor in (0.5, 0.8, 1.25, 2.0):
        noise, variance = factor * selected.likelihood.noise, factor * selected.variance
        assert selected.loss <= left_out_loss(*data, noise, variance) + 1e-6
    assert selected.likelihood.noise == pytest.approx(0.1, rel=0.3)


def test_selection_scales_with_the_targets():
    features, residual, targets = problem()
    small, large = (select(features, residual, factor * targets) for factor in (1, 1000))
    assert large.likelihood.noise == pytest.approx(1e6 * small.likelihood.noise, rel=1e-3)
    assert large.variance == pytest.approx(1e6 * small.variance, rel=1e-3)


@pytest.mark.parametrize("noise", [0.02, 5.0])
def test_given_noise_is_kept_and_its_variance_selected(noise):
    data = problem()
    selected = select(*data, Gaussian(noise))
    assert selected.likelihood.noise == noise
    for variance in torch.logspace(-3, 3, 13, dtype=torch.float64).tolist():
        assert selected.loss <= left_out_loss(*data, noise, variance) + 1e-4


@pytest.mark.parametrize("variance", [0.05, 40.0])
def test_given_variance_is_kept_and_its_noise_selected(variance):
    data = problem()
    selected = select(*data, variance=variance)
    assert selected.variance == variance
    for noise in torch.logspace(-3, 3, 13, dtype=torch.float64).tolist():
        assert selected.loss <= left_out_loss(*data, noise, variance) + 1e-4


def test_given_noise_and_variance_are_scored_as_they_are():
    data = problem()
    selected = select(*data, Gaussian(0.2), variance=3.0)
    assert (selected.likelihood.noise, selected.variance) == (0.2, 3.0)
    assert selected.loss == pytest.approx(left_out_loss(*data, 0.2, 3.0), rel=1e-8)


@pytest.mark.parametrize("level", [0.0, 1e-17, 1e-200])
def test_tiny_targets_give_a_usable_model(level):
    """As constant targets are after centering."""
    features, residual, targets = problem()
    statistics = statistics_of(10 * features, residual, level * targets)
    selected = select(10 * features, residual, level * targets)
    assert selected.likelihood.noise > 0
    assert selected.variance > 0
    posterior = selected.likelihood.posterior(statistics, selected.variance)
    mean, spread = posterior.predict(features, residual)
    assert mean.isfinite().all()
    assert spread.isfinite().all()
    assert (mean.abs() <= 10 * level * targets.abs().max()).all()


def test_noise_stays_positive_if_features_explain_all_targets():
    features, _, targets = problem(noise=0.0)
    no_residual = torch.zeros(30, dtype=torch.float64)
    statistics = statistics_of(features, no_residual, targets)
    selected = select(features, no_residual, targets)
    assert selected.likelihood.noise > 0
    posterior = selected.likelihood.posterior(statistics, selected.variance)
    torch.testing.assert_close(posterior.mean(features)[:, 0], targets, rtol=1e-3, atol=1e-3)


def test_signals_without_prior_variance_are_an_error():
    features, residual, targets = problem()
    with pytest.raises(ValueError, match="the prior variance of all signals is 0"):
        select(0 * features, 0 * residual, targets)
