"""Closed-form regression with Gaussian noise (Titsias 2009)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gcgp.inference.posterior import LOG_2PI, Evidence, Posterior
from gcgp.inference.statistics import Statistics


@dataclass(frozen=True)
class GaussianRegression:
    """Targets t = f + ε with noise ε ~ N(0, `noise`); `Statistics` of one group."""

    noise: float

    def evidence(self, statistics: Statistics) -> Evidence:
        """What the function learns from all signals."""
        count = float(statistics.count.sum())
        return Evidence(
            gram=statistics.gram.sum(dim=0) / self.noise,
            cross=statistics.cross.sum(dim=0) / self.noise,
            squares=float(statistics.squares.sum()) / self.noise,
            residual=float(statistics.residual.sum()) / self.noise,
            log_noise=count * (LOG_2PI + math.log(self.noise)),
        )

    def posterior(self, statistics: Statistics, variance: float) -> Posterior:
        """The posterior of the one latent function."""
        weights, root = self.evidence(statistics).solve(variance)
        return Posterior(variance, weights[:, None], root[None])

    def bound(self, statistics: Statistics, variance: float) -> float:
        """The collapsed bound on log p(t)."""
        return self.evidence(statistics).bound(variance)
