"""Likelihoods with a closed-form posterior: observations are Gaussian targets of the latent functions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp._runtime.errors import check_positive
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.class_rows import ClassRows
from gcgp.inference.likelihoods.base import Likelihood
from gcgp.inference.likelihoods.softmax import normal_draws
from gcgp.inference.posterior import LOG_2PI, NormalEquations, Posterior, left_out, map_latents
from gcgp.inference.search import DEFAULT_START, FINE_STEPS, ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.shapes import Latent, Observed, PerSignal, Scalar
from gcgp.inference.statistics import Statistics

Draws = Float[Tensor, "draws C"]
SELECTION_DRAWS = 128
"""Draws for class probabilities in leave-one-out scores."""


class ClosedFormLikelihood(Likelihood):
    """Targets t = f + ε, where ε ~ N(0, σ²) and σ² may depend on signal and latent function.

    A subclass has one field, a positive number or `"auto"`, whose name is `parameter`.
    """

    parameter: ClassVar[str]

    @property
    def value(self) -> Any:
        """The parameter: a number, a tensor, or `"auto"`."""
        return getattr(self, self.parameter)

    def with_parameter(self, value: float | Scalar) -> ClosedFormLikelihood:
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
    def site_targets(self, observations: Observed, latents: int) -> tuple[Latent, Latent]:
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
        draws: Draws | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
        rows: ClassRows | None = None,
        limit: float = math.inf,
    ) -> SelectedModel[Any]:
        """Select the parameter if it is `"auto"`, and the variance of the GP if it is None.

        With `rows`, the features of all signals, classification may be much faster. If the loss at `start`
        exceeds `limit`, there is no search: the result is the start.
        """

    @abstractmethod
    def reached_bounds(self, at: SearchPoint) -> list[str]:
        """Names of the parameters that lie on a bound of the search, for a point of a `SelectedModel`."""

    @abstractmethod
    def predictive_log(
        self, mean: Latent, variance: Latent, targets: Observed, draws: Draws | None = None
    ) -> PerSignal:
        """log E p(y | f), with the given draws for class probabilities."""

    def sites(self, mean: Latent, variance: Latent, targets: Observed) -> tuple[PerSignal, Latent, Latent]:
        """See `Likelihood`, in closed form."""
        centers, noise = self.site_targets(targets, mean.shape[1])
        misfit = ((centers - mean).square() + variance) / noise
        values = -0.5 * (LOG_2PI + noise.log() + misfit).sum(dim=1)
        return values, (centers - mean) / noise, 1 / noise

    def expected_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """Σ_c E log N(t_c | f_c, σ²_c)."""
        return self.sites(mean, variance, targets)[0]

    def posterior(self, statistics: Statistics, variance: float | Tensor) -> Posterior:
        """The posterior of all latent functions."""
        return self.solve(statistics, variance)[0]

    def solve(self, statistics: Statistics, variance: float | Tensor) -> tuple[Posterior, Scalar]:
        """The posterior of all latent functions, and the collapsed bound."""
        equations, latents = self.normal_equations(statistics), self.latents(statistics)
        roots = statistics.gram.new_empty(latents, *statistics.gram.shape[1:])

        def solve_latent(latent: int) -> tuple[Tensor, Tensor]:
            system = equations(latent)
            weights, root = system.solve(variance, roots[latent])
            return weights, system.bound(variance, weights, root)

        weights, bounds = zip(*map_latents(solve_latent, range(latents)), strict=True)
        return Posterior(variance, torch.stack(weights, dim=1), roots), torch.stack(bounds).sum()

    def bound(self, statistics: Statistics, variance: float | Tensor) -> Scalar:
        """The collapsed bound on the log density of all targets; no factor is held longer than needed."""
        equations = self.normal_equations(statistics)

        def latent_bound(latent: int) -> Tensor:
            system = equations(latent)
            return system.bound(variance, *system.solve(variance))

        return torch.stack(map_latents(latent_bound, range(self.latents(statistics)))).sum()

    def leave_one_out_logs(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        batch: ScoringBatch,
        draws: Draws | None = None,
        processes: ProcessGroup = SINGLE_PROCESS,
        rows: ClassRows | None = None,
    ) -> PerSignal:
        """Log density of the observation of each signal of the batch given all other signals.

        From the sums over all signals or, if given, from their `rows`, of which the scored ones are those of
        the batch. Without rows, the latent functions are distributed over the processes.
        """
        latents, observed = self.latents(statistics), batch.observations(self.task)
        targets, noise = self.site_targets(observed, latents)
        moments = self._moments(statistics, variance, batch, processes, rows)
        mean, spread = left_out(*moments, targets / noise, 1 / noise)
        spread = spread + variance * batch.residual.clamp_min(0.0)[:, None]
        draws = normal_draws(latents, SELECTION_DRAWS) if draws is None else draws
        return self.predictive_log(mean, spread, observed, draws)

    def _moments(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        batch: ScoringBatch,
        processes: ProcessGroup,
        rows: ClassRows | None,
    ) -> tuple[Latent, Latent]:
        """Posterior mean and explained variance at the signals of the batch, from sums over all signals."""
        equations, latents = self.normal_equations(statistics), self.latents(statistics)

        def of_latent(latent: int) -> tuple[Tensor, Tensor]:
            return equations(latent).moments(variance, batch.features)

        processes = processes if processes.size <= latents else SINGLE_PROCESS
        moments = zip(*map_latents(of_latent, range(latents)[processes.share(latents)]), strict=True)
        mean, explained = (processes.concatenate(torch.stack(parts, dim=1), 1) for parts in moments)
        return mean, explained
