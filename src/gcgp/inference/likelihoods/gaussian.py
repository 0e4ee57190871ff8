"""Closed-form regression with Gaussian noise (Titsias 2009)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import minimize_scalar

from gcgp.inference.likelihoods.closed_form import ClosedFormLikelihood, Draws
from gcgp.inference.posterior import LOG_2PI, NormalEquations, left_out
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.shapes import Latent, Observed, PerSignal, Scalar
from gcgp.inference.statistics import Statistics

LOG10_VARIANCE_RATIOS = [step / 2 for step in range(-8, 19)]
"""log10 of prior variance over noise at which the search starts."""
MIN_NOISE_SHARE = 1e-8
"""Noise is at least this share of the mean square of the targets."""


@dataclass(eq=False, repr=False)
class Gaussian(ClosedFormLikelihood):
    """Targets t = f + ε with noise ε ~ N(0, `noise`).

    Args:
        noise: Variance of the noise. `"auto"`: selected by the leave-one-out density.

    >>> mean = torch.zeros(1, 1, dtype=torch.float64)
    >>> Gaussian(0.5).predictive_log(mean, 0.5 + mean, mean[:, 0]).numpy().round(4)
    array([-0.9189])
    """

    noise: Any = "auto"
    name = "gaussian"
    task = "regression"
    parameter = "noise"

    def latents(self, statistics: Statistics) -> int:
        """1; groups of `statistics` count together."""
        return 1

    def site_targets(self, observations: Observed, latents: int) -> tuple[Latent, Latent]:
        """The targets and the noise."""
        return observations[:, None], self._noise.expand_as(observations)[:, None]

    def normal_equations(self, statistics: Statistics) -> Callable[[int], NormalEquations]:
        """See `ClosedFormLikelihood`."""
        noise = self._noise
        equations = NormalEquations(
            gram=statistics.gram.sum(dim=0) / noise,
            cross=statistics.cross.sum(dim=0) / noise,
            squares=statistics.squares.sum() / noise,
            residual=statistics.residual.sum().clamp_min(0.0) / noise,
            log_noise=statistics.count.sum() * (LOG_2PI + noise.log()),
        )
        return lambda latent: equations

    def predictive_log(
        self, mean: Latent, variance: Latent, targets: Observed, draws: Draws | None = None
    ) -> PerSignal:
        """Log density of the target, noise included; no draws are needed."""
        total = variance[:, 0] + self._noise
        return -0.5 * (LOG_2PI + total.log() + (targets - mean[:, 0]).square() / total)

    @torch.no_grad()
    def select(
        self, statistics: Statistics, batch: ScoringBatch, *, variance: float | None = None, **_: Any
    ) -> SelectedModel[Gaussian]:
        """The noise and variance with the largest leave-one-out density of the targets of the batch.

        In the eigenbasis of ΦᵀΦ a score costs O(nM), and the best noise for a given ratio of variance to
        noise has a closed form, so one search over that ratio is enough. Other arguments are ignored.
        """
        size, noise = float(batch.diagonal.mean()), None if isinstance(self.noise, str) else float(self.noise)
        if not size > 0:
            raise ValueError(
                "the prior variance of all signals is 0: the kernel, or the weights of its patches, are 0 at "
                "the training signals"
            )
        assert batch.targets is not None
        eigenvalues, basis = torch.linalg.eigh(statistics.gram.sum(dim=0))
        eigenvalues = eigenvalues.clamp_min(0.0)
        cross, rows = statistics.cross.sum(dim=0) @ basis, batch.features @ basis
        targets, residual = batch.targets, batch.residual.clamp_min(0.0)
        mean_square = float(statistics.squares.sum() / statistics.count.sum())
        min_noise = MIN_NOISE_SHARE * mean_square or 1e-12

        def left_out_at(ratio: float) -> tuple[PerSignal, PerSignal]:
            """Squared leave-one-out errors, and variances of the targets relative to the noise."""
            shrunk = ratio / (1 + ratio * eigenvalues)
            mean, spread = left_out(
                rows @ (shrunk * cross), rows.square() @ shrunk, targets, torch.ones_like(targets)
            )
            return (targets - mean).square(), 1 + spread + ratio * residual

        def model_at(log_ratio: float) -> tuple[float, float]:
            ratio = 10**log_ratio / size
            if variance is not None:
                return variance / ratio if noise is None else noise, variance
            if noise is None:
                squares, spread = left_out_at(ratio)
                best = max(float((squares / spread).mean()), min_noise)
            else:
                best = noise
            return best, ratio * best

        def loss(log_ratio: float) -> float:
            sigma2, s2 = model_at(log_ratio)
            squares, spread = left_out_at(s2 / sigma2)
            variances = sigma2 * spread
            return float(0.5 * (LOG_2PI + variances.log() + squares / variances).mean())

        coarse = min(LOG10_VARIANCE_RATIOS, key=loss)
        fine = minimize_scalar(loss, bounds=(coarse - 0.5, coarse + 0.5), method="bounded")
        sigma2, s2 = model_at(float(fine.x))
        return SelectedModel(Gaussian(sigma2), s2, float(fine.fun), (coarse,))

    def reached_bounds(self, at: SearchPoint) -> list[str]:
        """`variance`, if it is as large or as small relative to the noise as the search allows."""
        return ["variance"] if at[0] in (LOG10_VARIANCE_RATIOS[0], LOG10_VARIANCE_RATIOS[-1]) else []

    @property
    def _noise(self) -> Scalar:
        assert not isinstance(self.noise, str), "noise has to be selected first"
        return torch.as_tensor(self.noise, dtype=torch.float64)
