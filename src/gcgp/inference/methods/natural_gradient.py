"""Variational inference by natural gradient steps from the closed form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gcgp._runtime.errors import check_choice
from gcgp.inference.collect import Collected, collect
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.likelihoods import Anchored, ClosedFormLikelihood, Likelihood, Softmax
from gcgp.inference.method import OBJECTIVES, InferenceMethod, InferenceProblem, InferenceResult
from gcgp.inference.natural_gradient import Fit, Sites, leave_one_out_score, search_and_fit
from gcgp.inference.search import SearchPoint
from gcgp.inference.statistics import Statistics

LOG4_WEIGHT_START, LOG4_WEIGHT_STEP, LOG4_WEIGHT_RANGE = 1.5, 1.0, (-0.5, 2.5)
"""Search for the weight of the softmax; beyond 32, leave-one-out likelihoods are too optimistic."""
LOG10_VARIANCE_STEPS = (0.5, 0.25)
"""Search for the variance of the GP."""
MAX_DECADES_OF_VARIANCE = {"bound": 4.0, "leave-one-out": 1.0}
"""How far it may be from that of the closed form; without errors, leave-one-out has no optimum."""
MAX_LEFT_OUT_SIGNALS = 4_000
"""Signals of a leave-one-out score."""
MAX_START_SIGNALS = 500
"""Signals on which possible starts of the steps are compared."""
START_ALPHAS = (1e-3, 1e-2)
"""α_ε of closed forms from which the steps may start, beside the selected one."""


@dataclass(eq=False, repr=False)
class NaturalGradient(InferenceMethod):
    """Natural gradient steps from the closed form, on the features of all signals.

    With an `Anchored` likelihood its weight is searched if it is `"auto"`. With another class likelihood the
    variance of the GP is searched again, unless it is given: the best value is not that of the closed form.

    Args:
        objective: The score of these searches, `"leave-one-out"` or `"bound"`; `"auto"` is the former. With
            `"bound"`, the default likelihood is `Softmax()` instead of `Anchored()`, whose bounds are not
            comparable between weights.
    """

    objective: Any = "auto"
    likelihoods = ("anchored", "softmax", "robust-max", "gaussian")

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        check_choice("objective", self.objective, OBJECTIVES)

    def default_likelihood(self, task: str) -> Likelihood:
        """See `InferenceMethod`."""
        if task == "classification" and self.objective == "bound":
            return Softmax()
        return super().default_likelihood(task)

    def fit(self, problem: InferenceProblem) -> InferenceResult:
        """Features of all signals, the closed form, then natural gradient steps."""
        collected = collect(problem, keep_features=True, exact_variances=True)
        dataset, closed = collected.dataset, collected.selected.likelihood
        assert dataset is not None
        context = problem.context
        context.progress.stage("natural gradient steps")
        context.history.stage = "natural-gradient"
        order = context.rng.permutation(dataset.count)
        scored = torch.from_numpy(np.sort(order[: min(MAX_LEFT_OUT_SIGNALS, dataset.count)]))
        search = self._search(problem, collected, dataset, scored)

        def score(fit: Fit) -> float:
            if search.by_bound:
                return fit.bound / dataset.count
            return leave_one_out_score(fit, dataset, search.scored_likelihood, scored)

        fit = search_and_fit(
            Sites.of_closed_form(search.closed_form, dataset, problem.data.groups),
            dataset,
            search.model_at,
            score,
            search.start,
            search.steps,
            report=context.history.add,
            checkpoint=context.checkpoint,
        )
        chosen = closed if isinstance(problem.likelihood, ClosedFormLikelihood) else problem.likelihood
        return InferenceResult(collected.features, fit.posterior, fit.bound, chosen.predictive(), closed)

    def _search(
        self,
        problem: InferenceProblem,
        collected: Collected,
        dataset: FeatureDataset,
        scored: Int[Tensor, "n"],
    ) -> _Search:
        """Which models are compared, depending on the likelihood."""
        likelihood, closed = problem.likelihood, collected.selected.likelihood
        variance, by_bound = collected.selected.variance, self.objective == "bound"
        if isinstance(likelihood, ClosedFormLikelihood):
            return _Search(closed, closed, lambda point: (closed, variance))
        if isinstance(likelihood, Anchored):
            anchored, softmax = replace(likelihood, alpha=closed.alpha), likelihood.predictive()
            if likelihood.weight != "auto":
                return _Search(closed, softmax, lambda point: (anchored, variance))

            def weighted(point: SearchPoint) -> tuple[Likelihood, float] | None:
                if not LOG4_WEIGHT_RANGE[0] <= point[0] <= LOG4_WEIGHT_RANGE[1]:
                    return None
                return replace(anchored, weight=4.0 ** point[0]), variance

            return _Search(closed, softmax, weighted, (LOG4_WEIGHT_START,), [(LOG4_WEIGHT_STEP,)])
        compared = scored[torch.from_numpy(problem.context.rng.permutation(len(scored))[:MAX_START_SIGNALS])]
        start = best_start(closed, dataset, compared, collected.statistics, likelihood, variance)
        max_decades = MAX_DECADES_OF_VARIANCE["bound" if by_bound else "leave-one-out"]

        def with_variance(point: SearchPoint) -> tuple[Likelihood, float] | None:
            return (likelihood, variance * 10 ** point[0]) if abs(point[0]) <= max_decades else None

        steps = [(size,) for size in LOG10_VARIANCE_STEPS] if problem.variance is None else ()
        return _Search(start, likelihood, with_variance, (0.0,), steps, by_bound)


@dataclass(frozen=True)
class _Search:
    """The models that are compared, and how."""

    closed_form: ClosedFormLikelihood
    """Its targets are the first sites."""
    scored_likelihood: Likelihood
    model_at: Callable[[SearchPoint], tuple[Likelihood, float] | None]
    start: SearchPoint = (0.0,)
    steps: Sequence[SearchPoint] = ()
    by_bound: bool = False


def best_start(
    closed_form: ClosedFormLikelihood,
    dataset: FeatureDataset,
    compared: Int[Tensor, "n"],
    statistics: Statistics,
    likelihood: Likelihood,
    variance: float,
) -> ClosedFormLikelihood:
    """The closed form whose posterior has the largest evidence lower bound, estimated from some signals."""

    def bound(candidate: ClosedFormLikelihood) -> float:
        posterior = candidate.posterior(statistics, variance)
        rows = dataset.local(compared)
        mean, spread = posterior.predict(*dataset.rows(rows))
        logs = likelihood.expected_log(mean, spread, dataset.observations[rows])
        fit = dataset.reduce(logs.sum()) / len(compared)
        return float(fit - posterior.divergence() / dataset.count)

    return max([closed_form, *map(closed_form.with_parameter, START_ALPHAS)], key=bound)
