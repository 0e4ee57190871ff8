"""What learning maximizes, as a function of everything that can be learned, with its exact gradient.

Its value needs sums over signals (`Statistics`), its gradient those sums' sensitivities; so there are two
passes over the signals, run by run. The first adds up. The second pulls the sensitivities back through each
run's features, which the first has kept if the memory limit allows, and which are made again if not. Beside
that, only the features of the signals on which a leave-one-out likelihood is scored are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.domain import Chart, Signals, Stencil
from gcgp.inference.features import RUN_BYTES, Chunk, Features, Term
from gcgp.inference.parameters import Parameters, log_priors
from gcgp.inference.search import ScoringBatch
from gcgp.inference.statistics import Statistics
from gcgp.patches.convolution import runs

COPIES = 3
"""Arrays of the size of the features that are alive while these are differentiable."""

ClosedForm = Callable[[Tensor], Any]
"""Makes a likelihood of its one parameter, noise or α_ε."""


@dataclass(frozen=True)
class Anchors:
    """Vertices of signals whose patches are the inducing patches of a term, whatever its weighting."""

    signals: Signals
    vertices: Int[Tensor, "M"]
    """Their flat numbers among all vertices of the signals, in rising order."""

    def patches(self, term: Term, chart: Chart | Stencil) -> Float[Tensor, "M dim"]:
        """Their patches under the term's weighting, differentiable; `chart` is that of `make_chart`."""
        places = term.convolution.places(self.signals).some(self.vertices)
        return term.convolution.patches(self.signals, chart, places).values

    def make_chart(self, term: Term) -> Chart | Stencil:
        """What these vertices see."""
        return term.convolution.make_chart(self.signals, self.vertices.numpy())


@dataclass(frozen=True)
class Scored:
    """Training signals that are left out in turn to score a model."""

    rows: Int[Tensor, "n"]
    """Their numbers, in rising order."""
    draws: Float[Tensor, "draws C"]
    """Behind class probabilities; see `softmax`."""


@dataclass
class Sensitivity:
    """Derivatives of the objective, by the sums over signals and by the scored signals' own numbers."""

    sums: Statistics
    features: Float[Tensor, "n M"] | None = None
    residual: Float[Tensor, "n"] | None = None


@dataclass(frozen=True)
class Objective:
    """The collapsed bound of signals, or the leave-one-out log likelihood of some of them; nats a signal.

    `anchors`, one a term or None, move the inducing patches along with the weighting.
    """

    features: Features
    signals: Signals
    group: Int[Tensor, "N"]
    targets: Float[Tensor, "N"]
    groups: int
    likelihood: ClosedForm
    log_noise: Float[Tensor, ""]
    """Logarithm of the likelihood's parameter."""
    log_variance: Float[Tensor, ""]
    """Logarithm of the GP's variance."""
    parameters: Parameters
    anchors: Sequence[Anchors | None]
    scored: Scored | None = None
    """None: the collapsed bound."""
    draws: int | None = None
    """Patches drawn for the prior variance of large signals, always the same ones."""
    seed: int = 0
    processes: ProcessGroup = SINGLE_PROCESS
    first: int = 0
    """Number of the first signal, where several processes have some each."""
    count: int | None = None
    """Signals of all processes; None: these are all."""
    charts: dict[int, list[Chart | Stencil]] = field(default_factory=dict)
    """Those of the first runs of signals, by where these start, as many as fit the memory limit."""
    anchor_charts: list[Chart | Stencil | None] = field(default_factory=list)

    def __call__(self, x: Float[np.ndarray, "k"]) -> tuple[float, Float[np.ndarray, "k"]]:
        """The objective and its gradient at x."""
        self.parameters.set(x)
        inducing = self._inducing()
        leaves = [u.detach().requires_grad_() for u in inducing]
        terms = [replace(term, inducing=leaf) for term, leaf in zip(self.features.terms, leaves, strict=True)]
        features = replace(self.features, terms=terms)
        roots, kept, left = features.roots(), dict[int, Chunk](), self._room()

        def made(run: slice) -> Chunk:
            nonlocal left
            left -= self._traced_bytes(run)
            if left < 0:
                return self._made(features, run)
            kept[run.start] = self._traced(features, roots, run)
            return kept[run.start].detached()

        value, sensitivity = self._sensitivity(*self._sums(made))
        value += self._pull_priors()
        for run in self._runs():
            traced = kept.pop(run.start, None) or self._traced(features, roots, run)
            self._pull(traced, sensitivity)
        features.pull_roots(roots)
        for anchored, leaf in zip(inducing, leaves, strict=True):
            if anchored.requires_grad and leaf.grad is not None:
                anchored.backward(leaf.grad)
        if self.processes.rank > 0:  # what all processes have found alike counts once
            self.log_noise.grad = self.log_variance.grad = None
        gradient = torch.from_numpy(self.parameters.gradient(x))
        self.processes.sum(gradient)
        return value, gradient.numpy()

    def value(self, x: Float[np.ndarray, "k"]) -> float:
        """The objective alone."""
        self.parameters.set(x)
        terms = [
            replace(term, inducing=u.detach())
            for term, u in zip(self.features.terms, self._inducing(), strict=True)
        ]
        features = replace(self.features, terms=terms)
        with torch.no_grad():
            score = self._score(*self._sums(lambda run: self._made(features, run)))
            return float(score + self._log_priors() / self._count)

    @property
    def _count(self) -> int:
        """Signals of all processes."""
        return len(self.signals) if self.count is None else self.count

    def _log_priors(self) -> Float[Tensor, ""]:
        """Log densities of all priors of the kernels, which users may have given theirs."""
        return log_priors([term.kernel for term in self.features.terms])

    def _pull_priors(self) -> float:
        """The log priors, in nats per signal; their gradients go to the parameters of the kernels."""
        with torch.enable_grad():
            value = self._log_priors() / self._count
        if value.requires_grad and self.processes.rank == 0:  # what all processes have alike counts once
            value.backward()
        return float(value.detach())

    def _charts(self, run: slice) -> list[Chart | Stencil]:
        """The charts of a run of signals, one a term, kept for the next time if there is room."""
        if run.start not in self.charts:
            terms = self.features.terms
            shared = [term.convolution.shared_chart(self.signals) for term in terms]
            made = [
                term.convolution.make_chart(self.signals[run]) if chart is None else chart
                for term, chart in zip(terms, shared, strict=True)
            ]
            held = sum(_bytes(chart) for charts in self.charts.values() for chart in charts)
            if held + sum(map(_bytes, made)) > self.features.memory:
                return made
            self.charts[run.start] = made
        return self.charts[run.start]

    def _room(self) -> float:
        """Bytes for features that are kept from the first pass to the second, beside charts that are kept.

        None the first time, when charts are still to be made.
        """
        held = sum(_bytes(chart) for charts in self.charts.values() for chart in charts)
        return float(self.features.memory - held) if self.charts else 0.0

    def _traced_bytes(self, run: slice) -> float:
        """About how much memory it takes to keep the features of a run, and what they were made from."""
        patches = self.features.bytes_per_signal(self.signals)[run].sum()
        return float(patches + (run.stop - run.start) * 8 * COPIES * self.features.size)

    def _made(self, features: Features, run: slice) -> Chunk:
        """The features of a run of signals."""
        patches = features.patches(self.signals[run], self._charts(run), run.start)
        numbers = self.first + np.arange(run.start, run.stop)
        return features.of_patches(patches, run, draws=self.draws, seed=self.seed, numbers=numbers)

    def _traced(self, features: Features, roots: Sequence[Tensor], run: slice) -> Chunk:
        """The features of a run of signals, differentiable."""
        numbers = self.first + np.arange(run.start, run.stop)
        return features.traced(
            self.signals[run],
            run,
            roots,
            self._charts(run),
            draws=self.draws,
            seed=self.seed,
            numbers=numbers,
        )

    def _sums(self, made: Callable[[slice], Chunk]) -> tuple[Statistics, ScoringBatch | None]:
        """The first pass: sums over all signals, and the features of those that are scored."""
        statistics = Statistics.empty(self.groups, self.features.size)
        kept: list[ScoringBatch] = []
        for run in self._runs():
            chunk = made(run)
            group, targets = self.group[run], self.targets[run]
            statistics.add(chunk.features, group, targets, chunk.unexplained)
            inside, _ = self._scored_in(run)
            if len(inside):
                assert chunk.diagonal is not None
                whole = ScoringBatch(chunk.features, chunk.unexplained, chunk.diagonal, group, targets)
                kept.append(whole.of(inside))
        statistics.total(self.processes)
        if self.scored is None:
            return statistics, None
        return statistics, ScoringBatch.concatenate(kept, self.processes, self.features.size)

    def _scored_in(self, run: slice) -> tuple[Int[Tensor, "m"], slice]:
        """Which signals of a run are scored, and their places among all that are."""
        if self.scored is None:
            return torch.zeros(0, dtype=torch.int64), slice(0, 0)
        begin = self.first + run.start
        ends = torch.tensor([begin, self.first + run.stop])
        start, stop = torch.searchsorted(self.scored.rows, ends).tolist()
        return self.scored.rows[start:stop] - begin, slice(start, stop)

    def _runs(self) -> list[slice]:
        cost = self.features.bytes_per_signal(self.signals)
        return list(runs(cost, min(self.features.memory, RUN_BYTES)))

    def _inducing(self) -> list[Tensor]:
        if not self.anchor_charts:
            self.anchor_charts.extend(
                None if anchors is None else anchors.make_chart(term)
                for term, anchors in zip(self.features.terms, self.anchors, strict=True)
            )
        with torch.enable_grad():
            return [
                term.inducing if anchors is None or chart is None else anchors.patches(term, chart)
                for term, anchors, chart in zip(
                    self.features.terms, self.anchors, self.anchor_charts, strict=True
                )
            ]

    def _score(self, statistics: Statistics, sample: ScoringBatch | None) -> Float[Tensor, ""]:
        likelihood, variance = self.likelihood(self.log_noise.exp()), self.log_variance.exp()
        if self.scored is None or sample is None:
            return likelihood.bound(statistics, variance) / self._count
        return likelihood.leave_one_out_logs(statistics, variance, sample, self.scored.draws).mean()

    def _sensitivity(self, statistics: Statistics, sample: ScoringBatch | None) -> tuple[float, Sensitivity]:
        """The objective and its derivatives; those with respect to noise and variance go to their `grad`."""
        sums = replace(
            statistics,
            gram=statistics.gram.requires_grad_(),
            cross=statistics.cross.requires_grad_(),
            residual=statistics.residual.requires_grad_(),
        )
        leaves = None
        if sample is not None:
            leaves = replace(
                sample, features=sample.features.requires_grad_(), residual=sample.residual.requires_grad_()
            )
        with torch.enable_grad():
            value = self._score(sums, leaves)
        value.backward()
        result = Sensitivity(
            replace(statistics, gram=_grad(sums.gram), cross=_grad(sums.cross), residual=_grad(sums.residual))
        )
        if leaves is not None:
            result.features, result.residual = _grad(leaves.features), _grad(leaves.residual)
        return float(value.detach()), result

    def _pull(self, chunk: Chunk, sensitivity: Sensitivity) -> None:
        """Pull the sensitivities of the sums back through the features of one run of signals."""
        run, phi = chunk.run, chunk.features
        with torch.enable_grad():
            group, targets = self.group[run], self.targets[run]
            pulled, of_residual = torch.zeros_like(phi), sensitivity.sums.residual[group]
            for g in torch.unique(group).tolist():
                member = group == g
                # The derivative of φᵀAφ + tφᵀb, where A is symmetric.
                quadratic = 2 * phi.detach()[member] @ sensitivity.sums.gram[g]
                pulled[member] = quadratic + targets[member][:, None] * sensitivity.sums.cross[g]
            inside, places = self._scored_in(run)
            if sensitivity.features is not None and sensitivity.residual is not None:
                pulled.index_add_(0, inside, sensitivity.features[places])
                of_residual = of_residual.index_add(0, inside, sensitivity.residual[places])
            surrogate = (pulled * phi).sum() + of_residual @ chunk.unexplained
        if surrogate.requires_grad:
            surrogate.backward()


def _bytes(chart: Chart | Stencil) -> int:
    return sum(array.nbytes for array in chart.coordinates.values()) if isinstance(chart, Chart) else 0


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
