"""The interface of inference methods: from the terms of a model and training signals to a posterior.

To add a method, write a subclass of `InferenceMethod` in a file of its own and register it in
`gcgp.inference.methods.METHODS`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from gcgp._runtime.options import Options
from gcgp.inference.context import FitContext
from gcgp.inference.features import Features, Term
from gcgp.inference.likelihoods import LIKELIHOODS, ClosedFormLikelihood, Likelihood
from gcgp.inference.posterior import Posterior
from gcgp.inference.search import SearchPoint, SelectedModel
from gcgp.inference.training_set import TrainingSet

OBJECTIVES = ("auto", "leave-one-out", "bound")
"""Scores by which models are compared."""


@dataclass(frozen=True)
class InferenceProblem:
    """What an inference method is given."""

    data: TrainingSet
    terms: Sequence[Term]
    columns: Sequence[Mapping[str, slice]]
    """For each term, which columns of its patches hold the bins, their counts and the position."""
    constant: float
    """Variance of a constant term of the kernel; see `Features`."""
    likelihood: Likelihood
    """The likelihood that the user has chosen."""
    closed_form: ClosedFormLikelihood
    """`Dirichlet` or `Gaussian`, with a parameter of `"auto"` where it is to be selected."""
    variance: float | None
    """Variance of the GP; None: to be selected."""
    scored: Int[np.ndarray, "m"]
    """Ascending indices of the training signals on which choices are scored."""
    start: SearchPoint
    """Where the search for variance and closed-form likelihood starts."""
    selected: SelectedModel[Any] | None
    """Result of the model selection, for methods with `learns_jointly`."""
    learn: Sequence[str]
    """Names of the parameters to learn, for methods with `learns_jointly`."""
    context: FitContext


@dataclass(frozen=True)
class InferenceResult:
    """The result of an inference method."""

    features: Features
    posterior: Posterior
    bound: float
    """Lower bound on the log marginal likelihood."""
    likelihood: Likelihood
    """Maps latent functions to predictions: `Softmax`, `RobustMax` or `Gaussian`."""
    closed_form: ClosedFormLikelihood
    """`Dirichlet` or `Gaussian` with its selected parameter."""
    attributes: Mapping[str, float] = field(default_factory=dict)
    """Further fitted attributes of the estimator, by name."""


class InferenceMethod(Options):
    """Base class of inference methods; see `InferenceProblem` and `InferenceResult`."""

    likelihoods: ClassVar[tuple[str, ...]]
    """Names of the likelihoods that it supports; the first that suits the task is the default."""
    learns_jointly: ClassVar[bool] = False
    """Whether it learns kernel parameters itself. Otherwise they are learned before."""
    constant_term: ClassVar[bool] = True
    """Whether the kernel may get a constant term (sums over signals of different sizes)."""

    def default_likelihood(self, task: str) -> Likelihood:
        """The likelihood of `likelihood="auto"`: the first supported one that suits the task."""
        return next(LIKELIHOODS[name]() for name in self.likelihoods if LIKELIHOODS[name].task == task)

    @abstractmethod
    def fit(self, problem: InferenceProblem) -> InferenceResult:
        """The posterior of the latent functions given all training signals."""
