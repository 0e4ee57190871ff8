"""Closed-form classification against its formulas, signal by signal and class by class."""

import math

import pytest
import torch

from gcgp.inference import DirichletClassification, Statistics
from gcgp.inference.dirichlet import FINE_STEPS, START, alpha_of, cautious_loss
from gcgp.inference.search import ScoringBatch
from gcgp.inference.softmax import expected_softmax, normal_draws
from slow_reference import dense_bound, dense_prediction

CLASSES = 3


@pytest.fixture
def sample():
    """Signals whose features tell their classes, but not quite."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % CLASSES
    features = torch.randn(24, 5, generator=generator, dtype=torch.float64)
    features[torch.arange(24), labels] += 1.5
    residual = 0.2 * torch.rand(24, generator=generator, dtype=torch.float64)
    return ScoringBatch(features, residual, features.square().sum(dim=1) + residual, labels)


def statistics_of(sample, kept=slice(None)):
    statistics = Statistics.empty(CLASSES, sample.features.shape[1])
    labels = sample.labels[kept]
    ones = torch.ones(len(labels), dtype=torch.float64)
    statistics.add(sample.features[kept], labels, ones, sample.residual[kept])
    return statistics


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.3])
def test_targets_are_the_formula(alpha):
    labels = torch.tensor([2, 0, 1, 1])
    targets, noise = DirichletClassification(alpha).targets(labels, CLASSES)
    for n, label in enumerate(labels.tolist()):
        level = [alpha + (c == label) for c in range(CLASSES)]
        variances = [math.log(1 / a + 1) for a in level]
        plain = [math.log(a) - v / 2 for a, v in zip(level, variances, strict=True)]
        center = sum(plain) / CLASSES
        assert noise[n].tolist() == pytest.approx(variances)
        assert targets[n].tolist() == pytest.approx([t - center for t in plain])


def test_targets_of_a_signal_add_up_to_zero():
    targets, _ = DirichletClassification(0.01).targets(torch.arange(4), 4)
    torch.testing.assert_close(targets.sum(dim=1), torch.zeros(4).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("variance", [0.5, 100.0])
def test_posterior_is_dense_conditioning_of_every_class(sample, alpha, variance):
    likelihood = DirichletClassification(alpha)
    targets, noise = likelihood.targets(sample.labels, CLASSES)
    new = sample.features.flip(1)[:6]
    posterior = likelihood.posterior(statistics_of(sample), variance)
    mean, spread = posterior.predict(new, torch.zeros(6, dtype=torch.float64))
    for c in range(CLASSES):
        expected = dense_prediction(sample.features, targets[:, c], noise[:, c], variance, new)
        torch.testing.assert_close((mean[:, c], spread[:, c]), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("variance", [0.5, 100.0])
def test_bound_is_the_sum_of_dense_bounds(sample, alpha, variance):
    likelihood = DirichletClassification(alpha)
    targets, noise = likelihood.targets(sample.labels, CLASSES)
    expected = sum(
        dense_bound(sample.features, sample.residual, targets[:, c], noise[:, c], variance)
        for c in range(CLASSES)
    )
    assert likelihood.bound(statistics_of(sample), variance).item() == pytest.approx(expected, rel=1e-9)


def test_leave_one_out_is_refitting_without_each_signal(sample):
    likelihood, variance = DirichletClassification(0.01), 3.0
    draws = normal_draws(CLASSES, 64)
    targets, noise = likelihood.targets(sample.labels, CLASSES)
    posterior = likelihood.posterior(statistics_of(sample), variance)
    mean, spread = posterior.leave_one_out(sample.features, sample.residual, targets / noise, 1 / noise)
    surprise = 0.0
    for n in range(24):
        refitted = likelihood.posterior(statistics_of(sample, torch.arange(24) != n), variance)
        expected = refitted.predict(sample.features[n : n + 1], sample.residual[n : n + 1])
        torch.testing.assert_close((mean[n : n + 1], spread[n : n + 1]), expected)
        surprise -= expected_softmax(*expected, draws)[0, sample.labels[n]].log().item() / 24
    loss = -likelihood.leave_one_out_logs(statistics_of(sample), variance, sample, draws).mean()
    assert loss == pytest.approx(surprise, rel=1e-8)


def test_common_offset_changes_no_probability(sample):
    likelihood = DirichletClassification(0.01)
    posterior = likelihood.posterior(statistics_of(sample), 3.0)
    mean, spread = posterior.predict(sample.features, sample.residual)
    draws = normal_draws(CLASSES)
    shifted = expected_softmax(mean + likelihood.offset(CLASSES), spread, draws)
    assert likelihood.offset(CLASSES) < -1
    torch.testing.assert_close(shifted, expected_softmax(mean, spread, draws))


def test_class_without_signals_is_less_probable_than_others(sample):
    kept = sample.labels != 2
    posterior = DirichletClassification(0.01).posterior(statistics_of(sample, kept), 3.0)
    latent = posterior.predict(sample.features[kept], sample.residual[kept])
    mean = expected_softmax(*latent, normal_draws(CLASSES)).mean(dim=0)
    assert mean[2] < 0.2
    assert mean[2] < mean[:2].min()


def loss_at(sample, draws, alpha, variance):
    likelihood = DirichletClassification(alpha)
    return cautious_loss(likelihood.leave_one_out_logs(statistics_of(sample), variance, sample, draws))


def moved(choice, log_variance=0.0, log_noise=0.0):
    noise = choice.likelihood.level(own=False)[1].item()
    return alpha_of(noise * 2**log_noise), choice.variance * 10**log_variance


def test_choice_is_no_worse_than_its_neighbors(sample):
    draws = normal_draws(CLASSES, 64)
    steps = [(1.0, 0.25)]
    choice = DirichletClassification.choose(statistics_of(sample), sample, draws, steps=steps)
    assert choice.loss == pytest.approx(loss_at(sample, draws, *moved(choice)))
    for move in ((1.0, 0.0), (-1.0, 0.0), (0.0, 0.25), (0.0, -0.25)):
        assert choice.loss <= loss_at(sample, draws, *moved(choice, *move)) + 1e-12


def test_choice_beats_its_start_and_says_where_it_lies(sample):
    draws = normal_draws(CLASSES, 64)
    statistics = statistics_of(sample)
    stay = DirichletClassification.choose(statistics, sample, draws, steps=[])
    size = float(sample.diagonal.mean())
    assert stay.at == START
    assert stay.variance == pytest.approx(10 ** START[0] / size)
    assert stay.likelihood.alpha == pytest.approx(alpha_of(2 ** START[1]))
    choice = DirichletClassification.choose(statistics, sample, draws)
    assert choice.loss < stay.loss
    assert 10 ** choice.at[0] / size == pytest.approx(choice.variance)
    again = DirichletClassification.choose(statistics, sample, draws, start=choice.at, steps=[])
    assert (again.likelihood, again.variance) == (choice.likelihood, choice.variance)


@pytest.mark.parametrize("alpha", [0.02, 3.0, 1e-9])
def test_given_alpha_is_kept_and_its_variance_searched(sample, alpha):
    draws = normal_draws(CLASSES, 64)
    choice = DirichletClassification.choose(statistics_of(sample), sample, draws, alpha=alpha)
    assert choice.likelihood.alpha == alpha
    assert choice.loss == pytest.approx(loss_at(sample, draws, *moved(choice)))
    finest = FINE_STEPS[-1][0]
    for move in (finest, -finest):
        assert choice.loss <= loss_at(sample, draws, *moved(choice, move)) + 1e-12


def test_given_variance_is_kept_and_its_alpha_searched(sample):
    draws = normal_draws(CLASSES, 64)
    choice = DirichletClassification.choose(statistics_of(sample), sample, draws, variance=7.0)
    assert choice.variance == 7.0
    for move in (0.25, -0.25):
        assert choice.loss <= loss_at(sample, draws, *moved(choice, 0.0, move)) + 1e-12


def test_given_alpha_and_variance_are_scored_as_they_are(sample):
    draws = normal_draws(CLASSES, 64)
    choice = DirichletClassification.choose(statistics_of(sample), sample, draws, alpha=0.05, variance=7.0)
    assert (choice.likelihood.alpha, choice.variance) == (0.05, 7.0)
    assert choice.loss == pytest.approx(loss_at(sample, draws, 0.05, 7.0))


def test_fewer_signals_than_features_choose_the_same_as_in_the_whole_space(sample, monkeypatch):
    random = torch.Generator().manual_seed(1)
    wide = torch.linalg.qr(torch.randn(40, 5, generator=random, dtype=torch.float64))[0]
    turned = ScoringBatch(sample.features @ wide.T, sample.residual, sample.diagonal, sample.labels)
    draws = normal_draws(CLASSES, 64)
    small = DirichletClassification.choose(statistics_of(turned), turned, draws)
    monkeypatch.setattr(Statistics, "span", lambda self: torch.eye(40, dtype=torch.float64))
    whole = DirichletClassification.choose(statistics_of(turned), turned, draws)
    assert (small.variance, small.likelihood) == (whole.variance, whole.likelihood)
    assert small.loss == pytest.approx(whole.loss, rel=1e-9)


def test_many_features_are_searched_along_the_largest_of_them(sample, monkeypatch):
    """These find the variance; α_ε is that of all, no worse than its neighbors."""
    draws, statistics = normal_draws(CLASSES, 64), statistics_of(sample)
    basis = statistics.principal(2)
    few = DirichletClassification.choose(statistics.along(basis), sample.along(basis), draws)
    monkeypatch.setattr("gcgp.inference.dirichlet.SEARCHED", 2)
    choice = DirichletClassification.choose(statistics, sample, draws)
    assert choice.variance == few.variance
    assert choice.loss == pytest.approx(loss_at(sample, draws, *moved(choice)))
    for move in (0.25, -0.25):
        assert choice.loss <= loss_at(sample, draws, *moved(choice, 0.0, move)) + 1e-12
    given = DirichletClassification.choose(statistics, sample, draws, alpha=0.05, variance=7.0)
    assert (given.likelihood.alpha, given.variance) == (0.05, 7.0)


def test_the_only_signal_of_its_class_is_not_left_out(sample):
    lonely = ScoringBatch(sample.features, sample.residual, sample.diagonal, sample.labels.clone())
    lonely.labels[lonely.labels == 2] = 1
    lonely.labels[0] = 2
    draws = normal_draws(CLASSES, 64)
    choice = DirichletClassification.choose(statistics_of(lonely), lonely, draws)
    others = lonely.of(torch.arange(24) > 0)
    logs = choice.likelihood.leave_one_out_logs(statistics_of(lonely), choice.variance, others, draws)
    assert choice.loss == pytest.approx(cautious_loss(logs))


def test_one_signal_a_class_is_judged_by_the_bound(sample):
    few = sample.of(torch.arange(24) < CLASSES)
    statistics = statistics_of(few)
    choice = DirichletClassification.choose(statistics, few, normal_draws(CLASSES, 64))
    assert choice.likelihood.alpha == 0.01
    bounds = [choice.likelihood.bound(statistics, choice.variance * f).item() for f in (10**-0.5, 1, 10**0.5)]
    assert bounds[1] >= max(bounds)
    assert choice.loss == pytest.approx(-bounds[1] / CLASSES)
