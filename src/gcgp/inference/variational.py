"""Variational inference on features: natural gradient steps for q(v), each as cheap as a closed form.

Every observation is stood for by a Gaussian site for each latent function. A natural gradient step of size ρ
moves each site by ρ towards the one that fits the likelihood under the present posterior (the dual form:
Khan & Lin 2017; Adam et al. 2021), and the posterior follows as in regression with the sites as data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.posterior import Posterior

ROWS_AT_ONCE = 4096
LEAST_STEP = 1 / 64
"""A step that does not raise the bound is halved, down to this."""


@dataclass(frozen=True)
class Observed:
    """Signals by their features, and what was observed of them."""

    features: Float[Tensor, "N M"]
    residual: Float[Tensor, "N"]
    targets: Num[Tensor, "N"]

    def __len__(self) -> int:
        return len(self.targets)

    def runs(self) -> Iterator[slice]:
        """Slices of signals that are taken at once."""
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield slice(start, min(len(self), start + ROWS_AT_ONCE))


@dataclass(frozen=True)
class Sites:
    """For each signal and latent function a factor exp(linear·f − precision·f²/2)."""

    linear: Float[Tensor, "N C"]
    precision: Float[Tensor, "N C"]

    def towards(self, other: Sites, step: float) -> Sites:
        """The sites a part of the way to others."""
        return Sites(
            torch.lerp(self.linear, other.linear, step), torch.lerp(self.precision, other.precision, step)
        )

    def posterior(self, observed: Observed, variance: float) -> Posterior | None:
        """The prior times all sites; None if that is no Gaussian, as negative precisions may have it."""
        size, classes = observed.features.shape[1], self.linear.shape[1]
        roots = torch.empty(classes, size, size, dtype=torch.float64)
        weights = torch.empty(size, classes, dtype=torch.float64)
        cross = torch.zeros(size, classes, dtype=torch.float64)
        for run in observed.runs():
            cross.addmm_(observed.features[run].double().T, self.linear[run])
        for c in range(classes):
            gram = torch.eye(size, dtype=torch.float64)
            for run in observed.runs():
                rows = observed.features[run].double()
                gram.addmm_((rows * (variance * self.precision[run, c, None])).T, rows)
            root, failed = torch.linalg.cholesky_ex(gram)
            if failed:
                return None
            roots[c] = root
            weights[:, c] = torch.cholesky_solve(variance * cross[:, c, None], root)[:, 0]
        return Posterior(variance, weights, roots)


@dataclass(frozen=True)
class Fit:
    """Sites, the posterior that they make, its evidence lower bound, and where the sites should move."""

    sites: Sites
    posterior: Posterior
    bound: float
    """Σ E log p(y | f) − KL(q ‖ prior)."""
    aim: Sites


def fit_of(sites: Sites, observed: Observed, likelihood: Likelihood, variance: float) -> Fit | None:
    """The fit that sites make; None if they make no Gaussian posterior."""
    posterior = sites.posterior(observed, variance)
    if posterior is None:
        return None
    total, linear, precision = 0.0, [], []
    for run in observed.runs():
        mean, spread = posterior.predict(observed.features[run].double(), observed.residual[run].double())
        values, slope, curvature = likelihood.sites(mean, spread, observed.targets[run])
        total += float(values.sum())
        linear.append(slope + curvature * mean)
        precision.append(curvature)
    aim = Sites(torch.cat(linear), torch.cat(precision))
    bound = total - float(posterior.divergence())
    return Fit(sites, posterior, bound, aim) if np.isfinite(bound) else None


def natural_steps(
    fit: Fit,
    observed: Observed,
    likelihood: Likelihood,
    *,
    max_iter: int = 20,
    tolerance: float = 1e-5,
    tell: Callable[[Fit], None] = lambda fit: None,
) -> Fit:
    """Climb the bound from a fit by natural gradient steps, none of which lowers it.

    It ends after a full step that gains less than `tolerance` nats a signal.
    """
    step = 1.0
    for _ in range(max_iter):
        moved = None
        while step >= LEAST_STEP:
            moved = fit_of(
                fit.sites.towards(fit.aim, step), observed, likelihood, float(fit.posterior.variance)
            )
            if moved is not None and moved.bound >= fit.bound:
                break
            step, moved = step / 2, None
        if moved is None:
            break
        gain, fit = moved.bound - fit.bound, moved
        tell(fit)
        if gain < tolerance * len(observed) * step:
            break
        step = min(1.0, 2 * step)
    return fit
