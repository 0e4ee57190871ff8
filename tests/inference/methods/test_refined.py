"""Refined means, against gradients by torch and against refits without the held-out signals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gcgp.inference import Statistics
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.likelihoods import Anchored, Dirichlet, Softmax
from gcgp.inference.likelihoods.dirichlet import cautious_loss
from gcgp.inference.methods.refined import REFINEMENT_DRAWS, SOFTMAX_WEIGHTS, Refinement
from gcgp.inference.search import ScoringBatch

CLASSES, SIZE, COUNT = 3, 8, 90
CLOSED, VARIANCE = Dirichlet(1e-3), 2.0


def refinement(features, labels):
    dataset = FeatureDataset(features, torch.full((len(labels),), 0.05, dtype=torch.float64), labels)
    statistics = Statistics.empty(CLASSES, features.shape[1])
    statistics.add(features, labels, torch.ones(len(labels), dtype=torch.float64), dataset.residual)
    return Refinement(dataset, statistics, CLOSED, VARIANCE)


def select(whole, report=lambda value: None):
    """Select with all signals held out; only the batch has their correct prior variances."""
    dataset = whole.dataset
    batch = ScoringBatch(dataset.features, dataset.residual, dataset.residual, dataset.observations)
    rough = replace(dataset, residual=dataset.residual + 100)
    return replace(whole, dataset=rough).select(torch.arange(len(dataset)), batch, report)


@pytest.fixture
def hard():
    """Classes that overlap, one of them more frequent: a case where the closed form is not good."""
    torch.manual_seed(0)
    labels = torch.arange(COUNT) % 10 % CLASSES
    features = torch.randn(COUNT, SIZE, dtype=torch.float64)
    features[:, :CLASSES] += 2 * torch.nn.functional.one_hot(labels, CLASSES)
    return refinement(features, labels)


def test_means_maximize_the_objective(hard):
    weight, variance = SOFTMAX_WEIGHTS[2], 0.3
    closed = CLOSED.posterior(hard.statistics, VARIANCE)
    found = hard.refine(closed, weight, variance)
    likelihood = Anchored(CLOSED.alpha, weight, draws=REFINEMENT_DRAWS)
    weights = torch.zeros(SIZE, CLASSES, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        mean = hard.dataset.features @ weights
        fit = likelihood.expected_log(mean, torch.full_like(mean, variance), hard.dataset.observations)
        value = 0.5 * weights.square().sum() / VARIANCE - fit.sum()
        value.backward()
        return value

    optimizer.step(loss)
    torch.testing.assert_close(found.weights, weights.detach(), atol=0.02, rtol=0)
    assert (found.weights - closed.weights).abs().max() > 0.2
    assert found.roots is closed.roots


def test_the_weight_is_the_best_for_held_out_signals(hard):
    labels, features = hard.dataset.observations, hard.dataset.features
    logs = []
    for fold in range(5):  # a fifth of the signals, stratified by class
        held = torch.argsort(labels, stable=True)[fold::5]
        kept = torch.ones(COUNT, dtype=torch.bool)
        kept[held] = False
        rest = refinement(features[kept], labels[kept])
        closed = CLOSED.posterior(rest.statistics, VARIANCE)
        _, variance = closed.predict(features[held], hard.dataset.residual[held])
        logs.append(
            torch.stack(
                [
                    Softmax().predictive_log(
                        rest.refine(closed, weight, float(variance.mean())).mean(features[held]),
                        variance,
                        labels[held],
                    )
                    for weight in SOFTMAX_WEIGHTS
                ]
            )
        )
    losses = [cautious_loss(each) for each in torch.cat(logs, dim=1)]
    reported: list[float] = []
    weight, _ = select(hard, reported.append)
    assert weight == SOFTMAX_WEIGHTS[losses.index(min(losses))]
    assert reported == pytest.approx([-losses[0], -min(losses)], abs=1e-3)
    assert reported[1] > reported[0]


def test_a_large_first_fold_that_gains_nothing_ends_the_search(monkeypatch):
    torch.manual_seed(0)
    labels = torch.arange(600) % CLASSES
    easy = refinement(5 * torch.nn.functional.one_hot(labels, SIZE).double(), labels)
    paths = []
    path = Refinement._path
    monkeypatch.setattr(
        Refinement, "_path", lambda self, *arguments: paths.append(arguments) or path(self, *arguments)
    )
    assert select(easy)[0] == 0
    assert len(paths) == 1


def test_the_closed_form_stays_if_nothing_can_be_held_out():
    alone = refinement(torch.eye(CLASSES, SIZE, dtype=torch.float64), torch.arange(CLASSES))
    weight, variance = select(alone)
    closed = CLOSED.posterior(alone.statistics, VARIANCE)
    assert weight == 0
    assert alone.refine(closed, weight, variance) is closed
