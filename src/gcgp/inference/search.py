"""Searches without gradients, over scores that are cheap once features exist."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gcgp._runtime.processes import ProcessGroup
from gcgp.inference.shapes import Observed, PerSignal, Rows

SearchPoint = tuple[float, ...]
DEFAULT_START: SearchPoint = (0.0, 3.0)
"""log10 of the prior variance in its unit, and log2 of the noise of Dirichlet targets of other classes.

The unit is such that latent functions differ between signals as much as targets do. The noise stands for
α_ε: the targets lie about 1.5 times as far apart, which limits confidence. The default is the mode of the
prior.
"""
ONE_LABEL_MODE: SearchPoint = (-0.5, 3.5)
"""The same with one label per class, where the prior decides alone.

With half the median distance as lengthscale, probabilities of digits and of bodies are then neither over- nor
underconfident.
"""
COARSE_STEPS: tuple[SearchPoint, ...] = ((0.5, 0.5),)
FINE_STEPS: tuple[SearchPoint, ...] = ((0.5, 0.5), (0.25, 0.25))
LikelihoodT = TypeVar("LikelihoodT")


@dataclass(frozen=True)
class ScoringBatch:
    """Training signals on which choices are scored."""

    features: Rows
    residual: PerSignal
    """kff − |φ|², which an estimate of kff may make negative; it then counts as 0."""
    diagonal: PerSignal
    labels: Int[Tensor, "n"] | None = None
    """Indices of their classes, in classification."""
    targets: PerSignal | None = None
    """Regression targets."""

    @classmethod
    def concatenate(cls, parts: Sequence[ScoringBatch], processes: ProcessGroup, size: int) -> ScoringBatch:
        """All signals of all parts of all processes, in order; `size` is the number of features."""
        none = torch.zeros(0, dtype=torch.float64)
        empty = cls(none.reshape(0, size), none, none, none.long(), none)
        names = [field.name for field in fields(cls)]
        columns = (torch.cat([getattr(part, name) for part in (empty, *parts)]) for name in names)
        return cls(*map(processes.concatenate, columns))

    def take(self, chosen: Bool[Tensor, "n"] | Int[Tensor, "m"]) -> ScoringBatch:
        """The chosen signals."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{name: column[chosen] for name, column in columns.items() if column is not None}
        )

    def observations(self, task: str) -> Observed:
        """Labels in classification, targets in regression."""
        observed = self.labels if task == "classification" else self.targets
        assert observed is not None
        return observed

    def along(self, basis: Float[Tensor, "M r"]) -> ScoringBatch:
        """The features projected on an orthonormal basis; the rest is added to the residual."""
        features = self.features @ basis
        rest = self.features.square().sum(dim=1) - features.square().sum(dim=1)
        return replace(self, features=features, residual=self.residual + rest.clamp_min(0.0))


@dataclass(frozen=True)
class SelectedModel(Generic[LikelihoodT]):
    """A likelihood and a GP variance, with their loss."""

    likelihood: LikelihoodT
    variance: float
    loss: float
    at: SearchPoint = ()
    """Its point in the search: a start for the search of a similar model."""


def pattern_search(
    loss: Callable[[SearchPoint], float],
    start: SearchPoint,
    steps: Sequence[SearchPoint],
    *,
    diagonals: bool = True,
    limit: float = math.inf,
) -> tuple[SearchPoint, float]:
    """Minimize `loss` from `start` by steps along the axes and, if none of them helps, diagonal ones.

    No point is evaluated twice. A NaN counts as infinite. If the loss at `start` exceeds `limit`, no other
    point is evaluated.

    >>> pattern_search(lambda p: (p[0] - 2) ** 2, (0.0,), [(1.0,), (0.5,)])
    ((2.0,), 0.0)
    """
    known: dict[SearchPoint, float] = {}

    def value(point: SearchPoint) -> float:
        if point not in known:
            result = loss(point)
            known[point] = result if result == result else float("inf")
        return known[point]

    best = start
    for step in steps if value(start) <= limit else ():
        free = [(0, 1, -1) if size else (0,) for size in step]
        directions = sorted(product(*free), key=_axes)[1:]
        if not diagonals:
            directions = [signs for signs in directions if _axes(signs) == 1]
        improved = True
        while improved:
            improved = False
            for signs in directions:
                while value(_moved(best, signs, step)) < value(best):
                    best, improved = _moved(best, signs, step), True
                if improved and _axes(signs) > 1:
                    break  # a diagonal step helped: try the axes again first
    return best, value(best)


def _axes(signs: Sequence[int]) -> int:
    return sum(map(abs, signs))


def _moved(point: SearchPoint, signs: Sequence[int], step: SearchPoint) -> SearchPoint:
    return tuple(round(x + sign * size, 9) for x, sign, size in zip(point, signs, step, strict=True))
