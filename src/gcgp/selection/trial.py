"""Scoring a candidate model on trial signals: a small closed-form model of a part of the training signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.memory import runs
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference import Features, Statistics, Term
from gcgp.inference.class_rows import ClassRows
from gcgp.inference.features import CPU, RUN_BYTES, Chunk
from gcgp.inference.search import COARSE_STEPS, DEFAULT_START, ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.term_specs import Lengthscales, TermSpec

InducingPatches = Sequence[Float[Tensor, "_ _"]]
"""Inducing patches `[M, dim]` of each term."""


@dataclass(frozen=True)
class Trial:
    """Trial signals, and how models of them are scored."""

    data: TrainingSet
    """The trial signals, all of them in every process."""
    closed_form: Any
    """`Dirichlet` or `Gaussian`; a parameter of `"auto"` is selected."""
    variance: float | None
    """Variance of the GP; None: selected."""
    n_inducing: int
    inducing_method: str
    pooled_inducing: int | None = None
    """Inducing patches of terms that pool signals, if not `n_inducing`: these cost little per patch."""
    constant: float = 0.0
    """Variance of the constant term of the kernel; see `Features`."""
    processes: ProcessGroup = SINGLE_PROCESS
    """Processes that share the work."""
    device: torch.device = CPU
    progress: Callable[[int], None] = lambda count: None

    @property
    def left_out(self) -> int:
        """Number of trial signals that can be left out: all but the only signals of their classes."""
        members = torch.bincount(self.data.group)
        return len(self.data.group) if self.data.groups == 1 else int((members[self.data.group] > 1).sum())

    def inducing(
        self, specs: Sequence[TermSpec], lengthscales: Sequence[Lengthscales], rng: np.random.Generator
    ) -> list[Tensor]:
        """Inducing patches for each spec.

        One set serves all lengthscales that are compared: with other patches the losses would be noisy.
        """
        pooled = self.pooled_inducing or self.n_inducing
        return [
            spec.inducing(
                scales,
                pooled if spec.convolution.pooled else self.n_inducing,
                self.inducing_method,
                rng,
            )
            for spec, scales in zip(specs, lengthscales, strict=True)
        ]

    def score(
        self,
        specs: Sequence[TermSpec],
        lengthscales: Sequence[Lengthscales],
        inducing: InducingPatches,
        start: SearchPoint = DEFAULT_START,
        limit: float = math.inf,
    ) -> TrialResult:
        """Fit the model in closed form and select variance and likelihood, from `start`.

        If the loss at `start` exceeds `limit`, they are not searched.
        """
        terms = [
            spec.term(scales, patches)
            for spec, scales, patches in zip(specs, lengthscales, inducing, strict=True)
        ]
        local = self.processes.share(len(self.data.signals))
        group, targets = self.data.group[local], self.data.targets[local]
        chunk = self._features(terms, specs, local)
        assert chunk.diagonal is not None
        statistics = Statistics.empty(self.data.groups, chunk.features.shape[1])
        statistics.add(chunk.features, group, targets, chunk.unexplained)
        statistics.reduce(self.processes)
        batch = ScoringBatch.concatenate(
            [ScoringBatch(chunk.features, chunk.unexplained, chunk.diagonal, group, targets)],
            self.processes,
            chunk.features.shape[1],
        ).take(torch.arange(specs[0].scored))
        selected = self.closed_form.select(
            statistics,
            batch,
            variance=self.variance,
            start=start,
            steps=COARSE_STEPS,
            processes=self.processes,
            rows=self._rows(chunk, statistics, len(batch.features)),
            limit=limit,
        )
        self.progress(1)
        return TrialResult(statistics, batch, selected)

    def _rows(self, chunk: Chunk, statistics: Statistics, scored: int) -> ClassRows | None:
        """The features of all signals, if the search for variance and likelihood is faster with them."""
        size = chunk.features.shape[1]
        if self.processes.size > 1 or not ClassRows.worthwhile(statistics.count, size, scored):
            return None
        return ClassRows.build(chunk.features, self.data.group, self.data.groups, torch.arange(scored))

    def _features(self, terms: Sequence[Term], specs: Sequence[TermSpec], signals: slice) -> Chunk:
        """Features of some trial signals, in runs of bounded memory because kernels copy patches."""
        features = Features(terms, 0, self.device, self.constant)
        patches = [spec.trial for spec in specs]
        elements = sum(trial.offsets.diff() * trial.values.shape[1] for trial in patches)
        cost = 8.0 * np.asarray(elements)[signals]
        parts = []
        for run in runs(cost, RUN_BYTES):
            rows = slice(signals.start + run.start, signals.start + run.stop)
            parts.append(features.of_patches([trial[rows] for trial in patches], rows))
        return Chunk.concatenate(parts)


@dataclass(frozen=True)
class TrialResult:
    """The score of a candidate model."""

    statistics: Statistics
    batch: ScoringBatch
    selected: SelectedModel[Any]
    """Likelihood and variance, with their loss."""

    @property
    def loss(self) -> float:
        """Nats per signal; the lower the better."""
        return self.selected.loss

    @property
    def next_start(self) -> SearchPoint:
        """Where the search for likelihood and variance of a similar model should start."""
        return self.selected.at or DEFAULT_START

    def held_out_logs(self, count: int) -> Float[Tensor, "count"]:
        """Leave-one-out log likelihoods of the first trial signals."""
        return self.logs(torch.arange(count))

    def logs(self, scored: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Leave-one-out log likelihoods of some of the scored signals."""
        batch = self.batch.take(scored)
        logs: Tensor = self.selected.likelihood.leave_one_out_logs(
            self.statistics, self.selected.variance, batch
        )
        return logs
