"""Maximization of an objective by L-BFGS or Adam; the best point is returned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.history import History
from gcgp.inference.cholesky import FactorizationError

OPTIMIZERS = ("l-bfgs", "adam")
PATIENCE_ITERATIONS = {"l-bfgs": 4, "adam": 30}
MIN_GAIN_OF_PATIENCE = 5e-4
"""Optimization stops when that many iterations together gain less than this (nats per signal)."""
MAX_LINE_SEARCH_POINTS = 8
"""Rounding may leave nothing to gain along a direction."""
ADAM_LEARNING_RATE = 0.05

Function = Callable[[Float[np.ndarray, "k"]], tuple[float, Float[np.ndarray, "k"]]]


class _Converged(Exception):
    pass


class _Journal:
    """A function whose values are stored in a checkpoint, in the order of the calls."""

    def __init__(self, function: Function, checkpoint: Checkpoint, key: str) -> None:
        self.function, self.checkpoint, self.key = function, checkpoint, key
        saved = checkpoint.load(key)
        self.rows = [] if saved is None else list(saved["rows"].numpy())
        self.calls = 0

    def __call__(self, x: Float[np.ndarray, "k"]) -> tuple[float, Float[np.ndarray, "k"]]:
        self.calls += 1
        size = len(x)
        if self.calls <= len(self.rows):
            row = self.rows[self.calls - 1]
            if np.array_equal(row[:size], x):
                return float(row[size]), row[size + 1 :].copy()
            del self.rows[self.calls - 1 :]  # stored on a machine that rounds differently
        value, gradient = self.function(x)
        self.rows.append(np.concatenate([x, [value], gradient]))
        if self.checkpoint.due(self.key):
            self.checkpoint.save(self.key, {"rows": torch.from_numpy(np.stack(self.rows))})
        return value, gradient


def maximize(
    objective: Function,
    start: Float[np.ndarray, "k"],
    *,
    bounds: list[tuple[float, float]],
    optimizer: str = "l-bfgs",
    max_iter: int = 50,
    history: History,
    checkpoint: Checkpoint | None = None,
    checkpoint_key: str = "maximize",
) -> tuple[Float[np.ndarray, "k"], float, bool]:
    """The best point from `start`, its value, and whether the user has interrupted the optimization.

    The checkpoint stores all values and gradients under the key. A run that is started again reads them from
    there, and so continues where it stopped.
    """
    best, highest = start.copy(), -np.inf
    recent: list[float] = []

    def factored(x: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective; −∞, a rejected step, where a matrix has no Cholesky factor (except at the start)."""
        try:
            return objective(x)
        except (FactorizationError, LinAlgError):
            if np.array_equal(x, start):
                raise
            return -np.inf, np.zeros_like(x)

    journal = factored if checkpoint is None else _Journal(factored, checkpoint, checkpoint_key)

    def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, highest
        value, gradient = journal(x)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e10, np.zeros_like(x)
        if value > highest:
            best, highest = x.copy(), value
        return -value, -gradient

    def end_iteration(*_: object) -> None:
        history.add(highest)
        recent.append(highest)
        patience = PATIENCE_ITERATIONS[optimizer]
        if len(recent) > patience and recent[-1] - recent[-1 - patience] < MIN_GAIN_OF_PATIENCE:
            raise _Converged

    interrupted = False
    try:
        if optimizer == "l-bfgs":
            minimize(
                loss,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=end_iteration,
                options={"maxiter": max_iter, "maxls": MAX_LINE_SEARCH_POINTS, "ftol": 1e-7},
            )
        else:
            _adam(loss, start, bounds, max_iter, end_iteration)
    except _Converged:
        pass
    except KeyboardInterrupt:
        interrupted = True
    return best, highest, interrupted


def _adam(
    loss: Function,
    start: np.ndarray,
    bounds: list[tuple[float, float]],
    max_iter: int,
    end_iteration: Callable[[], None],
) -> None:
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=ADAM_LEARNING_RATE)
    low, high = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2).T
    for _ in range(max_iter):
        x.grad = torch.from_numpy(loss(x.detach().numpy().copy())[1])
        optimizer.step()
        with torch.no_grad():
            x.clamp_(low, high)
        end_iteration()
