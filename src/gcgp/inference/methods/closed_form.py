"""Inference in closed form: Dirichlet targets in classification, Gaussian noise in regression."""

from __future__ import annotations

from dataclasses import dataclass

from gcgp.inference.collect import collect
from gcgp.inference.method import InferenceMethod, InferenceProblem, InferenceResult


@dataclass(eq=False, repr=False)
class ClosedForm(InferenceMethod):
    """The exact posterior of the Bayesian linear model on features."""

    likelihoods = ("dirichlet", "gaussian")

    def fit(self, problem: InferenceProblem) -> InferenceResult:
        """One pass over the signals, then one Cholesky factor per latent function."""
        collected = collect(problem)
        likelihood = collected.selected.likelihood
        posterior, bound = likelihood.solve(collected.statistics, collected.selected.variance)
        return InferenceResult(
            collected.features, posterior, float(bound), likelihood.predictive(), likelihood
        )
