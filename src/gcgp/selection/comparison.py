"""Comparison of models with different weightings by leave-one-out predictions of the same signals.

Every model has as many inducing patches, chosen with the same random numbers, and its own variance and
likelihood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.inference.collect import collect
from gcgp.inference.context import FitContext, Progress
from gcgp.inference.method import InferenceProblem
from gcgp.inference.search import SearchPoint, SelectedModel
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.options import ModelOptions
from gcgp.selection.term_specs import Lengthscales, TermSpec
from gcgp.selection.trial import Trial


@dataclass(frozen=True)
class Compared:
    """The score of a model."""

    logs: Float[Tensor, "n"]
    """Leave-one-out log likelihoods of the scored signals."""
    selected: SelectedModel[Any]
    """Its variance and likelihood."""
    next_start: SearchPoint
    """Where the search for variance and likelihood of a similar model should start."""

    @property
    def mean(self) -> float:
        """Nats per signal; the higher the better."""
        return float(self.logs.mean())


@dataclass(frozen=True)
class Comparison(ABC):
    """Signals, and with how many inducing patches they are modeled."""

    trial: Trial
    n_inducing: int
    """Per scale."""
    seed: int
    """Of the choice of inducing patches."""

    @abstractmethod
    def score(
        self, specs: Sequence[TermSpec], lengthscales: Sequence[Lengthscales], start: SearchPoint
    ) -> Compared:
        """The score of a model; the search for variance and likelihood begins at `start`."""

    def inducing(self, specs: Sequence[TermSpec], lengthscales: Sequence[Lengthscales]) -> list[Tensor]:
        """Inducing patches from the trial signals of the specs."""
        trial = replace(self.trial, n_inducing=self.n_inducing)
        return trial.inducing(specs, lengthscales, np.random.default_rng(self.seed))


@dataclass(frozen=True)
class TrialComparison(Comparison):
    """On the trial signals, of which the specs hold the patches."""

    count: int
    """The first trial signals are scored."""

    def score(
        self, specs: Sequence[TermSpec], lengthscales: Sequence[Lengthscales], start: SearchPoint
    ) -> Compared:
        """See `Comparison`."""
        result = self.trial.score(specs, lengthscales, self.inducing(specs, lengthscales), start)
        return Compared(result.held_out_logs(self.count), result.selected, result.next_start)


@dataclass(frozen=True)
class SampleComparison(Comparison):
    """On other training signals, with the patches of all of their vertices."""

    data: TrainingSet
    scored: Int[np.ndarray, "n"]
    """Ascending indices of the scored signals, which give no inducing patches."""
    options: ModelOptions
    context: FitContext

    def score(
        self, specs: Sequence[TermSpec], lengthscales: Sequence[Lengthscales], start: SearchPoint
    ) -> Compared:
        """See `Comparison`."""
        inducing = self.inducing(specs, lengthscales)
        parts = zip(specs, lengthscales, inducing, strict=True)
        collected = collect(
            InferenceProblem(
                data=self.data,
                terms=[spec.term(scales, patches) for spec, scales, patches in parts],
                columns=[spec.columns for spec in specs],
                constant=self.trial.constant,
                likelihood=self.options.likelihood,
                closed_form=self.trial.closed_form,
                variance=self.trial.variance,
                scored=self.scored,
                start=start,
                selected=None,
                learn=(),
                context=replace(
                    self.context, rng=np.random.default_rng(self.seed), progress=Progress(), checkpoint=None
                ),
            )
        )
        selected = collected.selected
        with torch.no_grad():
            logs = selected.likelihood.leave_one_out_logs(
                collected.statistics, selected.variance, collected.batch
            )
        return Compared(logs, selected, selected.at or start)
