"""Comparison of models by leave-one-out predictions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from gcgp import GCGPClassifier, Patch
from gcgp.estimators import fit
from gcgp.selection.comparison import SampleComparison, TrialComparison
from gcgp.selection.learn_config import Division
from gcgp.weighting import Radial


@pytest.fixture(scope="module")
def captured():
    """The candidate and the configuration that learning is given, for 200 digits."""
    images, labels = load_digits(return_X_y=True)
    captured = []

    def capture(candidate, config):
        captured.append((candidate, config))
        return candidate, None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "learn_model", capture)
        patch.setattr(fit, "TRIAL_SIGNALS", 80)
        patch.setattr(fit, "MIN_SCORED_TRIAL_SIGNALS", 40)
        model = GCGPClassifier(
            Radial([0.0, 1.0, 2.0]), n_inducing=20, learn=True, patch=Patch(position=False), search=None
        )
        model.fit(images[:200].reshape(-1, 8, 8) / 16, labels[:200])
    return captured[0]


def test_a_sample_of_the_trial_signals_scores_like_the_trial(captured):
    candidate, config = captured
    trial = TrialComparison(config.trial, 20, 3, 10)
    everything = config.data.gathered(config.trial_rows)
    scored = np.arange(candidate.specs[0].scored)
    sample = SampleComparison(config.trial, 20, 3, everything, scored, config.options, config.context)
    model = candidate.specs, candidate.lengthscales, candidate.start
    ours, theirs = sample.score(*model), trial.score(*model)
    assert len(theirs.logs) == 10
    # The search for variance and likelihood has finer steps in a sample.
    torch.testing.assert_close(ours.logs[:10], theirs.logs, atol=0.1, rtol=0.3)
    assert ours.mean == pytest.approx(float(ours.logs.mean()))


def test_scores_are_repeatable(captured):
    candidate, config = captured
    division = Division.of(config, 64.0)
    assert not division.trial_only
    check = division.comparison(config, 150, 20, held_out=True)
    model = candidate.specs, candidate.lengthscales, candidate.start
    first, second = check.score(*model), check.score(*model)
    assert torch.equal(first.logs, second.logs)
    assert len(first.logs) == len(division.held_out)


def test_worse_lengthscales_score_worse(captured):
    candidate, config = captured
    division = Division.of(config, 64.0)
    poor = [{name: 1e-2 * value for name, value in scales.items()} for scales in candidate.lengthscales]
    for held_out in (True, False):
        comparison = division.comparison(config, 150, 20, held_out=held_out)
        good = comparison.score(candidate.specs, candidate.lengthscales, candidate.start)
        assert good.mean > comparison.score(candidate.specs, poor, candidate.start).mean + 0.1


def test_comparisons_are_limited_in_size(captured):
    _, config = captured
    division = replace(Division.of(config, 64.0), max_compared=100)
    assert division.comparison(config, 150, 20, held_out=True).data.count == 100
