"""The features Φ = Kfu chol(Kuu)⁻ᵀ, in which the Gaussian process is a Bayesian linear model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.domain import Signals
from gcgp.inference.cholesky import stable_cholesky
from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Convolution, Patches
from gcgp.patches.convolution import runs

JITTER = 1e-6


@dataclass(frozen=True)
class Term:
    """One scale of the model: a convolution, the kernel on its patches, and its inducing patches."""

    convolution: Convolution
    kernel: ConvolutionalKernel
    inducing: Float[Tensor, "M dim"]
    jitter: float = JITTER

    @cached_property
    def root(self) -> Float[Tensor, "M M"]:
        """chol(Kuu), in float64."""
        with torch.no_grad():
            kuu = self.kernel.double().kuu(self.inducing.double())
        return stable_cholesky(
            kuu,
            self.jitter,
            "Kuu",
            "inducing patches too alike for the lengthscale; use fewer of them or a shorter lengthscale",
        )

    def whitened(self, kfu: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
        """Kfu chol(Kuu)⁻ᵀ, in float64."""
        return torch.linalg.solve_triangular(self.root, kfu.double().T, upper=False).T


@dataclass(frozen=True)
class Chunk:
    """A run of signals, their features and the diagonal of their Kff."""

    run: slice
    features: Float[Tensor, "n M"]
    diagonal: Float[Tensor, "n"] | None

    @property
    def residual(self) -> Float[Tensor, "n"]:
        """What the inducing patches leave unexplained of each signal's prior variance: kff − |φ|²."""
        assert self.diagonal is not None
        return (self.diagonal - self.features.square().sum(dim=1)).clamp_min(0.0)


@dataclass(frozen=True)
class Features:
    """Features of signals under a sum of terms: those of the terms side by side."""

    terms: Sequence[Term]
    memory: int
    """Bytes that a run of signals may take while its patches are made."""

    @property
    def size(self) -> int:
        """Inducing patches of all terms together."""
        return sum(len(term.inducing) for term in self.terms)

    def chunks(
        self,
        signals: Signals,
        *,
        diagonal: bool = True,
        draws: int | None = None,
        seed: int = 0,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Iterator[Chunk]:
        """Features of run after run of signals; `draws` samples the diagonal (see `kernel.sums`)."""
        charts = [term.convolution.shared_chart(signals) for term in self.terms]
        cost = np.sum([term.convolution.bytes_per_signal(signals) for term in self.terms], axis=0)
        for run in runs(cost, self.memory):
            part = signals[run]
            columns, diagonals = [], []
            for term, chart in zip(self.terms, charts, strict=True):
                with torch.no_grad():
                    patches = term.convolution.patches(part, chart)
                    patches = term.kernel.weighted(patches).distinct()
                    columns.append(term.whitened(term.kernel.kfu(patches, term.inducing)))
                    if diagonal:
                        values = term.kernel.kff_diagonal(patches, draws=draws, seed=seed, first=run.start)
                        diagonals.append(values.double())
            total = torch.stack(diagonals).sum(dim=0) if diagonals else None
            yield Chunk(run, torch.cat(columns, dim=1), total)
            progress(run.stop - run.start)

    def at_vertices(self, signals: Signals) -> Iterator[tuple[Term, Patches]]:
        """For each term its patches, one a vertex and none merged, with their multiplicities."""
        for term in self.terms:
            with torch.no_grad():
                yield term, term.kernel.weighted(term.convolution.patches(signals))
