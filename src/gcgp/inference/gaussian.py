"""Closed-form regression with Gaussian noise (Titsias 2009)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import minimize_scalar
from torch import Tensor

from gcgp.inference.posterior import LOG_2PI, NormalEquations, Posterior, left_out
from gcgp.inference.search import ScoringBatch, SelectedModel
from gcgp.inference.statistics import Statistics

RATIOS = [step / 2 for step in range(-8, 19)]
"""log10 of prior variance over noise at which the search starts."""
LEAST_NOISE = 1e-8
"""Noise is at least this part of the targets' mean square."""


@dataclass(frozen=True)
class GaussianRegression:
    """Targets t = f + ε with noise ε ~ N(0, `noise`); `Statistics` of one group."""

    noise: float | Float[Tensor, ""]

    def normal_equations(self, statistics: Statistics) -> NormalEquations:
        """What the function learns from all signals."""
        noise = torch.as_tensor(self.noise, dtype=torch.float64)
        return NormalEquations(
            gram=statistics.gram.sum(dim=0) / noise,
            cross=statistics.cross.sum(dim=0) / noise,
            squares=statistics.squares.sum() / noise,
            residual=statistics.residual.sum().clamp_min(0.0) / noise,
            log_noise=statistics.count.sum() * (LOG_2PI + noise.log()),
        )

    def posterior(self, statistics: Statistics, variance: float | Tensor) -> Posterior:
        """The posterior of the one latent function."""
        return self.solved(statistics, variance)[0]

    def bound(self, statistics: Statistics, variance: float | Tensor) -> Float[Tensor, ""]:
        """The collapsed bound on log p(t)."""
        return self.solved(statistics, variance)[1]

    def solved(self, statistics: Statistics, variance: float | Tensor) -> tuple[Posterior, Float[Tensor, ""]]:
        """The posterior, and the collapsed bound."""
        equations = self.normal_equations(statistics)
        weights, root = equations.solve(variance)
        return Posterior(variance, weights[:, None], root[None]), equations.bound(variance, weights, root)

    latents = 1

    def expected_log(
        self, mean: Float[Tensor, "n 1"], variance: Float[Tensor, "n 1"], targets: Float[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """E log p(t | f) over f ~ N(mean, variance)."""
        noise = torch.as_tensor(self.noise, dtype=torch.float64)
        misfit = (targets - mean[:, 0]).square() + variance[:, 0]
        return -0.5 * (LOG_2PI + noise.log() + misfit / noise)

    def sites(
        self, mean: Float[Tensor, "n 1"], variance: Float[Tensor, "n 1"], targets: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n 1"], Float[Tensor, "n 1"]]:
        """See `likelihoods.Likelihood`: here each target is its own site."""
        noise = torch.as_tensor(self.noise, dtype=torch.float64)
        slope = (targets[:, None] - mean) / noise
        return self.expected_log(mean, variance, targets), slope, (1 / noise).expand_as(mean)

    def predictive_log(
        self, mean: Float[Tensor, "n 1"], variance: Float[Tensor, "n 1"], targets: Float[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """Log density of the target, noise included."""
        total = variance[:, 0] + torch.as_tensor(self.noise, dtype=torch.float64)
        return -0.5 * (LOG_2PI + total.log() + (targets - mean[:, 0]).square() / total)

    def leave_one_out_logs(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        sample: ScoringBatch,
        draws: Float[Tensor, "draws 1"] | None = None,
    ) -> Float[Tensor, "n"]:
        """Log density of the target of each training signal, left out in its turn."""
        assert sample.targets is not None
        noise = torch.as_tensor(self.noise, dtype=torch.float64).expand_as(sample.targets)
        moments = self.normal_equations(statistics).moments(variance, sample.features)
        mean, spread = left_out(*moments, sample.targets / noise, 1 / noise)
        spread = spread + variance * sample.residual.clamp_min(0.0)
        return self.predictive_log(mean[:, None], spread[:, None], sample.targets)

    @classmethod
    def choose(
        cls,
        statistics: Statistics,
        size: float,
        *,
        noise: float | None = None,
        variance: float | None = None,
    ) -> SelectedModel[GaussianRegression]:
        """The noise and the GP variance with the largest collapsed bound; either may be given.

        `size` is the mean of Kff's diagonal. In the eigenbasis of ΦᵀΦ a bound costs O(M), and the best noise
        for a given ratio of variance to noise has a closed form, so one search over that ratio is enough.
        """
        if not size > 0:
            raise ValueError(
                "the prior variance of all signals is 0: the kernel, or the weights of its patches, are 0 at "
                "the training signals"
            )
        eigenvalues, basis = torch.linalg.eigh(statistics.gram.sum(dim=0))
        eigenvalues = eigenvalues.clamp_min(0.0)
        projected = (statistics.cross.sum(dim=0) @ basis).square()
        squares, residual = float(statistics.squares.sum()), max(0.0, float(statistics.residual.sum()))
        count = float(statistics.count.sum())
        floor = LEAST_NOISE * squares / count or 1e-12

        def settings(log_ratio: float) -> tuple[float, float]:
            ratio = 10**log_ratio / size
            if variance is not None:
                return variance / ratio if noise is None else noise, variance
            left = squares - ratio * float((projected / (1 + ratio * eigenvalues)).sum())
            best = max(left / count, floor) if noise is None else noise
            return best, ratio * best

        def loss(log_ratio: float) -> float:
            sigma2, s2 = settings(log_ratio)
            ratio = s2 / sigma2
            shrunk = 1 + ratio * eigenvalues
            fit = (squares - ratio * float((projected / shrunk).sum())) / sigma2
            log_determinant = float(shrunk.log().sum()) + count * (LOG_2PI + math.log(sigma2))
            return 0.5 * (log_determinant + fit + ratio * residual) / count

        coarse = min(RATIOS, key=loss)
        fine = minimize_scalar(loss, bounds=(coarse - 0.5, coarse + 0.5), method="bounded")
        sigma2, s2 = settings(float(fine.x))
        return SelectedModel(cls(sigma2), s2, float(fine.fun))
