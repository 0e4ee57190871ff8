"""Maximization: the best point is returned, whatever happens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gcgp._runtime.history import History
from gcgp.inference.cholesky import FactorizationError
from gcgp.selection.optimizer import OPTIMIZERS, maximize

TOP = np.array([0.7, -1.2])
FREE = [(-np.inf, np.inf)] * 2


def hill(x):
    return -float(((x - TOP) ** 2 * [1.0, 5.0]).sum()), -2 * (x - TOP) * [1.0, 5.0]


@pytest.mark.parametrize(("optimizer", "tolerance"), [("l-bfgs", 1e-4), ("adam", 0.1)])
def test_maximum_is_reached(optimizer, tolerance):
    history = History()
    best, value, interrupted = maximize(
        hill, np.zeros(2), bounds=FREE, optimizer=optimizer, max_iter=200, history=history
    )
    np.testing.assert_allclose(best, TOP, atol=tolerance)
    assert not interrupted
    assert value == hill(best)[0]
    values = [step.value for step in history.steps]
    assert values == sorted(values)
    assert [step.iteration for step in history.steps] == list(range(len(values)))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_bounds_are_respected(optimizer):
    best, *_ = maximize(
        hill, np.zeros(2), bounds=[(-1, 0.5), (-1, 1)], optimizer=optimizer, max_iter=200, history=History()
    )
    np.testing.assert_allclose(best, [0.5, -1.0], atol=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_interruption_returns_the_best_point(optimizer):
    seen = []

    def interrupted_hill(x):
        if len(seen) == 4:
            raise KeyboardInterrupt
        seen.append((hill(x)[0], x.copy()))
        return hill(x)

    best, value, interrupted = maximize(
        interrupted_hill, np.zeros(2), bounds=FREE, optimizer=optimizer, max_iter=50, history=History()
    )
    assert interrupted
    np.testing.assert_array_equal(best, max(seen, key=lambda pair: pair[0])[1])
    assert value == hill(best)[0]


def test_start_at_the_maximum_takes_no_step():
    history = History()
    _, value, _ = maximize(hill, TOP, bounds=FREE, max_iter=10, history=history)
    assert value == hill(TOP)[0]
    assert not history.steps


def test_nan_is_a_rejected_step():
    def cliff(x):
        return hill(x) if x[0] < 0.5 else (float("nan"), np.full(2, np.nan))

    best, *_ = maximize(cliff, np.zeros(2), bounds=FREE, max_iter=50, history=History())
    assert best[0] < 0.5
    assert hill(best)[0] > hill(np.zeros(2))[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "error", [FactorizationError("Kuu"), torch.linalg.LinAlgError("not positive definite")]
)
def test_failed_factorization_is_a_rejected_step(optimizer, error):
    def cliff(x):
        if x[0] > 0.5:
            raise error
        return hill(x)

    best, value, _ = maximize(
        cliff, np.zeros(2), bounds=FREE, optimizer=optimizer, max_iter=100, history=History()
    )
    assert best[0] <= 0.5
    assert value == hill(best)[0] > hill(np.zeros(2))[0]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_failed_factorization_at_the_start_is_an_error(optimizer):
    def nowhere(x):
        raise FactorizationError("Kuu is not positive definite")

    with pytest.raises(FactorizationError, match="Kuu is not positive definite"):
        maximize(nowhere, np.zeros(2), bounds=FREE, optimizer=optimizer, max_iter=5, history=History())
