"""The pass over all training signals that most inference methods begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gcgp.inference.class_rows import ClassRows
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.features import Features
from gcgp.inference.method import InferenceProblem
from gcgp.inference.prior_variances import PRIOR_VARIANCE_DRAWS
from gcgp.inference.search import DEFAULT_START, FINE_STEPS, ScoringBatch, SelectedModel
from gcgp.inference.statistics import Statistics


@dataclass(frozen=True)
class Collected:
    """Features of the training signals in the forms that inference needs, and the selected model."""

    features: Features
    statistics: Statistics
    batch: ScoringBatch
    """The signals on which choices are scored."""
    dataset: FeatureDataset | None
    """All signals."""
    selected: SelectedModel[Any]
    """Variance and closed-form likelihood."""


def collect(
    problem: InferenceProblem, *, keep_features: bool = False, exact_variances: bool = False
) -> Collected:
    """One pass over the signals, then the selection of variance and closed-form likelihood.

    `keep_features` stores the features of all signals. Without `exact_variances`, prior variances of large
    signals that are not scored are estimated, which suffices where only their sum counts.
    """
    data, context = problem.data, problem.context
    features = Features(problem.terms, context.memory, context.device, problem.constant)
    context.progress.stage("features", len(data.signals))
    statistics = Statistics.empty(data.groups, features.size)
    dataset = None
    if keep_features:
        dataset = FeatureDataset.allocate(features.size, data, context.dtype, context.memory)
    seed = int(context.rng.integers(2**31))
    scored = data.local(problem.scored)
    parts: list[ScoringBatch] = []
    kept: list[Tensor] = []
    counts = torch.bincount(data.group, minlength=data.groups).double()
    small = data.processes.size == 1 and ClassRows.worthwhile(counts, features.size, len(scored))
    for chunk in features.chunks(
        data.signals,
        draws=None if exact_variances else PRIOR_VARIANCE_DRAWS,
        seed=seed,
        first=data.first,
        exact=scored,
        progress=context.progress.update,
    ):
        run, group, targets = chunk.run, data.group[chunk.run], data.targets[chunk.run]
        statistics.add(chunk.features, group, targets, chunk.unexplained)
        if dataset is not None:
            dataset.fill(chunk)
        if small:
            kept.append(chunk.features)
        assert chunk.diagonal is not None
        rows = scored[(scored >= run.start) & (scored < run.stop)] - run.start
        everything = ScoringBatch(chunk.features, chunk.unexplained, chunk.diagonal, group, targets)
        parts.append(everything.take(torch.from_numpy(rows)))
    statistics.reduce(data.processes)
    batch = ScoringBatch.concatenate(parts, data.processes, features.size)
    context.progress.stage("variance")
    rows = None
    if kept:
        rows = ClassRows.build(torch.cat(kept), data.group, data.groups, torch.from_numpy(scored))
    selected = problem.closed_form.select(
        statistics,
        batch,
        variance=problem.variance,
        start=problem.start,
        # The result of a search with fewer inducing patches is close to the best.
        steps=FINE_STEPS if problem.start == DEFAULT_START else FINE_STEPS[-1:],
        processes=data.processes,
        rows=rows,
    )
    return Collected(features, statistics, batch, dataset, selected)
