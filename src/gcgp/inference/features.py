"""The features Φ = Kfu chol(Kuu)⁻ᵀ, in which the Gaussian process is a Bayesian linear model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.memory import runs
from gcgp.domain import Chart, Signals, Stencil
from gcgp.inference.cholesky import stable_cholesky
from gcgp.inference.prior_variances import Sampling, prior_variances
from gcgp.kernel import ConvolutionalKernel
from gcgp.kernel.base import evaluate, prior_variance
from gcgp.patches import Convolution, Patches

JITTER = 1e-6
VERTICES_AT_ONCE = 4096
CPU = torch.device("cpu")
RUN_BYTES = 64 << 20
"""A run of signals takes no more than this, whatever the memory limit: larger ones are slower."""
CHUNK_BYTES = 32 << 20
"""Features of so many bytes are given at a time: products of smaller ones are slower."""


@dataclass(eq=False)
class Term:
    """One scale of the model: a convolution, the kernel on its patches, and its inducing patches."""

    convolution: Convolution
    kernel: ConvolutionalKernel
    inducing: Float[Tensor, "M dim"]
    jitter: float = JITTER
    _root: Float[Tensor, "M M"] | None = field(default=None, init=False, repr=False)
    """Not copied by `dataclasses.replace`, because it depends on the other fields."""

    @property
    def root(self) -> Float[Tensor, "M M"]:
        """chol(Kuu), in float64; computed once."""
        if self._root is None:
            with torch.no_grad():
                kuu = copy.deepcopy(self.kernel).double().kuu(self.inducing.double())
            self._root = stable_cholesky(
                kuu,
                self.jitter,
                "Kuu",
                "inducing patches too alike for the lengthscale; use fewer of them or a shorter lengthscale",
            )
        return self._root

    def with_root(self, root: Float[Tensor, "M M"]) -> Term:
        """The same term with a known factor of Kuu, as in a saved model."""
        term = replace(self)
        term._root = root
        return term

    def whitened(self, kfu: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
        """Kfu chol(Kuu)⁻ᵀ, in float64."""
        return whitened(self.root, kfu)


def whitened(root: Float[Tensor, "M M"], kfu: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
    """Kfu chol(Kuu)⁻ᵀ, in float64, for a given factor of Kuu."""
    return torch.linalg.solve_triangular(root, kfu.double().T, upper=False).T


@dataclass(frozen=True)
class Chunk:
    """A run of signals, their features and the diagonal of their Kff."""

    run: slice
    features: Float[Tensor, "n M"]
    diagonal: Float[Tensor, "n"] | None

    @property
    def unexplained(self) -> Float[Tensor, "n"]:
        """The prior variance of each signal that the inducing patches do not explain: kff − |φ|².

        An estimate of kff may make it negative. That is right on average, so sums over signals are made of
        these numbers, and not of `residual`.
        """
        assert self.diagonal is not None
        return self.diagonal - self.features.square().sum(dim=1)

    @property
    def residual(self) -> Float[Tensor, "n"]:
        """`unexplained`, or 0 where it is negative, by rounding or because kff is an estimate."""
        return self.unexplained.clamp_min(0.0)

    def detached(self) -> Chunk:
        """The same numbers, without what they were made from."""
        diagonal = None if self.diagonal is None else self.diagonal.detach()
        return Chunk(self.run, self.features.detach(), diagonal)

    @classmethod
    def concatenate(cls, parts: Sequence[Chunk]) -> Chunk:
        """Consecutive chunks as one."""
        if len(parts) == 1:
            return parts[0]
        diagonals = [part.diagonal for part in parts if part.diagonal is not None]
        return cls(
            slice(parts[0].run.start, parts[-1].run.stop),
            torch.cat([part.features for part in parts]),
            torch.cat(diagonals) if diagonals else None,
        )


@dataclass(frozen=True)
class Features:
    """Features of signals under a sum of terms: those of the terms side by side."""

    terms: Sequence[Term]
    memory: int
    """Bytes that the patches of a run of signals may take while they are made (one signal at least)."""
    device: torch.device = CPU
    """Where sums of kernels over patches are computed; all else is done by the CPU."""
    constant: float = 0.0
    """Variance of a constant that is added to f: a term of the kernel that is the same for all signals.

    If it is positive, the features have one more column, the last: its square root.
    """

    @property
    def size(self) -> int:
        """Number of features: inducing patches of all terms together, and the constant."""
        return sum(len(term.inducing) for term in self.terms) + (self.constant > 0)

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """About how much memory it takes to make the patches of each signal, for all terms."""
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
        progress: Callable[[int], None] = lambda done: None,
    ) -> Iterator[Chunk]:
        """Features of run after run of signals; `draws` samples the diagonal (see `kernel.sums`).

        `first` is the number of the first signal, where these are not all. `exact`, in rising order, are
        places of signals whose part of the diagonal is exact all the same.
        """
        exact = np.zeros(0, dtype=np.int64) if exact is None else exact
        for term in self.terms:
            term.convolution.prepare(signals)
        charts = [term.convolution.shared_chart(signals) for term in self.terms]
        most = min(self.memory, CHUNK_BYTES) // (8 * self.size)
        parts: list[Chunk] = []
        for run in runs(self.bytes_per_signal(signals), min(self.memory, RUN_BYTES)):
            if parts and run.stop - parts[0].run.start > most:
                yield Chunk.concatenate(parts)
                parts = []
            patches = self.patches(signals[run], charts, run.start)
            numbers = first + np.arange(run.start, run.stop)
            own = exact[slice(*np.searchsorted(exact, [run.start, run.stop]))] - run.start
            made = self.of_patches(
                patches, run, diagonal=diagonal, draws=draws, seed=seed, numbers=numbers, exact=own.tolist()
            )
            parts.append(made)
            progress(run.stop - run.start)
        if parts:
            yield Chunk.concatenate(parts)

    def patches(
        self, signals: Signals, charts: Sequence[Chart | Stencil | None] | None = None, first: int = 0
    ) -> list[Patches]:
        """For each term the patches of the signals, with multiplicities, repeated ones merged."""
        charts = [None] * len(self.terms) if charts is None else charts
        with torch.no_grad():
            return [
                term.kernel.weighted(term.convolution.patches(signals, chart), first).distinct()
                for term, chart in zip(self.terms, charts, strict=True)
            ]

    def of_patches(
        self,
        patches: Sequence[Patches],
        run: slice,
        *,
        diagonal: bool = True,
        draws: int | None = None,
        seed: int = 0,
        numbers: Int[np.ndarray, "n"] | None = None,
        exact: Sequence[int] = (),
    ) -> Chunk:
        """Features of the signals whose patches, for each term, are given; see `chunks`."""
        columns, diagonals = [], []
        with torch.no_grad():
            for term, made in zip(self.terms, patches, strict=True):
                own = made.to(self.device)
                columns.append(term.whitened(term.kernel.kfu(own, term.inducing).cpu()))
                if diagonal:
                    sampling = Sampling.of(own, draws, seed, numbers, exact)
                    diagonals.append(prior_variances(term, term.whitened, own, columns[-1], sampling))
        return self._chunk(run, columns, diagonals)

    def _chunk(self, run: slice, columns: Sequence[Tensor], diagonals: Sequence[Tensor]) -> Chunk:
        """Features and diagonals of the terms together, and the constant."""
        features, diagonal = torch.cat(list(columns), dim=1), None
        if self.constant > 0:
            features = torch.nn.functional.pad(features, (0, 1), value=self.constant**0.5)
        if diagonals:
            diagonal = torch.stack(list(diagonals)).sum(dim=0) + self.constant
        return Chunk(run, features, diagonal)

    def roots(self) -> list[Float[Tensor, "M M"]]:
        """chol(Kuu) of each term, as leaves for `traced`; `pull_roots` takes their gradients further."""
        return [term.root.detach().clone().requires_grad_() for term in self.terms]

    def traced(
        self,
        signals: Signals,
        run: slice,
        roots: Sequence[Float[Tensor, "M M"]],
        charts: Sequence[Chart | Stencil | None],
        *,
        draws: int | None = None,
        seed: int = 0,
        numbers: Int[np.ndarray, "n"] | None = None,
    ) -> Chunk:
        """Features of these signals, a run of all, differentiable in all that they are made of."""
        columns, diagonals = [], []
        with torch.enable_grad():
            for term, root, chart in zip(self.terms, roots, charts, strict=True):
                made = term.convolution.patches(signals, chart)
                patches = term.kernel.weighted(made, 0 if numbers is None else int(numbers[0]))
                if not made.values.requires_grad:
                    patches = patches.distinct()
                patches = patches.to(self.device)
                whiten = partial(whitened, root)
                columns.append(whiten(term.kernel.kfu(patches, term.inducing).cpu()))
                sampling = Sampling.of(patches, draws, seed, numbers)
                diagonals.append(prior_variances(term, whiten, patches, columns[-1], sampling))
            return self._chunk(run, columns, diagonals)

    def pull_roots(self, roots: Sequence[Float[Tensor, "M M"]]) -> None:
        """Take the gradients of the leaves that `roots` gave further, to kernels and inducing patches."""
        for term, root in zip(self.terms, roots, strict=True):
            if root.grad is not None:
                _pull_root(term, root.grad)

    def at_vertices(
        self, signals: Signals
    ) -> tuple[Float[Tensor, "total_vertices M"], Float[Tensor, "total_vertices"]]:
        """Features of each vertex's own share m_v g(Z[v]) of f, and that share's unexplained variance.

        The rows of a signal add up to its features; each vertex has an equal share of the constant. Other
        features are zero at vertices that have no patch.
        """
        total = len(signals.values)
        features = torch.zeros(total, self.size, dtype=torch.float64)
        variance = torch.zeros(total, dtype=torch.float64)
        start = 0
        with torch.no_grad():
            for term in self.terms:
                patches = term.kernel.weighted(term.convolution.patches(signals))
                for rows in torch.split(torch.arange(len(patches.values)), VERTICES_AT_ONCE):
                    values, at = patches.values[rows], patches.vertices[rows]
                    share = patches.multiplicity[rows].double()
                    kvu = evaluate(term.kernel.base, values, term.inducing)
                    columns = slice(start, start + len(term.inducing))
                    features[at, columns] = term.whitened(kvu) * share[:, None]
                    variance[at] += prior_variance(term.kernel.base, values) * share.square()
                start += len(term.inducing)
        if self.constant > 0:
            share = torch.from_numpy(np.repeat(1 / signals.vertex_counts, signals.vertex_counts))
            features[:, -1] = self.constant**0.5 * share
            variance += self.constant * share.square()
        return features, (variance - features.square().sum(dim=1)).clamp_min(0.0)


def _pull_root(term: Term, gradient: Float[Tensor, "M M"]) -> None:
    """Pull the gradient of chol(Kuu) back to the kernel and the inducing patches."""
    kernel = copy.deepcopy(term.kernel).double()
    inducing = term.inducing.detach().double().requires_grad_()
    with torch.enable_grad():
        factor = stable_cholesky(kernel.kuu(inducing), term.jitter, "Kuu", "inducing patches too alike")
    if not factor.requires_grad:
        return
    factor.backward(gradient)
    for original, doubled in zip(term.kernel.parameters(), kernel.parameters(), strict=True):
        if doubled.grad is not None and original.requires_grad:
            _accumulate(original, doubled.grad)
    if inducing.grad is not None and term.inducing.requires_grad:
        _accumulate(term.inducing, inducing.grad)


def _accumulate(tensor: Tensor, gradient: Tensor) -> None:
    gradient = gradient.to(tensor.dtype)
    tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
