"""Refined means, against gradients taken by torch and against fits from which signals are really left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gcgp.inference import DirichletClassification, Statistics
from gcgp.inference.dirichlet import cautious_loss
from gcgp.inference.likelihoods import Anchored, Softmax
from gcgp.inference.natural_gradient import FeatureDataset
from gcgp.inference.refined import DRAWS, WEIGHTS, Refinement, RefinementConfig
from gcgp.inference.search import ScoringBatch

CLASSES, SIZE, COUNT = 3, 8, 90
CLOSED, VARIANCE = DirichletClassification(1e-3), 2.0


def refinement(features, labels):
    observed = FeatureDataset(features, torch.full((len(labels),), 0.05, dtype=torch.float64), labels)
    statistics = Statistics.empty(CLASSES, features.shape[1])
    statistics.add(features, labels, torch.ones(len(labels), dtype=torch.float64), observed.residual)
    return Refinement(observed, statistics, CLOSED, VARIANCE)


def chosen(whole, tell=lambda value: None):
    """The pull with all signals held out in turn, their prior variances being wrong but in the sample."""
    seen = whole.observed
    sample = ScoringBatch(seen.features, seen.residual, seen.residual, seen.targets)
    rough = replace(seen, residual=seen.residual + 100)
    return replace(whole, observed=rough).chosen(torch.arange(len(seen)), sample, tell)


@pytest.fixture
def hard():
    """Classes that overlap, one of them far more common: the closed form is not good at that."""
    torch.manual_seed(0)
    labels = torch.arange(COUNT) % 10 % CLASSES
    features = torch.randn(COUNT, SIZE, dtype=torch.float64)
    features[:, :CLASSES] += 2 * torch.nn.functional.one_hot(labels, CLASSES)
    return refinement(features, labels)


def test_means_are_those_that_gradients_lead_to(hard):
    pull = RefinementConfig(WEIGHTS[2], 0.3)
    closed = CLOSED.posterior(hard.statistics, VARIANCE)
    found = hard.of_all(closed, pull)
    likelihood = Anchored(Softmax(CLASSES, DRAWS), CLOSED, pull.weight)
    weights = torch.zeros(SIZE, CLASSES, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=300, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        mean = hard.observed.features @ weights
        fit = likelihood.expected_log(mean, torch.full_like(mean, pull.spread), hard.observed.targets)
        value = 0.5 * weights.square().sum() / VARIANCE - fit.sum()
        value.backward()
        return value

    optimizer.step(loss)
    torch.testing.assert_close(found.weights, weights.detach(), atol=0.02, rtol=0)
    assert (found.weights - closed.weights).abs().max() > 0.2
    assert found.roots is closed.roots


def test_the_weight_is_the_best_for_signals_that_were_left_out(hard):
    labels, features = hard.observed.targets, hard.observed.features
    logs = []
    for fold in range(5):  # a fifth of the signals, each class dealt evenly
        held = torch.argsort(labels, stable=True)[fold::5]
        kept = torch.ones(COUNT, dtype=torch.bool)
        kept[held] = False
        rest = refinement(features[kept], labels[kept])
        closed = CLOSED.posterior(rest.statistics, VARIANCE)
        _, variance = closed.predict(features[held], hard.observed.residual[held])
        logs.append(
            torch.stack(
                [
                    Softmax(CLASSES).predictive_log(
                        rest.of_all(closed, RefinementConfig(weight, float(variance.mean()))).mean(
                            features[held]
                        ),
                        variance,
                        labels[held],
                    )
                    for weight in WEIGHTS
                ]
            )
        )
    losses = [cautious_loss(each) for each in torch.cat(logs, dim=1)]
    told: list[float] = []
    pull = chosen(hard, told.append)
    assert pull.weight == WEIGHTS[losses.index(min(losses))]
    assert told == pytest.approx([-losses[0], -min(losses)], abs=1e-3)
    assert told[1] > told[0]


def test_where_nothing_can_be_held_out_the_closed_form_stays():
    alone = refinement(torch.eye(CLASSES, SIZE, dtype=torch.float64), torch.arange(CLASSES))
    pull = chosen(alone)
    closed = CLOSED.posterior(alone.statistics, VARIANCE)
    assert pull.weight == 0
    assert alone.of_all(closed, pull) is closed
