"""Closed-form classification: labels as Gaussian targets (Milios et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.posterior import LOG_2PI, NormalEquations, Posterior, left_out, map_latents
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel, pattern_search
from gcgp.inference.softmax import expected_softmax
from gcgp.inference.statistics import Statistics

START = (3.0, 3.25)
"""log10 of the prior variance of a typical signal, and log2 of the noise variance of other classes' targets.

The latter stands for α_ε: targets lie about 1.5 times as far apart, so it says how sure one may become.
"""
COARSE_STEPS = ((0.5, 0.25),)
FINE_STEPS = ((0.5, 0.25), (0.25, 0.125))
"""The least losses lie along a narrow diagonal: larger steps stop beside it."""
ALPHA = 0.01
"""α_ε where there is nothing to choose it by, as in Milios et al."""
LEAST_LOG_NOISE, MOST_LOG_NOISE = math.log2(math.log(2)), 5.0
"""For α_ε of 1, and of 1.3e-14."""
MOST_LOG_VARIANCE = 8.0
SURPRISES = 0.1
"""So many signals are thought to have been predicted wrongly beside those that were."""
SEARCHED = 1_000
"""Directions in which a search is done where there are more than twice as many features."""


def alpha_of(noise: float) -> float:
    """The α_ε for which the targets of classes that are not a signal's own have this noise variance.

    >>> round(alpha_of(math.log(1 / 0.01 + 1)), 9)
    0.01
    """
    return 1 / math.expm1(noise)


def cautious_loss(logs: Float[Tensor, "n"]) -> float:
    """Mean negative log probability of the right class, with a small part of a signal that was wrong.

    Where all are right, the mean alone is the less the surer they are, without end; that few signals are
    right does not show so much.

    >>> sure, surer = torch.tensor([[0.99, 0.99], [1 - 1e-9, 1 - 1e-9]], dtype=torch.float64).log()
    >>> cautious_loss(sure) < cautious_loss(surer)
    True
    """
    wrong = torch.log1p(-logs.exp()).clamp_min(math.log(1e-12)).mean()
    return -float((logs.sum() + SURPRISES * wrong) / (len(logs) + SURPRISES))


@dataclass(frozen=True)
class DirichletClassification:
    """Targets log α − σ²/2 with noise σ² = log(1/α + 1), where α = α_ε, plus 1 for the true class.

    Each class has two kinds of signals, its own and the others, so the sums over each class
    (`Statistics` grouped by class, all targets 1) hold all that the C posteriors need.
    A constant that is the same for all classes is taken off the targets: it changes no probability, and it
    lets the latent functions start from a mean of zero.
    """

    alpha: float | Float[Tensor, ""]
    """α_ε."""

    def level(self, own: bool) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Target and noise variance of a signal of the class, or of another one."""
        alpha = torch.as_tensor(self.alpha, dtype=torch.float64) + own
        noise = torch.log1p(1 / alpha)
        return alpha.log() - noise / 2, noise

    def offset(self, classes: int) -> Float[Tensor, ""]:
        """Mean target over balanced classes."""
        return (self.level(True)[0] + (classes - 1) * self.level(False)[0]) / classes

    def targets(
        self, labels: Int[Tensor, "n"], classes: int
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Centered target and noise variance of every signal for every class."""
        own = torch.nn.functional.one_hot(labels, classes).bool()
        (t1, n1), (t0, n0) = self.level(True), self.level(False)
        own = own.double()
        return own * t1 + (1 - own) * t0 - self.offset(classes), own * n1 + (1 - own) * n0

    def normal_equations(self, statistics: Statistics) -> Callable[[int], NormalEquations]:
        """What the class of a given number learns from all signals."""
        count = statistics.count
        (t1, n1), (t0, n0) = self.level(True), self.level(False)
        every, more = statistics.gram.sum(dim=0) / n0, 1 / n1 - 1 / n0
        offset = self.offset(len(count))

        def of_class(label: int) -> NormalEquations:
            own = torch.zeros(len(count), dtype=torch.float64)
            own[label] = 1.0
            target = own * t1 + (1 - own) * t0 - offset
            precision = own / n1 + (1 - own) / n0
            return NormalEquations(
                gram=torch.addcmul(every, statistics.gram[label], more),
                cross=(precision * target) @ statistics.cross,
                squares=(precision * target.square()) @ count,
                residual=(precision @ statistics.residual).clamp_min(0.0),
                log_noise=(LOG_2PI - precision.log()) @ count,
            )

        return of_class

    def posterior(self, statistics: Statistics, variance: float | Tensor) -> Posterior:
        """The posteriors of all classes."""
        return self.solved(statistics, variance)[0]

    def solved(self, statistics: Statistics, variance: float | Tensor) -> tuple[Posterior, Float[Tensor, ""]]:
        """The posteriors of all classes, and the collapsed bound on their targets."""
        equations = self.normal_equations(statistics)

        def of_class(label: int) -> tuple[Tensor, Tensor, Tensor]:
            own = equations(label)
            weights, root = own.solve(variance)
            return weights, root, own.bound(variance, weights, root)

        weights, roots, bounds = zip(*map_latents(of_class, range(len(statistics.count))), strict=True)
        return Posterior(variance, torch.stack(weights, dim=1), torch.stack(roots)), torch.stack(bounds).sum()

    def bound(self, statistics: Statistics, variance: float | Tensor) -> Float[Tensor, ""]:
        """The collapsed bound on the targets of all classes."""
        equations = self.normal_equations(statistics)

        def of_class(label: int) -> Tensor:
            own = equations(label)
            return own.bound(variance, *own.solve(variance))

        return torch.stack(map_latents(of_class, range(len(statistics.count)))).sum()

    @classmethod
    @torch.no_grad()
    def choose(
        cls,
        statistics: Statistics,
        sample: ScoringBatch,
        draws: Float[Tensor, "draws C"],
        *,
        alpha: float | None = None,
        variance: float | None = None,
        start: SearchPoint = START,
        steps: Sequence[SearchPoint] = FINE_STEPS,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> SelectedModel[DirichletClassification]:
        """α_ε and the variance with the least `cautious_loss` of left out signals; either may be given.

        `start` is as `START`. A signal that is the only one
        of its class is not left out: nothing would be left to know it by. If all are, the variance is
        chosen by the collapsed bound, and α_ε is 0.01. Several processes take some of the classes each.
        With many features the search is done in the directions in which signals differ most, and only α_ε is
        then looked for in all.
        """
        size = float(sample.diagonal.mean())
        assert sample.labels is not None
        sample = sample.of(statistics.count[sample.labels] > 1)
        if len(sample.features) == 0 and alpha is None:
            alpha = ALPHA
        if float(statistics.count.sum()) < statistics.cross.shape[1]:
            # Fewer signals than features span few directions: everything below is cheaper in these.
            basis = statistics.span()
            statistics, sample = statistics.along(basis), sample.along(basis)

        def at(point: tuple[float, ...]) -> tuple[DirichletClassification, float]:
            likelihood = cls(alpha_of(2 ** point[1]) if alpha is None else alpha)
            return likelihood, 10 ** point[0] / size if variance is None else variance

        def search(
            statistics: Statistics, sample: ScoringBatch, start: SearchPoint, steps: Sequence[SearchPoint]
        ) -> SelectedModel[Any]:
            def loss(point: SearchPoint) -> float:
                likelihood, s2 = at(point)
                if alpha is None and not LEAST_LOG_NOISE <= point[1] <= MOST_LOG_NOISE:
                    return math.inf
                if variance is None and abs(point[0]) > MOST_LOG_VARIANCE:
                    return math.inf
                if len(sample.features) == 0:
                    return -float(likelihood.bound(statistics, s2)) / max(float(statistics.count.sum()), 1.0)
                return cautious_loss(likelihood.leave_one_out_logs(statistics, s2, sample, draws, processes))

            free = (variance is None, alpha is None)
            moves = [tuple(s * f for s, f in zip(step, free, strict=True)) for step in steps]
            best, value = pattern_search(loss, start, moves if any(free) else [])
            return SelectedModel(*at(best), value, best)

        if sample.features.shape[1] > 2 * SEARCHED:
            basis = statistics.principal(SEARCHED)
            start = search(statistics.along(basis), sample.along(basis), start, steps).at
            steps = [(0.0, step[1]) for step in steps if step[1]]
        return search(statistics, sample, start, steps)

    def leave_one_out_logs(
        self,
        statistics: Statistics,
        variance: float | Tensor,
        sample: ScoringBatch,
        draws: Float[Tensor, "draws C"],
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> Float[Tensor, "n"]:
        """Log probability of the label of each training signal, left out in its turn.

        No class's factor is held longer than needed. Several processes take some of the classes each.
        """
        labels = sample.labels
        assert labels is not None
        equations, classes = self.normal_equations(statistics), draws.shape[1]
        targets, noise = self.targets(labels, classes)

        def of_class(label: int) -> tuple[Tensor, Tensor]:
            t, n = targets[:, label], noise[:, label]
            return left_out(*equations(label).moments(variance, sample.features), t / n, 1 / n)

        processes = processes if processes.size <= classes else SINGLE_PROCESS
        moments = map_latents(of_class, range(classes)[processes.share(classes)])
        mean, spread = (processes.concatenate(torch.stack(parts, dim=1), 1) for parts in zip(*moments, strict=True))
        spread = spread + variance * sample.residual.clamp_min(0.0)[:, None]
        chosen = expected_softmax(mean, spread, draws).gather(1, labels[:, None])[:, 0]
        return chosen.clamp_min(1e-12).log()
