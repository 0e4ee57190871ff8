"""Interrupted runs resume from their checkpoint as if they had not been interrupted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.history import History
from gcgp.inference.likelihoods import Softmax
from gcgp.inference.natural_gradient import search_and_fit
from gcgp.inference.parameters import Parameters
from gcgp.inference.svgp import CachedFeatures, FreePosterior, StochasticBound, adam
from gcgp.selection.optimizer import maximize


class Killed(BaseException):
    pass


class Deadly(Checkpoint):
    """Dies at the given write, just before or just after it."""

    def __init__(self, path, run, at, after):
        super().__init__(path, run, interval=0.0)
        self.at, self.after = at, after

    def save(self, stage, state):
        self.at -= 1
        if self.at == 0 and not self.after:
            raise Killed
        super().save(stage, state)
        if self.at == 0:
            raise Killed


def run_adam(dataset, flat, checkpoint):
    free = FreePosterior.prior(dataset.features.shape[1], 3, torch.zeros((), dtype=torch.float64))
    history = History()
    adam(
        StochasticBound(free, CachedFeatures(dataset), lambda step: Softmax(draws=8, seed=step), dataset),
        Parameters([]),
        epochs=3,
        batch_size=16,
        learning_rate=0.05,
        history=history,
        checkpoint=checkpoint,
    )
    return [step.value for step in history.steps], free.means.detach()


def run_natural_gradient(dataset, flat, checkpoint):
    bounds: list[float] = []
    likelihood = Softmax()
    fit = search_and_fit(
        flat,
        dataset,
        lambda point: (likelihood, 0.1 * 10 ** point[0]),
        lambda fit: fit.bound,
        (0.0,),
        [(0.5,)],
        report=bounds.append,
        checkpoint=checkpoint,
    )
    return bounds, fit.posterior.weights


def run_maximize(dataset, flat, checkpoint):
    def objective(x):
        return -float((x - 1) @ (x - 1) + x[0] ** 4), -2 * (x - 1) - np.array([4 * x[0] ** 3, 0.0])

    history = History()
    best, *_ = maximize(objective, np.zeros(2), bounds=[(-9, 9)] * 2, history=history, checkpoint=checkpoint)
    return [step.value for step in history.steps], torch.from_numpy(best)


@pytest.mark.parametrize("run", [run_adam, run_natural_gradient, run_maximize])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_killed_run_continues_as_if_it_had_not_died(run, after, dataset, flat, tmp_path):
    values, result = run(dataset, flat, None)
    path = tmp_path / "run.checkpoint"
    for at in (2, 3):  # it dies twice
        with pytest.raises(Killed):
            run(dataset, flat, Deadly(path, "run", at, after))
    again, resumed = run(dataset, flat, Checkpoint(path, "run"))
    assert again == values
    torch.testing.assert_close(resumed, result, atol=0, rtol=0)
    once_more, _ = run(dataset, flat, Checkpoint(path, "run"))
    assert once_more == values


def test_a_checkpoint_of_another_run_is_an_error_and_stays_unchanged(dataset, flat, tmp_path):
    path = tmp_path / "run.checkpoint"
    run_maximize(dataset, flat, Checkpoint(path, "one", interval=0.0))
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"run\.checkpoint.*another"):
        Checkpoint(path, "two")
    assert path.read_bytes() == content
    path.write_bytes(content[:-7])
    with pytest.raises(ValueError, match="not a checkpoint"):
        Checkpoint(path, "one")
