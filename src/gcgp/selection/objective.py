"""The objective of learning, as a function of all learned parameters, with its exact gradient.

Its value depends on sums over signals (`Statistics`), and its gradient on the derivatives by these sums. So
there are two passes over the signals, run by run: the first adds up, the second pulls the derivatives back
through the features of each run. Features of the first pass are kept for the second as far as the memory
limit allows, and recomputed beyond it. Beside that, only the features of the scored signals are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.memory import runs
from gcgp.domain import Chart, Signals
from gcgp.inference.features import RUN_BYTES, Chunk, Features, Term
from gcgp.inference.likelihoods import ClosedFormLikelihood
from gcgp.inference.parameters import Parameters, log_priors
from gcgp.inference.prior_variances import Sampling
from gcgp.inference.search import ScoringBatch
from gcgp.inference.statistics import Statistics
from gcgp.inference.training_set import TrainingSet

TRACED_COPIES = 3
"""Arrays of the size of the features that are alive while these are differentiable."""


@dataclass(frozen=True)
class Anchors:
    """Vertices of signals whose patches are the inducing patches of a term, for any weighting."""

    signals: Signals
    vertices: Int[Tensor, "M"]
    """Their ascending flat indices among all vertices of the signals."""

    def patches(self, term: Term, chart: Any) -> Float[Tensor, "M dim"]:
        """Their patches under the weighting of the term, differentiable; `chart` is that of `make_chart`."""
        empty = term.convolution.empty_patches(self.signals)
        at = empty.select_rows(torch.searchsorted(empty.vertices, self.vertices))
        return term.convolution.patches(self.signals, chart, at).values

    def make_chart(self, term: Term) -> Any:
        """The chart of these vertices."""
        return term.convolution.make_chart(self.signals, self.vertices.numpy())


@dataclass(frozen=True)
class Scored:
    """Training signals with a leave-one-out score."""

    rows: Int[Tensor, "n"]
    """Their ascending indices."""
    draws: Float[Tensor, "draws C"]
    """For class probabilities; see `expected_softmax`."""


class ChartCache:
    """Charts of runs of signals, kept as long as they fit into the memory limit."""

    def __init__(self, features: Features, signals: Signals) -> None:
        self.terms, self.signals, self.memory = features.terms, signals, features.memory
        self.nbytes = 0
        self._charts: dict[int, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._charts)

    def get(self, run: slice) -> list[Any]:
        """The charts of a run of signals, one per term."""
        if run.start in self._charts:
            return self._charts[run.start]
        charts = []
        for term in self.terms:
            shared = term.convolution.shared_chart(self.signals)
            charts.append(term.convolution.make_chart(self.signals[run]) if shared is None else shared)
        nbytes = sum(map(_bytes, charts))
        if self.nbytes + nbytes <= self.memory:
            self._charts[run.start] = charts
            self.nbytes += nbytes
        return charts


@dataclass(eq=False)
class Objective:
    """The collapsed bound of signals, or the leave-one-out log likelihood of some; in nats per signal."""

    features: Features
    data: TrainingSet
    closed_form: ClosedFormLikelihood
    log_parameter: Float[Tensor, ""]
    """Logarithm of the parameter of the closed-form likelihood."""
    log_variance: Float[Tensor, ""]
    """Logarithm of the variance of the GP."""
    parameters: Parameters
    anchors: Sequence[Anchors | None]
    """For each term, anchors move its inducing patches along with the weighting; None: they do not move."""
    scored: Scored | None = None
    """None: the collapsed bound."""
    draws: int | None = None
    """Patches drawn for the prior variance of large signals, the same in all evaluations."""
    seed: int = 0
    charts: ChartCache = field(init=False, repr=False)
    _anchor_charts: list[Any] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.charts = ChartCache(self.features, self.data.signals)

    def __call__(self, x: Float[np.ndarray, "k"]) -> tuple[float, Float[np.ndarray, "k"]]:
        """The objective and its gradient at x."""
        self.parameters.set(x)
        inducing = self._inducing()
        leaves = [u.detach().requires_grad_() for u in inducing]
        features = self._features(leaves)
        roots, kept, free = features.roots(), dict[int, Chunk](), self._free_bytes()

        def compute(run: slice) -> Chunk:
            nonlocal free
            free -= self._traced_bytes(run)
            if free < 0:
                return self._chunk(features, run)
            kept[run.start] = self._chunk(features, run, roots)
            return kept[run.start].detached()

        value, by_sums, by_batch = self._sensitivity(*self._sums(compute))
        value += self._pull_priors()
        for run in self._runs():
            traced = kept.pop(run.start, None) or self._chunk(features, run, roots)
            self._pull(traced, by_sums, by_batch)
        features.pull_roots(roots)
        for anchored, leaf in zip(inducing, leaves, strict=True):
            if anchored.requires_grad and leaf.grad is not None:
                anchored.backward(leaf.grad)
        if self.data.processes.rank > 0:  # gradients that are the same in all processes count once
            self.log_parameter.grad = self.log_variance.grad = None
        gradient = torch.from_numpy(self.parameters.gradient(x))
        self.data.processes.sum(gradient)
        return value, gradient.numpy()

    def value(self, x: Float[np.ndarray, "k"]) -> float:
        """The objective alone."""
        self.parameters.set(x)
        features = self._features([u.detach() for u in self._inducing()])
        with torch.no_grad():
            score = self._score(*self._sums(lambda run: self._chunk(features, run)))
            return float(score + self._log_priors())

    def _inducing(self) -> list[Tensor]:
        """Inducing patches of each term, differentiable if they are anchored."""
        pairs = list(zip(self.features.terms, self.anchors, strict=True))
        if self._anchor_charts is None:
            self._anchor_charts = [
                None if anchors is None else anchors.make_chart(term) for term, anchors in pairs
            ]
        with torch.enable_grad():
            return [
                term.inducing if anchors is None or chart is None else anchors.patches(term, chart)
                for (term, anchors), chart in zip(pairs, self._anchor_charts, strict=True)
            ]

    def _features(self, inducing: Sequence[Tensor]) -> Features:
        pairs = zip(self.features.terms, inducing, strict=True)
        return replace(self.features, terms=[replace(term, inducing=patches) for term, patches in pairs])

    def _log_priors(self) -> Float[Tensor, ""]:
        """Log densities of all priors of the kernels, in nats per signal."""
        return log_priors([term.kernel for term in self.features.terms]) / self.data.count

    def _pull_priors(self) -> float:
        """The log priors; their gradients go to the parameters of the kernels."""
        with torch.enable_grad():
            value = self._log_priors()
        if value.requires_grad and self.data.processes.rank == 0:
            value.backward()
        return float(value.detach())

    def _runs(self) -> list[slice]:
        cost = self.features.bytes_per_signal(self.data.signals)
        return list(runs(cost, min(self.features.memory, RUN_BYTES)))

    def _free_bytes(self) -> float:
        """Memory for features between the passes; none in the first evaluation, while charts are computed."""
        return float(self.features.memory - self.charts.nbytes) if self.charts else 0.0

    def _traced_bytes(self, run: slice) -> float:
        """Estimated memory of the features of a run, with what is needed to differentiate them."""
        patches = self.features.bytes_per_signal(self.data.signals)[run].sum()
        return float(patches + (run.stop - run.start) * 8 * TRACED_COPIES * self.features.size)

    def _chunk(self, features: Features, run: slice, roots: Sequence[Tensor] | None = None) -> Chunk:
        """The features of a run of signals; differentiable if the leaves of `Features.roots` are given."""
        charts, grad = self.charts.get(run), roots is not None
        patches = features.patches(self.data.signals[run], charts, run.start, grad=grad)
        indices = self.data.first + np.arange(run.start, run.stop)
        sampling = None if self.draws is None else Sampling(self.draws, self.seed, indices)
        return features.of_patches(patches, run, sampling=sampling, roots=roots)

    def _sums(self, compute: Callable[[slice], Chunk]) -> tuple[Statistics, ScoringBatch | None]:
        """The first pass: sums over all signals, and the features of the scored signals."""
        statistics = Statistics.empty(self.data.groups, self.features.size)
        batches: list[ScoringBatch] = []
        for run in self._runs():
            chunk = compute(run)
            group, targets = self.data.group[run], self.data.targets[run]
            statistics.add(chunk.features, group, targets, chunk.unexplained)
            rows, _ = self._scored_in(run)
            if len(rows):
                assert chunk.diagonal is not None
                whole = ScoringBatch(chunk.features, chunk.unexplained, chunk.diagonal, group, targets)
                batches.append(whole.take(rows))
        statistics.reduce(self.data.processes)
        if self.scored is None:
            return statistics, None
        return statistics, ScoringBatch.concatenate(batches, self.data.processes, self.features.size)

    def _scored_in(self, run: slice) -> tuple[Int[Tensor, "m"], slice]:
        """Rows of a run that are scored, and their slice of all scored signals."""
        if self.scored is None:
            return torch.zeros(0, dtype=torch.int64), slice(0, 0)
        begin = self.data.first + run.start
        ends = torch.tensor([begin, self.data.first + run.stop])
        start, stop = torch.searchsorted(self.scored.rows, ends).tolist()
        return self.scored.rows[start:stop] - begin, slice(start, stop)

    def _score(self, statistics: Statistics, batch: ScoringBatch | None) -> Float[Tensor, ""]:
        likelihood = self.closed_form.with_parameter(self.log_parameter.exp())
        variance = self.log_variance.exp()
        if self.scored is None or batch is None:
            return likelihood.bound(statistics, variance) / self.data.count
        return likelihood.leave_one_out_logs(statistics, variance, batch, self.scored.draws).mean()

    def _sensitivity(
        self, statistics: Statistics, batch: ScoringBatch | None
    ) -> tuple[float, Statistics, ScoringBatch | None]:
        """The objective, and its derivatives by the sums and by the batch in their place.

        Derivatives by parameter and variance are added to their `grad`.
        """
        for leaf in (statistics.gram, statistics.cross, statistics.residual):
            leaf.requires_grad_()
        if batch is not None:
            batch.features.requires_grad_()
            batch.residual.requires_grad_()
        with torch.enable_grad():
            value = self._score(statistics, batch)
        value.backward()
        gram, cross, residual = map(_grad, (statistics.gram, statistics.cross, statistics.residual))
        sums = replace(statistics, gram=gram, cross=cross, residual=residual)
        if batch is not None:
            batch = replace(batch, features=_grad(batch.features), residual=_grad(batch.residual))
        return float(value.detach()), sums, batch

    def _pull(self, chunk: Chunk, sums: Statistics, batch: ScoringBatch | None) -> None:
        """Pull the derivatives by the sums and by the batch back through the features of a run of signals."""
        run, phi = chunk.run, chunk.features
        with torch.enable_grad():
            group, targets = self.data.group[run], self.data.targets[run]
            by_features, by_residual = torch.zeros_like(phi), sums.residual[group]
            for g in torch.unique(group).tolist():
                member = group == g
                # The derivative of φᵀAφ + tφᵀb, where A is symmetric.
                quadratic = 2 * phi.detach()[member] @ sums.gram[g]
                by_features[member] = quadratic + targets[member][:, None] * sums.cross[g]
            if batch is not None:
                rows, scored = self._scored_in(run)
                by_features.index_add_(0, rows, batch.features[scored])
                by_residual = by_residual.index_add(0, rows, batch.residual[scored])
            surrogate = (by_features * phi).sum() + by_residual @ chunk.unexplained
        if surrogate.requires_grad:
            surrogate.backward()


def _bytes(chart: Any) -> int:
    """Memory of a chart, or of the charts of layers."""
    if isinstance(chart, (list, tuple)):
        return sum(map(_bytes, chart))
    return sum(array.nbytes for array in chart.coordinates.values()) if isinstance(chart, Chart) else 0


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
