"""Means of latent functions that a softmax has moved, beside the covariances of the closed form.

Least squares attends to signals that are told with ease as much as to those that are not. A softmax beside
its targets (`Anchored`) attends to the latter, and the more so the larger its weight. Where only the means
move, a step takes N·M·C operations instead of the N·M²·C of a natural step, and the factors of the closed
form make the problem so round that a few steps are enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from torch import Tensor

from gcgp.inference.dirichlet import DirichletClassification, cautious_loss
from gcgp.inference.likelihoods import Anchored, Softmax
from gcgp.inference.natural_gradient import FeatureDataset
from gcgp.inference.posterior import Posterior, map_latents
from gcgp.inference.search import ScoringBatch
from gcgp.inference.statistics import Statistics

WEIGHTS = (0.0, 8.0, 32.0, 128.0, 512.0, 2048.0)
"""Of the softmax beside the targets. The first is the closed form."""
DRAWS = 16
"""Behind an expected log softmax. Its mean over signals is all that counts, so few are enough."""
MOST_HELD_OUT = 0.2
"""Share of the signals that are held out at once."""
MOST_STEPS = 30
TOLERANCE = 1e-7
"""Steps end when one gains less than this share of the objective."""


@dataclass(frozen=True)
class RefinementConfig:
    """How a softmax pulls at the means."""

    weight: float
    """One of `WEIGHTS`."""
    spread: float
    """What stands for the variances of all latent functions at all signals."""


@dataclass(frozen=True)
class Refinement:
    """The closed form of these signals, and what is asked of its means."""

    observed: FeatureDataset
    statistics: Statistics
    closed: DirichletClassification
    variance: float

    def chosen(
        self,
        scored: Int[Tensor, "n"],
        sample: ScoringBatch,
        tell: Callable[[float], None] = lambda value: None,
    ) -> RefinementConfig:
        """The weight for which held out signals have the least `cautious_loss`.

        They are the sample, whose signals have the numbers `scored`; prior variances of all others may be
        estimates. `tell` hears of their log likelihood in closed form, and then with the chosen weight. If
        none can be held out, it is the closed form.
        """
        assert sample.labels is not None
        folds = [self._held_out(scored[held], sample.of(held)) for held in self._folds(sample.labels)]
        if not folds:
            return RefinementConfig(0.0, 0.0)
        losses = [cautious_loss(logs) for logs in torch.cat([logs for logs, _ in folds], dim=1)]
        best = int(np.argmin(losses))
        tell(-losses[0])
        tell(-losses[best])
        return RefinementConfig(WEIGHTS[best], float(np.mean([spread for _, spread in folds])))

    def of_all(self, closed: Posterior, pull: RefinementConfig) -> Posterior:
        """The closed form of all signals, its means moved by them all."""
        every = torch.ones(len(self.observed), dtype=torch.bool)
        up_to = WEIGHTS[: WEIGHTS.index(pull.weight) + 1]
        *_, posterior = self._path(closed, pull.spread, every, up_to)
        return posterior

    def _folds(self, labels: Int[Tensor, "n"]) -> Iterator[Int[Tensor, "m"]]:
        """Places of the signals that are held out together, classes dealt evenly.

        A signal stays in if its class would be left with none.
        """
        count, order = self.statistics.count, torch.argsort(labels, stable=True)
        folds = max(1, math.ceil(len(labels) / (MOST_HELD_OUT * self.observed.count)))
        for fold in range(folds):
            held = order[fold::folds]
            left = count - torch.bincount(labels[held], minlength=len(count))
            held = held[left[labels[held]] > 0]
            if len(held):
                yield held

    def _held_out(
        self, numbers: Int[Tensor, "m"], sample: ScoringBatch
    ) -> tuple[Float[Tensor, "weights m"], float]:
        """For each weight the log probabilities of the held out signals, and their mean variance."""
        assert sample.labels is not None
        posterior = self.closed.posterior(self._without(sample), self.variance)
        _, variance = posterior.predict(sample.features, sample.residual.clamp_min(0.0))
        counted = torch.ones(len(self.observed), dtype=torch.bool)
        counted[self.observed.own(numbers)] = False
        softmax, spread = Softmax(variance.shape[1]), float(variance.mean())
        logs = [
            softmax.predictive_log(moved.mean(sample.features), variance, sample.labels)
            for moved in self._path(posterior, spread, counted, WEIGHTS)
        ]
        return torch.stack(logs), spread

    def _without(self, sample: ScoringBatch) -> Statistics:
        """Those of all signals but these."""
        assert sample.labels is not None
        held = Statistics.empty(*self.statistics.cross.shape)
        held.add(sample.features, sample.labels, torch.ones_like(sample.residual), sample.residual)
        return self.statistics.without(held)

    def _path(
        self, posterior: Posterior, spread: float, counted: Bool[Tensor, "N"], weights: tuple[float, ...]
    ) -> Iterator[Posterior]:
        """The posteriors for each weight, each from where the one before has led; the first is the given one.

        `spread` stands for the variances of all latent functions at all signals.
        """
        softmax = Softmax(len(self.statistics.count), DRAWS)
        yield posterior
        for weight in weights[1:]:
            posterior = self._moved(posterior, Anchored(softmax, self.closed, weight), spread, counted)
            yield posterior

    def _moved(
        self, posterior: Posterior, likelihood: Anchored, spread: float, counted: Bool[Tensor, "N"]
    ) -> Posterior:
        """Means that maximize the expected log likelihood of the signals that count, less the divergence."""
        observed, roots = self.observed, posterior.roots
        scale, count = self.variance**0.5, observed.count

        def colored(white: Float[np.ndarray, "MC"]) -> Float[Tensor, "M C"]:
            """Weights from coordinates in which their posterior under the closed form is round."""
            columns = torch.from_numpy(white).reshape(len(roots), -1, 1).unbind()
            solved = map_latents(
                lambda pair: torch.linalg.solve_triangular(pair[0].T, scale * pair[1], upper=True),
                list(zip(roots, columns, strict=True)),
            )
            return torch.cat(solved, dim=1)

        def loss(white: Float[np.ndarray, "MC"]) -> tuple[float, Float[np.ndarray, "MC"]]:
            weights = colored(white)
            total = torch.zeros((), dtype=torch.float64)
            gradient = torch.zeros_like(weights)
            for run in observed.runs():
                rows, member = observed.features[run], counted[run].double()
                mean = (rows @ weights.to(rows.dtype)).double()
                values, slope, _ = likelihood.sites(
                    mean, torch.full_like(mean, spread), observed.targets[run]
                )
                total += values @ member
                gradient += (rows.T @ (slope * member[:, None]).to(rows.dtype)).double()
            observed.total(total)
            observed.total(gradient)
            total -= 0.5 * weights.square().sum() / self.variance
            gradient -= weights / self.variance
            pulled = map_latents(
                lambda pair: torch.linalg.solve_triangular(pair[0], scale * pair[1][:, None], upper=False),
                list(zip(roots, gradient.T, strict=True)),
            )
            return -float(total) / count, (torch.cat(pulled).flatten() / -count).numpy()

        start = (
            torch.stack(map_latents(lambda c: roots[c].T @ posterior.weights[:, c], range(len(roots))))
            / scale
        )
        found = minimize(
            loss,
            start.flatten().numpy(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": MOST_STEPS, "ftol": TOLERANCE},
        )
        return replace(posterior, weights=colored(found.x))
