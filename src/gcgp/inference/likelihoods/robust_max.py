"""The robust-max likelihood, as in GPflow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.inference.likelihoods.base import Likelihood, row_chunks
from gcgp.inference.shapes import Latent, Observed, PerSignal

QUADRATURE_POINTS = 20
QUADRATURE_ROWS = 2048
QUADRATURE_FLOOR = 1e-6
"""Each probability in a product keeps this distance from 0 and 1, so that its derivative is not lost."""


@cache
def _quadrature() -> tuple[Float[Tensor, "points"], Float[Tensor, "points"]]:
    """Gauss–Hermite nodes and weights for the mean over a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


@dataclass(eq=False, repr=False)
class RobustMax(Likelihood):
    """The label is the class of the largest latent function, except with probability `epsilon`.

    >>> mean = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    >>> RobustMax().probabilities(mean, torch.ones_like(mean)).numpy().round(2)
    array([[0.92, 0.08]])
    """

    epsilon: Any = 1e-3
    name = "robust-max"
    task = "classification"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        number = isinstance(self.epsilon, (int, float)) and not isinstance(self.epsilon, bool)
        if not number or not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon={self.epsilon!r}: expected a number between 0 and 1")

    def largest(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """Probability that the latent function of the target is the largest."""
        nodes, weights = _quadrature()
        deviation = variance.clamp_min(1e-10).sqrt()
        one_hot = torch.nn.functional.one_hot(targets, mean.shape[1]).bool()
        parts = []
        for m, std, chosen in row_chunks(QUADRATURE_ROWS, mean, deviation, one_hot):
            level = m[chosen][:, None] + std[chosen][:, None] * nodes
            below = torch.special.ndtr((level[:, None, :] - m[:, :, None]) / std[:, :, None])
            below = below * (1 - 2 * QUADRATURE_FLOOR) + QUADRATURE_FLOOR
            parts.append(below.masked_fill(chosen[:, :, None], 1.0).prod(dim=1) @ weights)
        return torch.cat(parts)

    def expected_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """The two values of log p(y | f), weighted by their probabilities."""
        correct = self.largest(mean, variance, targets)
        return correct * math.log1p(-self.epsilon) + (1 - correct) * math.log(self._other(mean))

    def probabilities(self, mean: Latent, variance: Latent) -> Latent:
        """Of all classes, normalized to a sum of 1, from which quadrature deviates a little."""
        labels = torch.arange(mean.shape[1])
        largest = [self.largest(mean, variance, label.expand(len(mean))) for label in labels]
        correct = torch.stack(largest, dim=1)
        correct = correct / correct.sum(dim=1, keepdim=True)
        return correct * (1 - self.epsilon) + (1 - correct) * self._other(mean)

    def _other(self, mean: Latent) -> float:
        """Probability of each class whose latent function is not the largest."""
        return self.epsilon / max(1, mean.shape[1] - 1)
