"""Lengthscales and the worth of position, tried on a part of the training signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference import Features, Statistics, Term
from gcgp.inference.dirichlet import COARSE_STEPS, START
from gcgp.inference.features import CPU, RUN_BYTES, Chunk
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel, pattern_search
from gcgp.patches.convolution import runs
from gcgp.selection.term_specs import Lengthscales, TermSpec

Loss = Callable[[Sequence[TermSpec], Sequence[Lengthscales]], float]

FIRST_MULTIPLIER = -1.0
"""log2 of the lengthscale over the median distance of patches, where the search for it starts."""
MULTIPLIER_STEP = 0.5
POSITION_STEP = 1.0
OCTAVE_MUST_GAIN = 0.01
"""Below the median distance a lengthscale is halved only for this gain (nats a signal), not for noise."""
MOST_OCTAVES = 4.0
"""No lengthscale is more than this far from the median distance."""
POSITION_MUST_GAIN = 0.01
"""Location is kept if it lowers the loss by this much (nats a signal)."""


@dataclass(frozen=True)
class Tuned:
    """Drafts, with position or without, and the lengthscales of each."""

    drafts: Sequence[TermSpec]
    lengthscales: Sequence[Lengthscales]


def tune(
    drafts: Sequence[TermSpec], lengthscale: float | str, position: bool | float | str, loss: Loss
) -> Tuned:
    """The lengthscales with the least loss; with position "auto", also whether position counts.

    `lengthscale` and `position` are the estimator's options: what is given as a number is not searched.
    """
    named = isinstance(drafts[0].kernel, str)
    free_bins = MULTIPLIER_STEP if named and lengthscale == "auto" else 0.0
    free_location = POSITION_STEP if named and isinstance(position, (bool, str)) else 0.0

    def scales(drafts: Sequence[TermSpec], point: SearchPoint) -> list[Lengthscales]:
        every = [draft.lengthscales(*(2**exponent for exponent in point)) for draft in drafts]
        for own in every:
            if not isinstance(lengthscale, str):
                own["bins"] = float(lengthscale)
            if "position" in own and not isinstance(position, (bool, str)):
                own["position"] = float(position)
        return every

    def search(
        drafts: Sequence[TermSpec], start: SearchPoint, step: SearchPoint
    ) -> tuple[SearchPoint, float]:
        if not any(step):
            return start, loss(drafts, scales(drafts, start)) if position == "auto" else 0.0

        def toll(point: SearchPoint) -> float:
            return OCTAVE_MUST_GAIN * sum(max(0.0, -exponent) for exponent in point)

        def tried(point: SearchPoint) -> float:
            if max(map(abs, point)) > MOST_OCTAVES:
                return float("inf")
            return loss(drafts, scales(drafts, point)) + toll(point)

        point, value = pattern_search(tried, start, [step], diagonals=False)
        return point, value - toll(point)

    start = FIRST_MULTIPLIER
    if "position" in drafts[0].columns and position != "auto":
        point, _ = search(drafts, (start, 0.0), (free_bins, free_location))
        return Tuned(drafts, scales(drafts, point))
    plain = [draft.without_position() for draft in drafts]
    point, least = search(plain, (start,), (free_bins,))
    if "position" in drafts[0].columns:
        located, lower = search(drafts, (point[0], 0.0), (free_bins, free_location))
        if lower < least - POSITION_MUST_GAIN:
            return Tuned(drafts, scales(drafts, located))
    return Tuned(plain, scales(plain, point))


def sample_of(chunks: Sequence[Chunk], labels: Int[Tensor, "n"], targets: Float[Tensor, "n"]) -> ScoringBatch:
    """The first signals of the chunks, as many as there are labels."""
    some = slice(len(labels))
    features, residual = (
        torch.cat([getattr(c, f) for c in chunks])[some] for f in ("features", "unexplained")
    )
    diagonal = torch.cat([chunk.diagonal for chunk in chunks if chunk.diagonal is not None])
    return ScoringBatch(features, residual, diagonal[some], labels, targets)


class TrialLoss:
    """The loss of a smaller model of the trial signals; it keeps the likelihood that it chose last."""

    def __init__(
        self,
        labels: Int[Tensor, "n"],
        targets: Float[Tensor, "n"],
        groups: int,
        count: int,
        method: str,
        choose: Callable[
            [Statistics, ScoringBatch, SearchPoint, Sequence[SearchPoint], ProcessGroup], SelectedModel[Any]
        ],
        rng: np.random.Generator,
        processes: ProcessGroup = SINGLE_PROCESS,
        device: torch.device = CPU,
        progress: Callable[[int], None] = lambda done: None,
        constant: float = 0.0,
    ) -> None:
        self.labels = labels
        self.targets = targets
        self.groups = groups
        self.count = count
        self.method = method
        self.choose = choose
        self.processes = processes
        """Processes that all have the trial signals, and take a part of the work each."""
        self.device = device
        """Where kernels are summed."""
        self.progress = progress
        self.constant = constant
        """Variance of the constant term; see `Features`."""
        self.rng = rng
        self.last: SearchPoint = START
        """Where the last search for the likelihood ended: the next starts there."""
        self.choice: SelectedModel[Any] | None = None
        self.inducing: dict[int, tuple[TermSpec, Tensor]] = {}

    def __call__(self, drafts: Sequence[TermSpec], scales: Sequence[Lengthscales]) -> float:
        """Of the best likelihood for these drafts and lengthscales."""
        return self._chosen(drafts, scales)[2].loss

    def held_out(
        self,
        drafts: Sequence[TermSpec],
        scales: Sequence[Lengthscales],
        count: int,
        draws: Float[Tensor, "draws C"],
    ) -> Float[Tensor, "count"]:
        """Log likelihoods of the first trial signals, each left out in its turn."""
        statistics, sample, choice = self._chosen(drafts, scales)
        logs: Tensor = choice.likelihood.leave_one_out_logs(
            statistics, choice.variance, sample.of(torch.arange(count)), draws
        )
        return logs

    def _chosen(
        self, drafts: Sequence[TermSpec], scales: Sequence[Lengthscales]
    ) -> tuple[Statistics, ScoringBatch, SelectedModel[Any]]:
        terms = []
        for draft, own in zip(drafts, scales, strict=True):
            # The same inducing patches for all lengthscales: others would make the losses noisy.
            if id(draft) not in self.inducing:
                self.inducing[id(draft)] = draft, draft.inducing(own, self.count, self.method, self.rng)
            terms.append(draft.term(own, self.inducing[id(draft)][1]))
        mine = self.processes.share(len(self.labels))
        chunk = self._features(terms, drafts, mine)
        statistics = Statistics.empty(self.groups, chunk.features.shape[1])
        statistics.add(chunk.features, self.labels[mine], self.targets[mine], chunk.unexplained)
        statistics.total(self.processes)
        here = sample_of([chunk], self.labels[mine], self.targets[mine])
        sample = ScoringBatch.concatenate([here], self.processes, chunk.features.shape[1])
        sample = sample.of(torch.arange(drafts[0].scored))
        self.choice = self.choose(statistics, sample, self.last, COARSE_STEPS, self.processes)
        self.last = self.choice.at or START
        self.progress(1)
        return statistics, sample, self.choice

    def _features(self, terms: Sequence[Term], drafts: Sequence[TermSpec], signals: slice) -> Chunk:
        """Of some trial signals, a run at a time: kernels make copies of patches."""
        features = Features(terms, 0, self.device, self.constant)
        every = [draft.trial for draft in drafts]
        rows = sum(trial.offsets.diff() * trial.values.shape[1] for trial in every)
        cost = 8.0 * np.asarray(rows)[signals]
        parts = []
        for run in runs(cost, RUN_BYTES):
            own = slice(signals.start + run.start, signals.start + run.stop)
            parts.append(features.of_patches([trial[own] for trial in every], own))
        return Chunk.concatenate(parts)
