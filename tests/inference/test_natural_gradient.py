"""Natural gradient steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcgp.inference import Statistics
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.likelihoods import Anchored, Dirichlet, Gaussian, RobustMax, Softmax
from gcgp.inference.natural_gradient import (
    Sites,
    fit_sites,
    leave_one_out_score,
    natural_steps,
    search_and_fit,
)
from gcgp.inference.svgp import FreePosterior


def test_one_natural_step_solves_gaussian_regression(dataset):
    count, size = dataset.features.shape
    torch.manual_seed(1)
    targets = torch.randn(count, dtype=torch.float64)
    dataset, likelihood = FeatureDataset(dataset.features, dataset.residual, targets), Gaussian(0.3)
    flat = Sites(*torch.zeros(2, count, 1, dtype=torch.float64))
    fit = natural_steps(flat, dataset, likelihood, 2.0, max_iter=1)
    statistics = Statistics.empty(1, size)
    statistics.add(dataset.features, torch.zeros(count, dtype=torch.int64), targets, dataset.residual)
    exact = likelihood.posterior(statistics, 2.0)
    torch.testing.assert_close(fit.posterior.weights, exact.weights)
    torch.testing.assert_close(fit.posterior.roots, exact.roots)
    assert fit.bound == pytest.approx(float(likelihood.bound(statistics, 2.0)), rel=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "tolerance"),
    [(Softmax(draws=1 << 12), 1e-4), (RobustMax(), 2e-3)],  # the latter is not concave
    ids=["softmax", "robust-max"],
)
def test_natural_steps_agree_with_gradients_on_a_free_posterior(dataset, flat, likelihood, tolerance):
    bounds: list[float] = []
    fit = natural_steps(flat, dataset, likelihood, 2.0, max_iter=60, tolerance=1e-9, report=bounds.append)
    assert bounds == sorted(bounds)
    free = FreePosterior.prior(
        dataset.features.shape[1], flat.linear.shape[1], torch.tensor(2.0, dtype=torch.float64).log()
    )
    optimizer = torch.optim.LBFGS(
        free.distribution.parameters(), max_iter=300, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )

    def loss():
        optimizer.zero_grad()
        mean, variance = free.predict(dataset.features, dataset.residual)
        value = free.divergence() - likelihood.expected_log(mean, variance, dataset.observations).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert fit.bound == pytest.approx(-float(loss().detach()), rel=tolerance)
    torch.testing.assert_close(
        fit.posterior.weights, free.to_posterior().weights, atol=100 * tolerance, rtol=0
    )


def test_anchored_steps_start_at_the_closed_form(dataset):
    closed, classes = Dirichlet(0.01), 3
    statistics = Statistics.empty(classes, dataset.features.shape[1])
    ones = torch.ones(len(dataset), dtype=torch.float64)
    statistics.add(dataset.features, dataset.observations, ones, dataset.residual)
    sites = Sites.of_closed_form(closed, dataset, classes)
    fit = fit_sites(sites, dataset, Anchored(0.01, 0.0), 2.0)
    torch.testing.assert_close(fit.posterior.weights, closed.posterior(statistics, 2.0).weights)
    assert fit.bound == pytest.approx(float(closed.bound(statistics, 2.0)), rel=1e-9)


def test_leaving_out_a_site_is_fitting_without_it(dataset, flat):
    likelihood = Softmax()
    fit = natural_steps(flat, dataset, likelihood, 2.0)
    scores = [leave_one_out_score(fit, dataset, likelihood, torch.tensor([n])) for n in range(5)]
    for n, score in enumerate(scores):
        others = torch.arange(len(dataset)) != n
        rest = Sites(fit.sites.linear[others], fit.sites.precision[others])
        seen = FeatureDataset(
            dataset.features[others], dataset.residual[others], dataset.observations[others]
        )
        mean, variance = rest.posterior(seen, 2.0).predict(
            dataset.features[n : n + 1], dataset.residual[n : n + 1]
        )
        assert score == pytest.approx(float(likelihood.predictive_log(mean, variance, torch.tensor([n % 3]))))
    assert leave_one_out_score(fit, dataset, likelihood, torch.arange(5)) == pytest.approx(np.mean(scores))


def test_search_selects_the_variance_with_the_best_score(dataset, flat):
    likelihood = Softmax()

    def score(fit):
        return fit.bound / len(dataset)

    fit = search_and_fit(
        flat,
        dataset,
        lambda point: (likelihood, 1e-2 * 10 ** point[0]),
        score,
        (0.0,),
        [(0.5,), (0.25,)],
    )
    for factor in (0.5, 2.0):
        other = natural_steps(fit.sites, dataset, likelihood, fit.posterior.variance * factor)
        assert score(other) <= score(fit) + 1e-3


def test_improper_start_is_an_error(dataset, flat):
    improper = Sites(flat.linear, flat.precision - 10)
    assert natural_steps(improper, dataset, Softmax(), 2.0) is None
    with pytest.raises(ValueError, match="improper"):
        search_and_fit(improper, dataset, lambda point: (Softmax(), 2.0), lambda fit: 0.0, (0.0,), [])
