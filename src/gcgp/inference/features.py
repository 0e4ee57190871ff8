"""The features Φ = Kfu chol(Kuu)⁻ᵀ, in which the Gaussian process is a Bayesian linear model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.memory import runs
from gcgp.domain import Signals
from gcgp.inference.cholesky import stable_cholesky
from gcgp.inference.prior_variances import Sampling, prior_variances
from gcgp.inference.shapes import Matrix, PerSignal, Rows
from gcgp.kernel import ConvolutionalKernel
from gcgp.kernel.base import evaluate, prior_variance
from gcgp.patches import Convolution, Patches

DEFAULT_JITTER = 1e-6
VERTICES_PER_BLOCK = 4096
CPU = torch.device("cpu")
RUN_BYTES = 64 << 20
"""Most bytes of a run of signals, whatever the memory limit: larger runs are slower."""
CHUNK_BYTES = 32 << 20
"""Bytes of the features in a chunk: products of smaller chunks are slower."""


@dataclass(eq=False)
class Term:
    """One scale of the model: a convolution, the kernel on its patches, and its inducing patches."""

    convolution: Convolution
    kernel: ConvolutionalKernel
    inducing: Float[Tensor, "M dim"]
    jitter: float = DEFAULT_JITTER
    _root: Matrix | None = field(default=None, init=False, repr=False)
    """Not copied by `dataclasses.replace`, because it depends on the other fields."""

    @property
    def root(self) -> Matrix:
        """chol(Kuu), in float64; computed once."""
        if self._root is None:
            with torch.no_grad():
                kernel = copy.deepcopy(self.kernel).double()
                self._root = self._factor(kernel, self.inducing.double())
        return self._root

    def with_root(self, root: Matrix) -> Term:
        """The same term with a known factor of Kuu, as in a saved model."""
        term = replace(self)
        term._root = root
        return term

    def whitened(self, kfu: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
        """Kfu chol(Kuu)⁻ᵀ, in float64."""
        return whitened(self.root, kfu)

    def pull_root(self, gradient: Matrix) -> None:
        """Pull a gradient by chol(Kuu) back to the kernel and the inducing patches."""
        kernel = copy.deepcopy(self.kernel).double()
        inducing = self.inducing.detach().double().requires_grad_()
        with torch.enable_grad():
            factor = self._factor(kernel, inducing)
        if not factor.requires_grad:
            return
        factor.backward(gradient)
        pairs = [*zip(self.kernel.parameters(), kernel.parameters(), strict=True), (self.inducing, inducing)]
        for original, doubled in pairs:
            if doubled.grad is not None and original.requires_grad:
                grad = doubled.grad.to(original.dtype)
                original.grad = grad if original.grad is None else original.grad + grad

    def _factor(self, kernel: ConvolutionalKernel, inducing: Tensor) -> Matrix:
        cause = "inducing patches too alike for the lengthscale; use fewer of them or a shorter lengthscale"
        return stable_cholesky(kernel.kuu(inducing), self.jitter, "Kuu", cause)


def whitened(root: Matrix, kfu: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
    """Kfu chol(Kuu)⁻ᵀ, in float64, for a given factor of Kuu."""
    return torch.linalg.solve_triangular(root, kfu.double().T, upper=False).T


@dataclass(frozen=True)
class Chunk:
    """A run of signals, their features and the diagonal of their Kff."""

    run: slice
    features: Rows
    diagonal: PerSignal | None

    @property
    def unexplained(self) -> PerSignal:
        """The prior variance that the inducing patches do not explain: kff − |φ|².

        An estimate of kff may make it negative. It is unbiased, so sums over signals use it, not `residual`.
        """
        assert self.diagonal is not None
        return self.diagonal - self.features.square().sum(dim=1)

    @property
    def residual(self) -> PerSignal:
        """`unexplained`, or 0 where it is negative, by rounding or because kff is an estimate."""
        return self.unexplained.clamp_min(0.0)

    def detached(self) -> Chunk:
        """The same values without gradients."""
        diagonal = None if self.diagonal is None else self.diagonal.detach()
        return Chunk(self.run, self.features.detach(), diagonal)

    @classmethod
    def concatenate(cls, parts: Sequence[Chunk]) -> Chunk:
        """Consecutive chunks as one."""
        if len(parts) == 1:
            return parts[0]
        diagonals = [part.diagonal for part in parts if part.diagonal is not None]
        run = slice(parts[0].run.start, parts[-1].run.stop)
        return cls(run, torch.cat([p.features for p in parts]), torch.cat(diagonals) if diagonals else None)


@dataclass(frozen=True)
class Features:
    """Features of signals under a sum of terms: those of the terms side by side."""

    terms: Sequence[Term]
    memory: int
    """Bytes that the patches of a run of signals may take (a run has at least one signal)."""
    device: torch.device = CPU
    """Where sums of kernels over patches are computed; the CPU does everything else."""
    constant: float = 0.0
    """Variance of a constant term of the kernel. If it is positive, its square root is the last feature."""

    @property
    def size(self) -> int:
        """Number of features: inducing patches of all terms together, and the constant."""
        return sum(len(term.inducing) for term in self.terms) + (self.constant > 0)

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """Estimated memory for the patches of each signal, for all terms."""
        return np.sum([term.convolution.bytes_per_signal(signals) for term in self.terms], axis=0)

    def chunks(
        self,
        signals: Signals,
        *,
        diagonal: bool = True,
        draws: int | None = None,
        seed: int = 0,
        first: int = 0,
        exact: Int[np.ndarray, "k"] | None = None,
        progress: Callable[[int], None] = lambda count: None,
    ) -> Iterator[Chunk]:
        """Features of consecutive runs of signals; with `draws`, estimates of the diagonal (see `Sampling`).

        `first` is the index of the first signal in a larger set. `exact` are ascending rows of signals whose
        part of the diagonal is exact all the same.
        """
        exact = np.zeros(0, dtype=np.int64) if exact is None else exact
        for term in self.terms:
            term.convolution.prepare(signals)
        charts = [term.convolution.shared_chart(signals) for term in self.terms]
        max_rows = min(self.memory, CHUNK_BYTES) // (8 * self.size)
        parts: list[Chunk] = []
        for run, patches in self._runs_of_patches(signals, charts):
            if parts and run.stop - parts[0].run.start > max_rows:
                yield Chunk.concatenate(parts)
                parts = []
            sampling = None
            if draws is not None:
                rows = exact[slice(*np.searchsorted(exact, [run.start, run.stop]))] - run.start
                sampling = Sampling(draws, seed, first + np.arange(run.start, run.stop), rows.tolist())
            parts.append(self.of_patches(patches, run, diagonal=diagonal, sampling=sampling))
            progress(run.stop - run.start)
        if parts:
            yield Chunk.concatenate(parts)

    def _runs_of_patches(
        self, signals: Signals, charts: Sequence[Any]
    ) -> Iterator[tuple[slice, list[Patches]]]:
        """The patches of consecutive runs of signals.

        If layers pool signals, there are few patches, but long ones: those of several runs are put together,
        so that they take as long as the preparation of inducing patches for their kernel values.
        """
        memory = min(self.memory, RUN_BYTES)
        together = memory if all(term.convolution.pooled for term in self.terms) else 0
        start, size = 0, 0
        waiting: list[list[Patches]] = []
        for run in runs(self.bytes_per_signal(signals), memory):
            waiting.append(self.patches(signals[run], charts, run.start))
            size += sum(part.values.numel() * part.values.element_size() for part in waiting[-1])
            if size >= together or run.stop == len(signals):
                joined = [Patches.concatenate(parts) for parts in zip(*waiting, strict=True)]
                yield slice(start, run.stop), joined
                start, size, waiting = run.stop, 0, []

    def patches(
        self,
        signals: Signals,
        charts: Sequence[Any] | None = None,
        first: int = 0,
        *,
        grad: bool = False,
    ) -> list[Patches]:
        """For each term the patches of the signals, with multiplicities.

        Repeated patches are merged, unless gradients are wanted and depend on them.
        """
        result = []
        with torch.set_grad_enabled(grad):
            for term, chart in zip(self.terms, charts or [None] * len(self.terms), strict=True):
                patches = term.kernel.weighted(term.convolution.patches(signals, chart), first)
                result.append(patches if patches.values.requires_grad else patches.distinct())
        return result

    def of_patches(
        self,
        patches: Sequence[Patches],
        run: slice,
        *,
        diagonal: bool = True,
        sampling: Sampling | None = None,
        roots: Sequence[Matrix] | None = None,
    ) -> Chunk:
        """Features of a run of signals from their patches, which are given for each term.

        With the leaves of `roots`, they are differentiable in all that they depend on.
        """
        columns, diagonals = [], []
        with torch.set_grad_enabled(roots is not None):
            for i, (term, term_patches) in enumerate(zip(self.terms, patches, strict=True)):
                on_device = term_patches.to(self.device)
                whiten = term.whitened if roots is None else partial(whitened, roots[i])
                columns.append(whiten(term.kernel.kfu(on_device, term.inducing).cpu()))
                if diagonal:
                    diagonals.append(prior_variances(term, whiten, on_device, columns[-1], sampling))
            features = torch.cat(columns, dim=1)
            if self.constant > 0:
                features = torch.nn.functional.pad(features, (0, 1), value=self.constant**0.5)
            total = torch.stack(diagonals).sum(dim=0) + self.constant if diagonals else None
            return Chunk(run, features, total)

    def roots(self) -> list[Matrix]:
        """chol(Kuu) of each term, as leaves for `of_patches`; `pull_roots` continues with their gradients."""
        return [term.root.detach().clone().requires_grad_() for term in self.terms]

    def pull_roots(self, roots: Sequence[Matrix]) -> None:
        """Pull the gradients of the leaves of `roots` back to kernels and inducing patches."""
        for term, root in zip(self.terms, roots, strict=True):
            if root.grad is not None:
                term.pull_root(root.grad)

    def at_vertices(
        self, signals: Signals
    ) -> tuple[Float[Tensor, "total_vertices M"], Float[Tensor, "total_vertices"]]:
        """Features of the share m_v g(Z[v]) of each vertex in f, and the unexplained variance of that share.

        The rows of a signal add up to its features; each vertex has an equal share of the constant. Other
        features are zero at vertices without a patch.
        """
        total = len(signals.values)
        features = torch.zeros(total, self.size, dtype=torch.float64)
        variance = torch.zeros(total, dtype=torch.float64)
        start = 0
        with torch.no_grad():
            for term in self.terms:
                patches = term.kernel.weighted(term.convolution.patches(signals))
                if term.convolution.pooled:
                    patches = patches.shared(torch.from_numpy(signals.vertex_counts))
                columns = slice(start, start + len(term.inducing))
                for rows in torch.split(torch.arange(len(patches.values)), VERTICES_PER_BLOCK):
                    values, vertices = patches.values[rows], patches.vertices[rows]
                    share = patches.multiplicity[rows].double()
                    kvu = evaluate(term.kernel.base, values, term.inducing)
                    features[vertices, columns] = term.whitened(kvu) * share[:, None]
                    variance[vertices] += prior_variance(term.kernel.base, values) * share.square()
                start = columns.stop
        if self.constant > 0:
            share = torch.from_numpy(np.repeat(1 / signals.vertex_counts, signals.vertex_counts))
            features[:, -1] = self.constant**0.5 * share
            variance += self.constant * share.square()
        return features, (variance - features.square().sum(dim=1)).clamp_min(0.0)
