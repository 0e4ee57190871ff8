"""What learning is given, what it returns, and what each training signal is used for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gcgp.inference.context import FitContext
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.comparison import Comparison, SampleComparison, TrialComparison
from gcgp.selection.options import Learn, ModelOptions
from gcgp.selection.term_specs import Lengthscales, TermSpec
from gcgp.selection.trial import InducingPatches, Trial

INDUCING_SHARE = 0.2
"""Share of the trial signals that give inducing patches; the objective is scored on others."""
CHECK_SIGNALS = 3_000
"""Signals on which results are compared, with all inducing patches; at most half of them are held out."""
MAX_CHECK_PATCHES = 3_000_000
"""If fewer signals than the trial signals have as many patches, models are compared on trial signals only."""
HELD_OUT_SHARE = 0.25
"""Largest share of the training signals that are held out from the objective."""


@dataclass(frozen=True)
class LearnConfig:
    """The signals to learn from, and how."""

    data: TrainingSet
    trial_rows: Int[np.ndarray, "n"]
    """Indices of the trial signals in `data`; the first of them are scored."""
    trial: Trial
    options: ModelOptions
    learn: Learn
    held_out: int
    """The first trial signals are not part of the objective; they decide whether learning was worthwhile."""
    n_inducing: int
    context: FitContext

    @property
    def parameter(self) -> str:
        """Name of the parameter of the closed-form likelihood."""
        return str(self.trial.closed_form.parameter)

    @property
    def names(self) -> list[str]:
        """Names of the parameters to learn."""
        return self.options.free(self.learn.names(self.parameter))

    def all_inducing(self, model: LearnedModel) -> int:
        """Inducing patches per scale of the final model."""
        return self.options.inducing_per_scale(len(model.specs))


@dataclass(frozen=True)
class LearnedModel:
    """Terms and hyperparameters reached so far."""

    specs: Sequence[TermSpec]
    lengthscales: Sequence[Lengthscales]
    variance: float
    noise: float
    """Parameter of the closed-form likelihood."""
    inducing: InducingPatches | None = None
    """Inducing patches, if these were learned."""


@dataclass(frozen=True)
class Division:
    """What each training signal is used for, by index."""

    held_out: Int[np.ndarray, "h"]
    """Not part of the objective; decide between models."""
    objective: Int[np.ndarray, "n"]
    inducing: Int[np.ndarray, "g"]
    """Give inducing patches."""
    max_compared: int
    """Most signals of a comparison."""
    trial_only: bool
    """Whether all of them are trial signals."""

    @classmethod
    def of(cls, config: LearnConfig, vertices: float) -> Division:
        """A random division of signals with this mean number of vertices."""
        trial, count = config.trial_rows, config.data.count
        scored = max(1, int((1 - INDUCING_SHARE) * len(trial)))
        rest = np.setdiff1d(np.arange(count), trial)
        affordable = int(MAX_CHECK_PATCHES / max(vertices, 1.0))
        rest = config.context.rng.permutation(rest if affordable > len(trial) else rest[:0])
        most = min(CHECK_SIGNALS // 2, int(HELD_OUT_SHARE * count))
        extra = min(max(0, most - config.held_out), len(rest))
        return cls(
            np.concatenate([trial[: config.held_out], rest[:extra]]),
            np.concatenate([trial[config.held_out : scored], rest[extra:]]),
            trial[scored:],
            affordable,
            len(rest) == 0,
        )

    def comparison(self, config: LearnConfig, size: int, n_inducing: int, *, held_out: bool) -> Comparison:
        """Models of about `size` signals, compared by the held-out or by the other ones."""
        seed = int(config.context.rng.integers(2**31))
        if self.trial_only:
            return TrialComparison(config.trial, n_inducing, seed, config.held_out)
        scored, others = self.objective, self.held_out[:0]
        if held_out:
            scored, others = self.held_out, self.objective
        rows = np.concatenate([scored, others])[: min(size, self.max_compared) - len(self.inducing)]
        data = config.data.subset(np.concatenate([rows, self.inducing]))
        scored_rows = np.arange(min(len(scored), len(rows)))
        return SampleComparison(
            config.trial, n_inducing, seed, data, scored_rows, config.options, config.context
        )

    def objective_data(self, data: TrainingSet, size: int) -> tuple[TrainingSet, Int[Tensor, "n"]]:
        """About `size` signals, and the indices of those that are scored."""
        before = self.held_out if self.trial_only else self.held_out[:0]
        scored = self.objective[: max(1, size - len(before) - len(self.inducing))]
        rows = np.concatenate([before, scored, self.inducing])
        return data.subset(rows), torch.arange(len(before), len(before) + len(scored))
