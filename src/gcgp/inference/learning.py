"""Climbing a bound: L-BFGS or Adam, the best point kept, a history of what happened."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize

OPTIMISERS = ("l-bfgs", "adam")
GAIN = 1e-5
"""Climbing stops once ten iterations together gain less than this, in nats a signal."""

Function = Callable[[Float[np.ndarray, "k"]], tuple[float, Float[np.ndarray, "k"]]]


@dataclass(frozen=True)
class Step:
    """One iteration: its number, stage, bound (nats a signal), and seconds since the start."""

    iteration: int
    stage: str
    bound: float
    seconds: float


@dataclass
class History:
    """The steps that were accepted, and who is told of each."""

    tell: Callable[[Step], None] = lambda step: None
    steps: list[Step] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, stage: str, bound: float) -> None:
        """Note one more iteration."""
        step = Step(len(self.steps), stage, bound, time.perf_counter() - self.started)
        self.steps.append(step)
        self.tell(step)


class _Enough(Exception):
    pass


def climb(
    objective: Function,
    start: Float[np.ndarray, "k"],
    *,
    bounds: list[tuple[float, float]],
    optimiser: str = "l-bfgs",
    max_iter: int = 50,
    stage: str = "",
    history: History,
    learning_rate: float = 0.05,
) -> tuple[Float[np.ndarray, "k"], float, bool]:
    """The best point found from `start`, its bound, and whether the climb was interrupted by the user."""
    best, highest = start.copy(), -np.inf
    recent: list[float] = []

    def evaluated(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, highest
        value, gradient = objective(x)
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            return 1e10, np.zeros_like(x)
        if value > highest:
            best, highest = x.copy(), value
        return -value, -gradient

    def note(*_: object) -> None:
        history.add(stage, highest)
        recent.append(highest)
        if len(recent) > 10 and recent[-1] - recent[-11] < GAIN:
            raise _Enough

    interrupted = False
    try:
        if optimiser == "l-bfgs":
            minimize(
                evaluated,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=note,
                options={"maxiter": max_iter, "maxcor": 20},
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
    optimiser = torch.optim.Adam([x], lr=learning_rate)
    low, high = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2).T
    for _ in range(max_iter):
        _, gradient = evaluated(x.detach().numpy().copy())
        x.grad = torch.from_numpy(gradient)
        optimiser.step()
        with torch.no_grad():
            x.clamp_(low, high)
        note()
