"""Closed-form classification against its formulas, signal by signal and class by class."""

import math

import pytest
import torch

from gcgp.inference import Statistics
from gcgp.inference.class_rows import ClassRows
from gcgp.inference.likelihoods import Dirichlet, expected_softmax, normal_draws
from gcgp.inference.likelihoods.dirichlet import PRIOR_STD, alpha_of, cautious_loss
from gcgp.inference.search import DEFAULT_START, FINE_STEPS, ONE_LABEL_MODE, ScoringBatch
from slow_reference import dense_bound, dense_prediction

CLASSES = 3


@pytest.fixture
def batch():
    """Signals whose classes overlap a little."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % CLASSES
    features = torch.randn(24, 5, generator=generator, dtype=torch.float64)
    features[torch.arange(24), labels] += 1.5
    residual = 0.2 * torch.rand(24, generator=generator, dtype=torch.float64)
    return ScoringBatch(features, residual, features.square().sum(dim=1) + residual, labels)


def statistics_of(batch, kept=slice(None)):
    statistics = Statistics.empty(CLASSES, batch.features.shape[1])
    labels = batch.labels[kept]
    ones = torch.ones(len(labels), dtype=torch.float64)
    statistics.add(batch.features[kept], labels, ones, batch.residual[kept])
    return statistics


@pytest.mark.parametrize("alpha", [1e-4, 0.01, 0.3])
def test_targets_are_the_formula(alpha):
    labels = torch.tensor([2, 0, 1, 1])
    targets, noise = Dirichlet(alpha).site_targets(labels, CLASSES)
    for n, label in enumerate(labels.tolist()):
        level = [alpha + (c == label) for c in range(CLASSES)]
        variances = [math.log(1 / a + 1) for a in level]
        plain = [math.log(a) - v / 2 for a, v in zip(level, variances, strict=True)]
        center = sum(plain) / CLASSES
        assert noise[n].tolist() == pytest.approx(variances)
        assert targets[n].tolist() == pytest.approx([t - center for t in plain])


def test_targets_of_a_signal_add_up_to_zero():
    targets, _ = Dirichlet(0.01).site_targets(torch.arange(4), 4)
    torch.testing.assert_close(targets.sum(dim=1), torch.zeros(4).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("variance", [0.5, 100.0])
def test_posterior_is_dense_conditioning_of_each_class(batch, alpha, variance):
    likelihood = Dirichlet(alpha)
    targets, noise = likelihood.site_targets(batch.labels, CLASSES)
    new = batch.features.flip(1)[:6]
    posterior = likelihood.posterior(statistics_of(batch), variance)
    mean, spread = posterior.predict(new, torch.zeros(6, dtype=torch.float64))
    for c in range(CLASSES):
        expected = dense_prediction(batch.features, targets[:, c], noise[:, c], variance, new)
        torch.testing.assert_close((mean[:, c], spread[:, c]), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("variance", [0.5, 100.0])
def test_bound_is_the_sum_of_dense_bounds(batch, alpha, variance):
    likelihood = Dirichlet(alpha)
    targets, noise = likelihood.site_targets(batch.labels, CLASSES)
    expected = sum(
        dense_bound(batch.features, batch.residual, targets[:, c], noise[:, c], variance)
        for c in range(CLASSES)
    )
    assert likelihood.bound(statistics_of(batch), variance).item() == pytest.approx(expected, rel=1e-9)


def test_leave_one_out_is_refitting_without_each_signal(batch):
    likelihood, variance = Dirichlet(0.01), 3.0
    draws = normal_draws(CLASSES, 64)
    targets, noise = likelihood.site_targets(batch.labels, CLASSES)
    posterior = likelihood.posterior(statistics_of(batch), variance)
    mean, spread = posterior.leave_one_out(batch.features, batch.residual, targets / noise, 1 / noise)
    surprise = 0.0
    for n in range(24):
        refitted = likelihood.posterior(statistics_of(batch, torch.arange(24) != n), variance)
        expected = refitted.predict(batch.features[n : n + 1], batch.residual[n : n + 1])
        torch.testing.assert_close((mean[n : n + 1], spread[n : n + 1]), expected)
        surprise -= expected_softmax(*expected, draws)[0, batch.labels[n]].log().item() / 24
    loss = -likelihood.leave_one_out_logs(statistics_of(batch), variance, batch, draws).mean()
    assert loss == pytest.approx(surprise, rel=1e-8)


def test_common_offset_changes_no_probability(batch):
    likelihood = Dirichlet(0.01)
    posterior = likelihood.posterior(statistics_of(batch), 3.0)
    mean, spread = posterior.predict(batch.features, batch.residual)
    draws = normal_draws(CLASSES)
    shifted = expected_softmax(mean + likelihood.offset(CLASSES), spread, draws)
    assert likelihood.offset(CLASSES) < -1
    torch.testing.assert_close(shifted, expected_softmax(mean, spread, draws))


def test_class_without_signals_is_less_probable_than_others(batch):
    kept = batch.labels != 2
    posterior = Dirichlet(0.01).posterior(statistics_of(batch, kept), 3.0)
    latent = posterior.predict(batch.features[kept], batch.residual[kept])
    mean = expected_softmax(*latent, normal_draws(CLASSES)).mean(dim=0)
    assert mean[2] < 0.2
    assert mean[2] < mean[:2].min()


def loss_at(batch, draws, point, free=(True, True), given=(None, None)):
    """Leave-one-out loss and prior at a point of the search, by their definitions."""
    statistics, (variance, alpha) = statistics_of(batch), given
    likelihood = Dirichlet(alpha_of(2 ** point[1]) if alpha is None else alpha)
    gap = (likelihood.level(True)[0] - likelihood.level(False)[0]).item()
    if variance is None:
        variance = 10 ** point[0] * gap**2 / statistics.contrast()
    logs = likelihood.leave_one_out_logs(statistics, variance, batch, draws)
    squares = [((x - mode) / std) ** 2 for x, mode, std in zip(point, DEFAULT_START, PRIOR_STD, strict=True)]
    penalty = 0.5 * sum(square for square, is_free in zip(squares, free, strict=True) if is_free)
    return cautious_loss(logs) + penalty / len(logs)


def moved(point, step):
    return tuple(x + move for x, move in zip(point, step, strict=True))


def test_selection_is_no_worse_than_its_neighbors(batch):
    draws = normal_draws(CLASSES, 64)
    selected = Dirichlet().select(statistics_of(batch), batch, draws=draws, steps=[(1.0, 0.25)])
    assert selected.loss == pytest.approx(loss_at(batch, draws, selected.at))
    for move in ((1.0, 0.0), (-1.0, 0.0), (0.0, 0.25), (0.0, -0.25)):
        assert selected.loss <= loss_at(batch, draws, moved(selected.at, move)) + 1e-12


def test_selection_improves_on_its_start_and_reports_its_point(batch):
    draws = normal_draws(CLASSES, 64)
    statistics = statistics_of(batch)
    stay = Dirichlet().select(statistics, batch, draws=draws, steps=[])
    assert stay.at == DEFAULT_START
    assert stay.likelihood.alpha == pytest.approx(alpha_of(2 ** DEFAULT_START[1]))
    selected = Dirichlet().select(statistics, batch, draws=draws)
    assert selected.loss < stay.loss
    assert selected.likelihood.alpha == pytest.approx(alpha_of(2 ** selected.at[1]))
    again = Dirichlet().select(statistics, batch, draws=draws, start=selected.at, steps=[])
    assert (again.likelihood.alpha, again.variance) == (selected.likelihood.alpha, selected.variance)


def test_features_of_all_signals_give_the_same_selection_as_their_sums(batch):
    draws, statistics = normal_draws(CLASSES, 64), statistics_of(batch)
    scored = torch.arange(0, 24, 2)
    some = batch.take(scored)
    rows = ClassRows.build(batch.features, batch.labels, CLASSES, scored)
    by_sums = Dirichlet().select(statistics, some, draws=draws)
    by_rows = Dirichlet().select(statistics, some, draws=draws, rows=rows)
    assert by_rows.at == by_sums.at
    assert by_rows.loss == pytest.approx(by_sums.loss, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.02, 3.0, 1e-9])
def test_given_alpha_is_kept_and_its_variance_searched(batch, alpha):
    draws, options = normal_draws(CLASSES, 64), {"free": (True, False), "given": (None, alpha)}
    selected = Dirichlet(alpha).select(statistics_of(batch), batch, draws=draws)
    assert selected.likelihood.alpha == alpha
    assert selected.loss == pytest.approx(loss_at(batch, draws, selected.at, **options))
    finest = FINE_STEPS[-1][0]
    for move in ((finest, 0.0), (-finest, 0.0)):
        assert selected.loss <= loss_at(batch, draws, moved(selected.at, move), **options) + 1e-12


def test_given_variance_is_kept_and_its_alpha_searched(batch):
    draws, options = normal_draws(CLASSES, 64), {"free": (False, True), "given": (7.0, None)}
    selected = Dirichlet().select(statistics_of(batch), batch, draws=draws, variance=7.0)
    assert selected.variance == 7.0
    for move in ((0.0, 0.25), (0.0, -0.25)):
        assert selected.loss <= loss_at(batch, draws, moved(selected.at, move), **options) + 1e-12


def test_given_alpha_and_variance_are_scored_as_they_are(batch):
    draws = normal_draws(CLASSES, 64)
    selected = Dirichlet(0.05).select(statistics_of(batch), batch, draws=draws, variance=7.0)
    assert (selected.likelihood.alpha, selected.variance) == (0.05, 7.0)
    expected = loss_at(batch, draws, DEFAULT_START, (False, False), (7.0, 0.05))
    assert selected.loss == pytest.approx(expected)


def test_fewer_signals_than_features_select_the_same_as_in_the_whole_space(batch, monkeypatch):
    random = torch.Generator().manual_seed(1)
    wide = torch.linalg.qr(torch.randn(40, 5, generator=random, dtype=torch.float64))[0]
    turned = ScoringBatch(batch.features @ wide.T, batch.residual, batch.diagonal, batch.labels)
    draws = normal_draws(CLASSES, 64)
    small = Dirichlet().select(statistics_of(turned), turned, draws=draws)
    monkeypatch.setattr(Statistics, "span", lambda self: torch.eye(40, dtype=torch.float64))
    whole = Dirichlet().select(statistics_of(turned), turned, draws=draws)
    assert (small.variance, small.likelihood.alpha) == (whole.variance, whole.likelihood.alpha)
    assert small.loss == pytest.approx(whole.loss, rel=1e-9)


def test_many_features_are_searched_in_their_principal_directions(batch, monkeypatch):
    """They determine the variance; α_ε is that of all features, no worse than its neighbors."""
    draws, statistics = normal_draws(CLASSES, 64), statistics_of(batch)
    basis = statistics.principal(2)
    few = Dirichlet().select(statistics.along(basis), batch.along(basis), draws=draws)
    monkeypatch.setattr("gcgp.inference.likelihoods.dirichlet.SEARCH_DIRECTIONS", 2)
    selected = Dirichlet().select(statistics, batch, draws=draws)
    assert selected.at[0] == few.at[0]
    assert selected.loss == pytest.approx(loss_at(batch, draws, selected.at))
    for move in ((0.0, 0.25), (0.0, -0.25)):
        assert selected.loss <= loss_at(batch, draws, moved(selected.at, move)) + 1e-12
    given = Dirichlet(0.05).select(statistics, batch, draws=draws, variance=7.0)
    assert (given.likelihood.alpha, given.variance) == (0.05, 7.0)


def test_the_only_signal_of_its_class_is_not_left_out(batch):
    lonely = ScoringBatch(batch.features, batch.residual, batch.diagonal, batch.labels.clone())
    lonely.labels[lonely.labels == 2] = 1
    lonely.labels[0] = 2
    draws = normal_draws(CLASSES, 64)
    selected = Dirichlet().select(statistics_of(lonely), lonely, draws=draws)
    others = lonely.take(torch.arange(24) > 0)
    logs = selected.likelihood.leave_one_out_logs(statistics_of(lonely), selected.variance, others, draws)
    squares = [
        ((x - mode) / std) ** 2 for x, mode, std in zip(selected.at, DEFAULT_START, PRIOR_STD, strict=True)
    ]
    assert selected.loss == pytest.approx(cautious_loss(logs) + 0.5 * sum(squares) / 23)


def test_one_signal_per_class_leaves_the_choice_to_the_prior(batch):
    few = batch.take(torch.arange(24) < CLASSES)
    statistics = statistics_of(few)
    selected = Dirichlet().select(statistics, few, draws=normal_draws(CLASSES, 64))
    assert selected.at == ONE_LABEL_MODE
    assert selected.loss == 0.0
