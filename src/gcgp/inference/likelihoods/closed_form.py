"""Likelihoods with a closed-form posterior: observations are Gaussian targets of the latent functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor

from gcgp._runtime.errors import check_positive
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.likelihoods.base import Likelihood, SiteMoments
from gcgp.inference.posterior import LOG_2PI, NormalEquations, Posterior, left_out, map_latents
from gcgp.inference.search import DEFAULT_START, FINE_STEPS, ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.statistics import Statistics


class ClosedFormLikelihood(Likelihood):
    """Targets t = f + ε, where ε ~ N(0, σ²) and σ² may depend on signal and latent function.

    A subclass has one field, a positive number or `"auto"`, whose name is `parameter`.
    """

    parameter: ClassVar[str]

    @property
    def value(self) -> Any:
        """The parameter: a number, a tensor, or `"auto"`."""
        return getattr(self, self.parameter)

    def with_parameter(self, value: float | Float[Tensor, ""]) -> ClosedFormLikelihood:
        """The same likelihood with another parameter, which may be a tensor with gradients."""
        return type(self)(value)

    def validate(self) -> None:
        """Raise a ValueError if the parameter is neither positive nor `"auto"`."""
        check_positive(self.parameter, self.value)

    def closed_form(self) -> ClosedFormLikelihood:
        """This likelihood."""
        return self

    @abstractmethod
    def latents(self, statistics: Statistics) -> int:
        """Number of latent functions."""

    @abstractmethod
    def site_targets(
        self, observations: Num[Tensor, "n"], latents: int
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Target and noise variance of each signal for each latent function."""

    @abstractmethod
    def normal_equations(self, statistics: Statistics) -> Callable[[int], NormalEquations]:
        """A function from the index of a latent function to its normal equations."""

    @abstractmethod
    def select(
        self,
        statistics: Statistics,
        batch: ScoringBatch,
        *,
        variance: float | None = None,
        start: SearchPoint = DEFAULT_START,
        steps: Sequence[SearchPoint] = FINE_STEPS,
        draws: Float[Tensor, "draws C"] | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> SelectedModel[Any]:
        """Select the parameter if it is `"auto"`, and the variance of the GP if it is None."""

    @abstractmethod
    def leave_one_out_logs(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        batch: ScoringBatch,
        draws: Float[Tensor, "draws C"] | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> Float[Tensor, "n"]:
        """Log predictive density of each signal of the batch, leave-one-out."""

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> SiteMoments:
        """See `Likelihood`, in closed form."""
        centers, noise = self.site_targets(targets, mean.shape[1])
        misfit = ((centers - mean).square() + variance) / noise
        values = -0.5 * (LOG_2PI + noise.log() + misfit).sum(dim=1)
        return values, (centers - mean) / noise, 1 / noise

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """Σ_c E log N(t_c | f_c, σ²_c)."""
        return self.sites(mean, variance, targets)[0]

    def posterior(self, statistics: Statistics, variance: float | Tensor) -> Posterior:
        """The posterior of all latent functions."""
        return self.solve(statistics, variance)[0]

    def solve(self, statistics: Statistics, variance: float | Tensor) -> tuple[Posterior, Float[Tensor, ""]]:
        """The posterior of all latent functions, and the collapsed bound."""
        equations = self.normal_equations(statistics)

        def solve_latent(latent: int) -> tuple[Tensor, Tensor, Tensor]:
            system = equations(latent)
            weights, root = system.solve(variance)
            return weights, root, system.bound(variance, weights, root)

        solved = map_latents(solve_latent, range(self.latents(statistics)))
        weights, roots, bounds = zip(*solved, strict=True)
        return Posterior(variance, torch.stack(weights, dim=1), torch.stack(roots)), torch.stack(bounds).sum()

    def bound(self, statistics: Statistics, variance: float | Tensor) -> Float[Tensor, ""]:
        """The collapsed bound on the log density of all targets; no factor is held longer than needed."""
        equations = self.normal_equations(statistics)

        def latent_bound(latent: int) -> Tensor:
            system = equations(latent)
            return system.bound(variance, *system.solve(variance))

        return torch.stack(map_latents(latent_bound, range(self.latents(statistics)))).sum()

    def leave_one_out(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        batch: ScoringBatch,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Mean and variance of f at each signal of the batch given all other signals.

        The latent functions are distributed over the processes.
        """
        equations, latents = self.normal_equations(statistics), self.latents(statistics)
        targets, noise = self.site_targets(batch.observations(self.task), latents)

        def leave_out(latent: int) -> tuple[Tensor, Tensor]:
            t, n = targets[:, latent], noise[:, latent]
            return left_out(*equations(latent).moments(variance, batch.features), t / n, 1 / n)

        processes = processes if processes.size <= latents else SINGLE_PROCESS
        moments = map_latents(leave_out, range(latents)[processes.share(latents)])
        mean, spread = (
            processes.concatenate(torch.stack(parts, dim=1), 1) for parts in zip(*moments, strict=True)
        )
        return mean, spread + variance * batch.residual.clamp_min(0.0)[:, None]
