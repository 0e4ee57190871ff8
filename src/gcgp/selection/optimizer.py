"""Climbing a bound: L-BFGS or Adam, the best point kept, a history of what happened."""

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
GAIN = 1e-5
PATIENCE = {"l-bfgs": 10, "adam": 30}
"""Climbing stops once so many iterations together gain less than `GAIN`, in nats a signal."""
MOST_TRIES = 8
"""Points along one direction: rounding may leave nothing to gain there."""

Function = Callable[[Float[np.ndarray, "k"]], tuple[float, Float[np.ndarray, "k"]]]


class _Enough(Exception):
    pass


class _Journal:
    """A function whose values are kept in a checkpoint, in the order in which they were asked for."""

    def __init__(self, function: Function, checkpoint: Checkpoint, stage: str) -> None:
        self.function = function
        self.checkpoint = checkpoint
        self.stage = f"maximize {stage}"
        found = checkpoint.load(self.stage)
        self.rows = [] if found is None else list(found["rows"].numpy())
        self.asked = 0

    def __call__(self, x: Float[np.ndarray, "k"]) -> tuple[float, Float[np.ndarray, "k"]]:
        self.asked += 1
        size = len(x)
        if self.asked <= len(self.rows):
            row = self.rows[self.asked - 1]
            if np.array_equal(row[:size], x):
                return float(row[size]), row[size + 1 :].copy()
            del self.rows[self.asked - 1 :]  # another machine rounds otherwise: from here on anew
        value, gradient = self.function(x)
        self.rows.append(np.concatenate([x, [value], gradient]))
        if self.checkpoint.due(self.stage):
            self.checkpoint.save(self.stage, {"rows": torch.from_numpy(np.stack(self.rows))})
        return value, gradient


def maximize(
    objective: Function,
    start: Float[np.ndarray, "k"],
    *,
    bounds: list[tuple[float, float]],
    optimizer: str = "l-bfgs",
    max_iter: int = 50,
    history: History,
    learning_rate: float = 0.05,
    checkpoint: Checkpoint | None = None,
    stage: str = "",
) -> tuple[Float[np.ndarray, "k"], float, bool]:
    """The best point found from `start`, its value, and whether the maximize was interrupted by the user.

    The checkpoint keeps all values and gradients under the name of the stage. A maximize that is begun again
    takes them from there, and so comes to where it was and goes on as it would have.
    """
    best, highest = start.copy(), -np.inf
    recent: list[float] = []

    def attempted(x: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective; −∞, and so a rejected step, where a matrix has no factor (except at the start)."""
        try:
            return objective(x)
        except (FactorizationError, LinAlgError):
            if np.array_equal(x, start):
                raise
            return -np.inf, np.zeros_like(x)

    journal = attempted if checkpoint is None else _Journal(attempted, checkpoint, stage)

    def evaluated(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, highest
        value, gradient = journal(x)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e10, np.zeros_like(x)
        if value > highest:
            best, highest = x.copy(), value
        return -value, -gradient

    def note(*_: object) -> None:
        history.add(highest)
        recent.append(highest)
        patience = PATIENCE[optimizer]
        if len(recent) > patience and recent[-1] - recent[-1 - patience] < GAIN:
            raise _Enough

    interrupted = False
    try:
        if optimizer == "l-bfgs":
            minimize(
                evaluated,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=note,
                options={"maxiter": max_iter, "maxls": MOST_TRIES, "ftol": 1e-7},
            )
        else:
            _adam(evaluated, start, bounds, max_iter, learning_rate, note)
    except _Enough:
        pass
    except KeyboardInterrupt:
        interrupted = True
    return best, highest, interrupted


def _adam(
    evaluated: Function,
    start: np.ndarray,
    bounds: list[tuple[float, float]],
    max_iter: int,
    learning_rate: float,
    note: Callable[[], None],
) -> None:
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=learning_rate)
    low, high = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2).T
    for _ in range(max_iter):
        _, gradient = evaluated(x.detach().numpy().copy())
        x.grad = torch.from_numpy(gradient)
        optimizer.step()
        with torch.no_grad():
            x.clamp_(low, high)
        note()
