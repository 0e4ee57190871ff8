"""Likelihoods that have no closed form: what an observation says of latent functions known up to a Gaussian.

A likelihood gives the mean of log p(y | f) over f ~ N(mean, diag(variance)), and from its derivatives the
Gaussian site that stands for the observation: a natural gradient step takes the sites as if they were data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from gcgp.inference.dirichlet import DirichletClassification
from gcgp.inference.posterior import LOG_2PI
from gcgp.inference.softmax import expected_softmax, normal_draws

ROWS_AT_ONCE = 2048
SOFTMAX_DRAWS = 256
"""Quasi-random draws behind an expected log softmax; see `Softmax` for how exact that is."""


@runtime_checkable
class Likelihood(Protocol):
    """What variational inference asks of a likelihood with C latent functions."""

    @property
    def latents(self) -> int:
        """C."""
        ...

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """E log p(y | f), differentiable in mean and variance."""
        ...

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """E log p(y | f), its derivative by the mean, and minus twice that by the variance."""
        ...

    def predictive_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """log E p(y | f)."""
        ...


@dataclass(frozen=True)
class Softmax:
    """p(y | f) = softmax(f)_y, by quasi Monte Carlo with the same draws for every signal.

    With 256 draws for ten classes the mean over signals is exact to about 1e-3 nats where the standard
    deviations of f are about 1, and a bound is then a smooth function that can be climbed.
    """

    latents: int
    draws: int = SOFTMAX_DRAWS
    seed: int = 0

    @cached_property
    def normals(self) -> Float[Tensor, "draws C"]:
        """The draws: half of them, and their opposites."""
        half = normal_draws(self.latents, max(1, self.draws // 2), self.seed)
        return torch.cat([half, -half])

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """E log softmax(f)_y."""
        parts = []
        for rows in torch.split(torch.arange(len(mean)), ROWS_AT_ONCE):
            latent = mean[rows, None, :] + variance[rows, None, :].sqrt() * self.normals
            own = mean[rows].gather(1, targets[rows, None])[:, 0]
            parts.append(own - torch.logsumexp(latent, dim=-1).mean(dim=1))
        return torch.cat(parts) if parts else mean.new_zeros(0)

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """The second derivatives are means of p(1 − p), so that sites are never of negative precision."""
        own = torch.nn.functional.one_hot(targets, self.latents).to(mean.dtype)
        values, chances, spreads = [], [], []
        for rows in torch.split(torch.arange(len(mean)), ROWS_AT_ONCE):
            latent = mean[rows, None, :] + variance[rows, None, :].sqrt() * self.normals
            logs = torch.logsumexp(latent, dim=-1, keepdim=True)
            p = latent.sub_(logs).exp_()
            values.append((own[rows] * mean[rows]).sum(dim=1) - logs.mean(dim=(1, 2)))
            chances.append(p.mean(dim=1))
            spreads.append(chances[-1] - p.square_().mean(dim=1))
        return torch.cat(values), own - torch.cat(chances), torch.cat(spreads)

    def probabilities(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"]
    ) -> Float[Tensor, "n C"]:
        """E softmax(f)."""
        return expected_softmax(mean, variance, normal_draws(self.latents))

    def predictive_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """Log probability of the target."""
        chosen = self.probabilities(mean, variance).gather(1, targets[:, None])[:, 0]
        return chosen.clamp_min(1e-12).log()


@dataclass(frozen=True)
class Anchored:
    """Softmax to a power, times the Gaussian targets of the closed form: softmax(f)_yᵇ N(t_y | f, σ²_y).

    Under a softmax alone most signals soon say nothing more, and few are left to learn from; the targets
    keep every signal at work, as in least squares. Weight b = 0 is the closed form itself.
    """

    softmax: Softmax
    closed: DirichletClassification
    weight: float

    @property
    def latents(self) -> int:
        """One for each class."""
        return self.softmax.latents

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """The sum of both parts, without the constant that would make probabilities of it."""
        centers, noise = self.closed.targets(targets, self.latents)
        misfit = ((centers - mean).square() + variance) / noise
        anchor = -0.5 * (LOG_2PI + noise.log() + misfit).sum(dim=1)
        return self.weight * self.softmax.expected_log(mean, variance, targets) + anchor

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """The sums of both parts'."""
        centers, noise = self.closed.targets(targets, self.latents)
        values, slope, precision = self.softmax.sites(mean, variance, targets)
        misfit = ((centers - mean).square() + variance) / noise
        anchor = -0.5 * (LOG_2PI + noise.log() + misfit).sum(dim=1)
        return (
            self.weight * values + anchor,
            self.weight * slope + (centers - mean) / noise,
            self.weight * precision + 1 / noise,
        )

    def probabilities(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"]
    ) -> Float[Tensor, "n C"]:
        """E softmax(f)."""
        return self.softmax.probabilities(mean, variance)

    def predictive_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """Log probability of the target."""
        return self.softmax.predictive_log(mean, variance, targets)


@dataclass(frozen=True)
class RobustMax:
    """The label is that of the largest latent function, but for a chance `epsilon` of any other one.

    Chances are Gauss–Hermite sums. `floor` keeps each factor of a product of chances away from zero, where
    its derivative would be lost; it is what GPflow does.
    """

    latents: int
    epsilon: float = 1e-3
    points: int = 20
    floor: float = 1e-6

    @cached_property
    def quadrature(self) -> tuple[Float[Tensor, "points"], Float[Tensor, "points"]]:
        """Nodes and weights for the mean over a standard normal."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(self.points)
        return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())

    def largest(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """The chance that the latent function of the target is the largest."""
        nodes, weights = self.quadrature
        deviation = variance.clamp_min(1e-10).sqrt()
        own = torch.nn.functional.one_hot(targets, self.latents).bool()
        parts = []
        for rows in torch.split(torch.arange(len(mean)), ROWS_AT_ONCE):
            center, spread, chosen = mean[rows], deviation[rows], own[rows]
            level = center[chosen][:, None] + spread[chosen][:, None] * nodes
            below = torch.special.ndtr((level[:, None, :] - center[:, :, None]) / spread[:, :, None])
            below = below * (1 - 2 * self.floor) + self.floor
            parts.append(below.masked_fill(chosen[:, :, None], 1.0).prod(dim=1) @ weights)
        return torch.cat(parts) if parts else mean.new_zeros(0)

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """The two values of log p(y | f), each by its chance."""
        chance = self.largest(mean, variance, targets)
        right, wrong = math.log1p(-self.epsilon), math.log(self.epsilon / max(1, self.latents - 1))
        return chance * right + (1 - chance) * wrong

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """By automatic differentiation; precisions may be negative, because log p is not concave."""
        leaves = mean.detach().requires_grad_(), variance.detach().requires_grad_()
        with torch.enable_grad():
            values = self.expected_log(*leaves, targets)
            by_mean, by_variance = torch.autograd.grad(values.sum(), leaves)
        return values.detach(), by_mean, -2 * by_variance

    def probabilities(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"]
    ) -> Float[Tensor, "n C"]:
        """Of every class; they are brought to a sum of one, which quadrature misses by a little."""
        labels = torch.arange(self.latents)
        each = [self.largest(mean, variance, label.expand(len(mean))) for label in labels]
        chance = torch.stack(each, dim=1)
        chance = chance / chance.sum(dim=1, keepdim=True)
        wrong = self.epsilon / max(1, self.latents - 1)
        return chance * (1 - self.epsilon) + (1 - chance) * wrong

    def predictive_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """Log probability of the target."""
        chosen = self.probabilities(mean, variance).gather(1, targets[:, None])[:, 0]
        return chosen.clamp_min(1e-12).log()
