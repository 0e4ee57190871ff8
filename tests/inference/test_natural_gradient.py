"""Natural gradient steps, free posteriors in batches, and going on after having been killed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcgp._runtime.checkpoint import Checkpoint
from gcgp.inference import DirichletClassification, GaussianRegression, Statistics
from gcgp.inference.likelihoods import Anchored, RobustMax, Softmax
from gcgp.inference.natural_gradient import (
    FeatureDataset,
    Score,
    Sites,
    fit_of,
    natural_steps,
    search_and_fit,
)
from gcgp.inference.parameters import Parameters
from gcgp.inference.svgp import CachedFeatures, FreePosterior, adam, batch_bound
from gcgp.selection.optimizer import History, maximize

CLASSES, SIZE, COUNT = 3, 6, 40


@pytest.fixture
def observed():
    torch.manual_seed(0)
    labels = torch.arange(COUNT) % CLASSES
    features = torch.randn(COUNT, SIZE, dtype=torch.float64)
    features[:, :CLASSES] += 1.5 * torch.nn.functional.one_hot(labels, CLASSES)
    return FeatureDataset(features, torch.rand(COUNT, dtype=torch.float64) * 0.1, labels)


def flat(classes=CLASSES):
    return Sites(
        torch.zeros(COUNT, classes, dtype=torch.float64), torch.zeros(COUNT, classes, dtype=torch.float64)
    )


def test_one_natural_step_solves_gaussian_regression(observed):
    torch.manual_seed(1)
    targets = torch.randn(COUNT, dtype=torch.float64)
    seen, likelihood = FeatureDataset(observed.features, observed.residual, targets), GaussianRegression(0.3)
    fit = natural_steps(fit_of(flat(1), seen, likelihood, 2.0), seen, likelihood, max_iter=1)
    statistics = Statistics.empty(1, SIZE)
    statistics.add(seen.features, torch.zeros(COUNT, dtype=torch.int64), targets, seen.residual)
    exact = likelihood.posterior(statistics, 2.0)
    torch.testing.assert_close(fit.posterior.weights, exact.weights)
    torch.testing.assert_close(fit.posterior.roots, exact.roots)
    assert fit.bound == pytest.approx(float(likelihood.bound(statistics, 2.0)), rel=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "tolerance"),
    [(Softmax(CLASSES, 1 << 12), 1e-4), (RobustMax(CLASSES), 2e-3)],  # the latter is not concave
    ids=["softmax", "robust-max"],
)
def test_natural_steps_find_what_gradients_on_a_free_posterior_find(observed, likelihood, tolerance):
    bounds: list[float] = []
    start = fit_of(flat(), observed, likelihood, 2.0)
    fit = natural_steps(
        start,
        observed,
        likelihood,
        max_iter=60,
        tolerance=1e-9,
        tell=lambda fit: bounds.append(fit.bound),
    )
    assert bounds == sorted(bounds)
    free = FreePosterior.prior(SIZE, CLASSES, torch.tensor(2.0, dtype=torch.float64).log())
    optimizer = torch.optim.LBFGS(
        free.distribution.parameters(), max_iter=300, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )

    def loss():
        optimizer.zero_grad()
        mean, variance = free.predict(observed.features, observed.residual)
        value = free.divergence() - likelihood.expected_log(mean, variance, observed.targets).sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert fit.bound == pytest.approx(-float(loss().detach()), rel=tolerance)
    torch.testing.assert_close(fit.posterior.weights, free.settled().weights, atol=100 * tolerance, rtol=0)


def test_anchored_steps_begin_at_the_closed_form(observed):
    closed = DirichletClassification(0.01)
    statistics = Statistics.empty(CLASSES, SIZE)
    ones = torch.ones(COUNT, dtype=torch.float64)
    statistics.add(observed.features, observed.targets, ones, observed.residual)
    targets, noise = closed.targets(observed.targets, CLASSES)
    fit = fit_of(Sites(targets / noise, 1 / noise), observed, Anchored(Softmax(CLASSES), closed, 0.0), 2.0)
    torch.testing.assert_close(fit.posterior.weights, closed.posterior(statistics, 2.0).weights)
    assert fit.bound == pytest.approx(float(closed.bound(statistics, 2.0)), rel=1e-9)


def test_leaving_out_a_site_is_fitting_without_it(observed):
    likelihood = Softmax(CLASSES)
    fit = natural_steps(fit_of(flat(), observed, likelihood, 2.0), observed, likelihood)
    scores = [Score(observed, likelihood, torch.tensor([n]))(fit) for n in range(5)]
    for n, score in enumerate(scores):
        others = torch.arange(COUNT) != n
        rest = Sites(fit.sites.linear[others], fit.sites.precision[others])
        seen = FeatureDataset(observed.features[others], observed.residual[others], observed.targets[others])
        mean, variance = rest.posterior(seen, 2.0).predict(
            observed.features[n : n + 1], observed.residual[n : n + 1]
        )
        assert score == pytest.approx(float(likelihood.predictive_log(mean, variance, torch.tensor([n % 3]))))
    assert Score(observed, likelihood, torch.arange(5))(fit) == pytest.approx(np.mean(scores))


def varied(variance):
    return lambda point: (Softmax(CLASSES), variance * 10 ** point[0])


def test_settling_looks_for_the_variance_that_scores_best(observed):
    likelihood = Softmax(CLASSES)
    score = Score(observed, likelihood, None)
    fit = search_and_fit(flat(), observed, varied(1e-2), score, (0.0,), [(0.5,), (0.25,)])
    for factor in (0.5, 2.0):
        variance = fit.posterior.variance * factor
        other = natural_steps(fit_of(fit.sites, observed, likelihood, variance), observed, likelihood)
        assert score(other) <= score(fit) + 1e-3


def test_a_batch_is_unbiased(observed):
    free = FreePosterior.prior(SIZE, CLASSES, torch.zeros((), dtype=torch.float64))
    source, likelihood = CachedFeatures(observed), Softmax(CLASSES)
    batches = np.random.default_rng(0).permutation(COUNT).reshape(4, -1)
    parts = [batch_bound(free, source, lambda: likelihood, observed.targets, rows) for rows in batches]
    whole = batch_bound(free, source, lambda: likelihood, observed.targets, np.arange(COUNT))
    assert np.mean(parts) == pytest.approx(whole, rel=1e-12)


def test_features_beyond_the_memory_limit_lie_on_disk(observed):
    room = FeatureDataset.room(SIZE, observed.targets, torch.float64, memory=8)
    room.features[:], room.residual[:] = observed.features, observed.residual
    likelihood = Softmax(CLASSES)
    assert fit_of(flat(), room, likelihood, 2.0).bound == fit_of(flat(), observed, likelihood, 2.0).bound


class Killed(BaseException):
    pass


class Deadly(Checkpoint):
    """Dies at the given write, just before or just after it."""

    def __init__(self, path, run, at, after):
        super().__init__(path, run, every=0.0)
        self.at, self.after = at, after

    def save(self, stage, state):
        self.at -= 1
        if self.at == 0 and not self.after:
            raise Killed
        super().save(stage, state)
        if self.at == 0:
            raise Killed


def run_adam(observed, checkpoint):
    free = FreePosterior.prior(SIZE, CLASSES, torch.zeros((), dtype=torch.float64))
    history = History()
    adam(
        free,
        CachedFeatures(observed),
        lambda step: Softmax(CLASSES, 8, seed=step),
        observed.targets,
        Parameters([]),
        epochs=3,
        batch=16,
        learning_rate=0.05,
        history=history,
        checkpoint=checkpoint,
    )
    return [step.value for step in history.steps], free.means.detach()


def run_settle(observed, checkpoint):
    told: list[float] = []
    likelihood = Softmax(CLASSES)
    fit = search_and_fit(
        flat(),
        observed,
        varied(0.1),
        Score(observed, likelihood, None),
        (0.0,),
        [(0.5,)],
        tell=told.append,
        checkpoint=checkpoint,
    )
    return told, fit.posterior.weights


def run_climb(observed, checkpoint):
    def objective(x):
        return -float((x - 1) @ (x - 1) + x[0] ** 4), -2 * (x - 1) - np.array([4 * x[0] ** 3, 0.0])

    history = History()
    best, *_ = maximize(
        objective, np.zeros(2), bounds=[(-9, 9)] * 2, history=history, checkpoint=checkpoint, stage="trial"
    )
    return [step.value for step in history.steps], torch.from_numpy(best)


@pytest.mark.parametrize("run", [run_adam, run_settle, run_climb])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_died_goes_on_as_if_it_had_not(run, after, observed, tmp_path):
    values, result = run(observed, None)
    path = tmp_path / "run.checkpoint"
    for at in (2, 3):  # it dies twice
        with pytest.raises(Killed):
            run(observed, Deadly(path, "run", at, after))
    again, resumed = run(observed, Checkpoint(path, "run"))
    assert again == values
    torch.testing.assert_close(resumed, result, atol=0, rtol=0)
    once_more, _ = run(observed, Checkpoint(path, "run"))
    assert once_more == values


def test_a_checkpoint_of_another_run_is_left_alone(observed, tmp_path):
    path = tmp_path / "run.checkpoint"
    run_climb(observed, Checkpoint(path, "one", every=0.0))
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"run\.checkpoint.*another run"):
        Checkpoint(path, "two")
    assert path.read_bytes() == content
    path.write_bytes(content[:-7])
    with pytest.raises(ValueError, match="not a checkpoint"):
        Checkpoint(path, "one")
