"""Stochastic variational inference as in the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gcgp._runtime.errors import check_integer, check_positive
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.features import Features
from gcgp.inference.likelihoods import ClosedFormLikelihood, Likelihood
from gcgp.inference.method import InferenceMethod, InferenceProblem, InferenceResult
from gcgp.inference.parameters import Parameters, frozen_term, log_priors, scalar_parameter, trainable_term
from gcgp.inference.prior_variances import PRIOR_VARIANCE_DRAWS
from gcgp.inference.svgp import (
    CachedFeatures,
    FreePosterior,
    RecomputedFeatures,
    Source,
    StochasticBound,
    adam,
)


@dataclass(eq=False, repr=False)
class SVGP(InferenceMethod):
    """Adam on q and all learned parameters, in batches of signals, from the prior.

    Args:
        batch_size: Signals per step.
        learning_rate: Of Adam.
        epochs: Passes over all signals.
    """

    batch_size: Any = 200
    learning_rate: Any = 1e-3
    epochs: Any = 50
    likelihoods = ("softmax", "robust-max", "gaussian")
    learns_jointly = True
    constant_term = False

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        check_integer("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate, auto=False)
        check_integer("epochs", self.epochs)

    def fit(self, problem: InferenceProblem) -> InferenceResult:
        """Stochastic optimization from the selected model."""
        data, context, selected = problem.data, problem.context, problem.selected
        assert selected is not None
        batch_size, epochs = min(int(self.batch_size), data.count), int(self.epochs)
        context.progress.stage("Adam", epochs * math.ceil(data.count / batch_size), "steps")
        context.history.stage = "svgp"
        seed = int(context.rng.integers(2**31))
        pairs = [
            trainable_term(term, problem.learn, columns)
            for term, columns in zip(problem.terms, problem.columns, strict=True)
        ]
        terms, of_terms = [term for term, _ in pairs], [part for _, parts in pairs for part in parts]
        closed_form, gaussian = selected.likelihood, isinstance(problem.likelihood, ClosedFormLikelihood)
        log_variance, log_parameter = (
            torch.tensor(np.log(value), dtype=torch.float64, requires_grad=True)
            for value in (selected.variance, closed_form.value)
        )
        scalars = {"variance": log_variance} | ({closed_form.parameter: log_parameter} if gaussian else {})
        scalar_parts = [scalar_parameter(name, log) for name, log in scalars.items() if name in problem.learn]
        features = Features(terms, context.memory, context.device)
        posterior = FreePosterior.prior(features.size, data.groups, log_variance, terms[0].inducing.dtype)

        def step_likelihood(step: int) -> Likelihood:
            if gaussian:
                return closed_form.with_parameter(log_parameter.exp())
            return problem.likelihood.resampled(seed + step)

        bound = StochasticBound(
            posterior,
            _source(features, problem, seed, cached=not of_terms),
            step_likelihood,
            data,
            lambda: log_priors([term.kernel for term in terms]),
        )
        adam(
            bound,
            Parameters(of_terms + scalar_parts),
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=float(self.learning_rate),
            seed=seed,
            history=context.history,
            checkpoint=context.checkpoint,
            report=context.progress.update,
        )
        if gaussian:
            closed_form = closed_form.with_parameter(float(log_parameter.detach().exp()))
        return InferenceResult(
            Features([frozen_term(term) for term in terms], context.memory, context.device),
            posterior.to_posterior(),
            context.history.steps[-1].value * data.count,
            (closed_form if gaussian else problem.likelihood).predictive(),
            closed_form,
        )


def _source(features: Features, problem: InferenceProblem, seed: int, cached: bool) -> Source:
    """Features of batches: recomputed if they depend on what is learned."""
    data, memory = problem.data, problem.context.memory
    if not cached:
        return RecomputedFeatures(features, data.signals, PRIOR_VARIANCE_DRAWS, seed, data.first)
    dataset = FeatureDataset.allocate(features.size, data, torch.float64, memory)
    for chunk in features.chunks(data.signals, draws=PRIOR_VARIANCE_DRAWS, seed=seed, first=data.first):
        dataset.fill(chunk)
    return CachedFeatures(dataset)
