"""Closed-form classification: labels as Gaussian targets (Milios et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.class_rows import ClassRows
from gcgp.inference.likelihoods.base import target_logs
from gcgp.inference.likelihoods.closed_form import ClosedFormLikelihood, Draws
from gcgp.inference.likelihoods.softmax import Softmax, expected_softmax, normal_draws
from gcgp.inference.posterior import LOG_2PI, NormalEquations
from gcgp.inference.search import (
    DEFAULT_START,
    FINE_STEPS,
    ONE_LABEL_MODE,
    ScoringBatch,
    SearchPoint,
    SelectedModel,
    pattern_search,
)
from gcgp.inference.shapes import Latent, Observed, PerSignal, Scalar
from gcgp.inference.statistics import Statistics

LOG2_NOISE_RANGE = -0.5, 4.5
"""α_ε from 1 down to 1.5e-10."""
LOG10_VARIANCE_RANGE = -4.0, 6.0
PRIOR_STD: SearchPoint = (1.0, 1.2)
"""Standard deviations of the prior at the point of the search, whose mode is `DEFAULT_START`.

The prior variance and α_ε that predict new signals best vary as much between small tasks with digits,
letters, molecules and proteins. Few signals cannot select them without a prior.
"""
ERROR_PSEUDO_COUNT = 0.5
"""Pseudo-count of misclassified signals, that of Jeffreys' prior; limits confidence."""
SEARCH_DIRECTIONS = 1_000
"""With more than twice as many features, the search is done in the principal directions only."""


def alpha_of(noise: float) -> float:
    """The α_ε for which the targets of the classes that a signal does not belong to have this noise variance.

    >>> round(alpha_of(math.log(1 / 0.01 + 1)), 9)
    0.01
    """
    return 1 / math.expm1(noise)


def cautious_loss(logs: PerSignal) -> float:
    """Mean negative log probability of the true class, with a pseudo-count of misclassified signals.

    Without errors, the mean alone can be reduced indefinitely by overconfidence.

    >>> sure, surer = torch.tensor([[0.99, 0.99], [1 - 1e-9, 1 - 1e-9]], dtype=torch.float64).log()
    >>> cautious_loss(sure) < cautious_loss(surer)
    True
    """
    wrong = torch.log1p(-logs.exp()).clamp_min(math.log(1e-12)).mean()
    return -float((logs.sum() + ERROR_PSEUDO_COUNT * wrong) / (len(logs) + ERROR_PSEUDO_COUNT))


@dataclass(eq=False, repr=False)
class Dirichlet(ClosedFormLikelihood):
    """Targets log α − σ²/2 with noise σ² = log(1/α + 1), where α = α_ε, plus 1 for the true class.

    There are two targets per class, so `Statistics` grouped by class, with all targets 1, determine the C
    posteriors. The mean over balanced classes is subtracted from the targets: it changes no probability, and
    latent functions then have a prior mean of zero.

    Args:
        alpha: α_ε; the smaller, the further apart the targets. `"auto"`: selected by the
            leave-one-out likelihood.
    """

    alpha: Any = "auto"
    name = "dirichlet"
    task = "classification"
    parameter = "alpha"

    def level(self, true_class: bool) -> tuple[Scalar, Scalar]:
        """Target and noise variance for the class of a signal, or for another class."""
        assert not isinstance(self.alpha, str), "alpha has to be selected first"
        alpha = torch.as_tensor(self.alpha, dtype=torch.float64) + true_class
        noise = torch.log1p(1 / alpha)
        return alpha.log() - noise / 2, noise

    def offset(self, classes: int) -> Scalar:
        """Mean target over balanced classes."""
        return (self.level(True)[0] + (classes - 1) * self.level(False)[0]) / classes

    def latents(self, statistics: Statistics) -> int:
        """Number of classes."""
        return len(statistics.count)

    def site_targets(self, observations: Observed, latents: int) -> tuple[Latent, Latent]:
        """Centered target and noise variance of each signal for each class."""
        member = torch.nn.functional.one_hot(observations, latents).double()
        (t1, n1), (t0, n0) = self.level(True), self.level(False)
        return member * t1 + (1 - member) * t0 - self.offset(latents), member * n1 + (1 - member) * n0

    def normal_equations(self, statistics: Statistics) -> Callable[[int], NormalEquations]:
        """See `ClosedFormLikelihood`."""
        count = statistics.count
        (t1, n1), (t0, n0) = self.level(True), self.level(False)
        shared, extra = statistics.gram.sum(dim=0) / n0, 1 / n1 - 1 / n0
        offset = self.offset(len(count))

        def of_class(label: int) -> NormalEquations:
            member = torch.zeros(len(count), dtype=torch.float64)
            member[label] = 1.0
            target = member * t1 + (1 - member) * t0 - offset
            precision = member / n1 + (1 - member) / n0
            return NormalEquations(
                gram=torch.addcmul(shared, statistics.gram[label], extra),
                cross=(precision * target) @ statistics.cross,
                squares=(precision * target.square()) @ count,
                residual=(precision @ statistics.residual).clamp_min(0.0),
                log_noise=(LOG_2PI - precision.log()) @ count,
            )

        return of_class

    def _moments(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        batch: ScoringBatch,
        processes: ProcessGroup,
        rows: ClassRows | None,
    ) -> tuple[Latent, Latent]:
        """See `ClosedFormLikelihood`; from the features of all signals if these are given."""
        if rows is None:
            return super()._moments(statistics, variance, batch, processes, rows)
        (t1, n1), (t0, n0) = self.level(True), self.level(False)
        offset = self.offset(rows.classes)
        return rows.moments(float(variance), (t1 - offset, t0 - offset), (n1, n0))

    @torch.no_grad()
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
    ) -> SelectedModel[Dirichlet]:
        """The most probable α_ε and variance, by the leave-one-out probabilities and a prior.

        The loss of probabilities is `cautious_loss`. The only signal of a class is not left out; if that
        leaves no signal, the prior decides alone. With many features both are searched in the principal
        directions, and then α_ε alone in all directions.
        """
        assert batch.labels is not None
        kept = statistics.count[batch.labels] > 1
        batch = batch.take(kept)
        if rows is not None:
            rows = replace(rows, scored=rows.scored[kept])
        alpha = None if isinstance(self.alpha, str) else self.alpha
        unit = statistics.contrast()
        if rows is None and float(statistics.count.sum()) < statistics.cross.shape[1]:
            # Fewer signals than features: all sums fit into the subspace that the signals span.
            basis = statistics.span()
            statistics, batch = statistics.along(basis), batch.along(basis)
        free = (variance is None, alpha is None)
        modes = DEFAULT_START if len(batch.features) else ONE_LABEL_MODE
        bounds = (LOG10_VARIANCE_RANGE, LOG2_NOISE_RANGE)

        def model_at(point: SearchPoint) -> tuple[Dirichlet, float]:
            likelihood = Dirichlet(alpha_of(2 ** point[1]) if alpha is None else alpha)
            gap = float(likelihood.level(True)[0] - likelihood.level(False)[0])
            return likelihood, 10 ** point[0] * gap**2 / unit if variance is None else variance

        def penalty(point: SearchPoint) -> float:
            """Negative log density of the prior."""
            return sum(
                0.5 * ((x - mode) / std) ** 2 if is_free else 0.0
                for x, mode, std, is_free in zip(point, modes, PRIOR_STD, free, strict=True)
            )

        def search(
            statistics: Statistics, batch: ScoringBatch, start: SearchPoint, steps: Sequence[SearchPoint]
        ) -> SelectedModel[Dirichlet]:
            def loss(point: SearchPoint) -> float:
                if any(
                    is_free and not low <= x <= high
                    for x, (low, high), is_free in zip(point, bounds, free, strict=True)
                ):
                    return math.inf
                if len(batch.features) == 0:
                    return penalty(point)
                likelihood, s2 = model_at(point)
                logs = likelihood.leave_one_out_logs(statistics, s2, batch, draws, processes, rows)
                return cautious_loss(logs) + penalty(point) / len(logs)

            moves = [tuple(s * f for s, f in zip(step, free, strict=True)) for step in steps]
            best, value = pattern_search(
                loss, start, moves if any(free) else [], diagonals=False, limit=limit
            )
            return SelectedModel(*model_at(best), value, best)

        if rows is None and batch.features.shape[1] > 2 * SEARCH_DIRECTIONS:
            basis = statistics.principal(SEARCH_DIRECTIONS)
            start = search(statistics.along(basis), batch.along(basis), start, steps).at
            steps = [(0.0, step[1]) for step in steps if step[1]]
        return search(statistics, batch, start, steps)

    def reached_bounds(self, at: SearchPoint) -> list[str]:
        """`variance` or `alpha`, unless the latter is given."""
        ranges = {"variance": LOG10_VARIANCE_RANGE} | (
            {"alpha": LOG2_NOISE_RANGE} if isinstance(self.alpha, str) else {}
        )
        return [name for (name, bounds), x in zip(ranges.items(), at, strict=False) if x in bounds]

    def predictive_log(
        self, mean: Latent, variance: Latent, targets: Observed, draws: Draws | None = None
    ) -> PerSignal:
        """Log probability of the label."""
        draws = normal_draws(mean.shape[1]) if draws is None else draws
        return target_logs(expected_softmax(mean, variance, draws), targets)

    def probabilities(self, mean: Latent, variance: Latent) -> Latent:
        """E softmax(f)."""
        return self.predictive().probabilities(mean, variance)

    def predictive(self) -> Softmax:
        """A softmax."""
        return Softmax()
