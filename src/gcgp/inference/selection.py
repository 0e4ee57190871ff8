"""Choosing what gradients do not: small searches over scores that are cheap once features exist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

Point = tuple[float, ...]
Likelihood = TypeVar("Likelihood")


@dataclass(frozen=True)
class Sample:
    """Training signals on which choices are scored."""

    features: Float[Tensor, "n M"]
    residual: Float[Tensor, "n"]
    diagonal: Float[Tensor, "n"]
    labels: Int[Tensor, "n"] | None = None
    """Numbers of their classes, in classification."""


@dataclass(frozen=True)
class Choice(Generic[Likelihood]):
    """A likelihood and a GP variance, and how badly they score."""

    likelihood: Likelihood
    variance: float
    loss: float
    at: Point = ()
    """Where it lies in its search: a start for a search in a similar model."""


def pattern_search(
    loss: Callable[[Point], float], start: Point, steps: Sequence[Point]
) -> tuple[Point, float]:
    """Minimise `loss` from `start`: move one coordinate at a time while that pays, for each of the steps.

    No point is looked at twice. A loss that is not a number counts as infinite.

    >>> pattern_search(lambda p: (p[0] - 2) ** 2, (0.0,), [(1.0,), (0.5,)])
    ((2.0,), 0.0)
    """
    known: dict[Point, float] = {}

    def value(point: Point) -> float:
        if point not in known:
            result = loss(point)
            known[point] = result if result == result else float("inf")
        return known[point]

    best = start
    for step in steps:
        improved = True
        while improved:
            improved = False
            for axis, size in enumerate(step):
                if size == 0:
                    continue
                for sign in (1, -1):
                    moved = list(best)
                    moved[axis] = round(best[axis] + sign * size, 9)
                    while value(tuple(moved)) < value(best):
                        best, improved = tuple(moved), True
                        moved[axis] = round(best[axis] + sign * size, 9)
    return best, value(best)
