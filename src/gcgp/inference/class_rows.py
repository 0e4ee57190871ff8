"""Posterior moments of all classes at once, from the features of single signals instead of their sums.

The Gram matrix of class c is ΣΦᵀΦ/n₀ plus a term of rank N_c, the number of its signals. In the eigenbasis
of ΣΦᵀΦ the first part is diagonal for every variance and noise, so that the second needs only matrices of
size N_c. With few signals per class this is much faster than a Cholesky factor of size M per class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.inference.cholesky import stable_cholesky
from gcgp.inference.posterior import map_latents
from gcgp.inference.shapes import Latent, Rows, Scalar
from gcgp.inference.statistics import gram

NEGLIGIBLE_EIGENVALUE = 1e-13
"""Directions with a smaller share of the largest eigenvalue do not count."""
MAX_EIGENBASIS = 2_000
"""An eigendecomposition of a larger matrix takes longer than what it saves."""


@dataclass(frozen=True)
class ClassRows:
    """Features of all training signals in the eigenbasis of their Gram matrix, and their classes."""

    eigenvalues: Float[Tensor, "r"]
    rows: Float[Tensor, "N r"]
    members: Sequence[Int[Tensor, "_"]]
    """For each class, the rows of its signals."""
    scored: Int[Tensor, "scored"]
    """Rows of the signals whose moments are computed."""

    @classmethod
    def build(
        cls, features: Rows, labels: Int[Tensor, "n"], classes: int, scored: Int[Tensor, "scored"]
    ) -> ClassRows:
        """From the features and classes of all training signals."""
        if len(features) < features.shape[1]:
            eigenvalues, vectors = torch.linalg.eigh(gram(features.T.contiguous()))
            rows = vectors * eigenvalues.clamp_min(0.0).sqrt()
        else:
            eigenvalues, vectors = torch.linalg.eigh(gram(features))
            rows = features @ vectors
        kept = eigenvalues > NEGLIGIBLE_EIGENVALUE * eigenvalues[-1].clamp_min(0.0)
        members = [torch.nonzero(labels == c)[:, 0] for c in range(classes)]
        return cls(eigenvalues[kept], rows[:, kept].contiguous(), members, scored)

    @staticmethod
    def worthwhile(count: Float[Tensor, "C"], size: int, scored: int) -> bool:
        """Whether an evaluation is cheaper than with one Cholesky factor per class, by their operations."""
        total, rank = float(count.sum()), min(float(count.sum()), size)
        squares = float(count.square().sum())
        by_rows = total * scored * rank + squares * (rank + scored) + float(count.pow(3).sum()) / 3
        by_sums = len(count) * rank**2 * (rank / 3 + scored)
        return len(count) > 1 and rank <= MAX_EIGENBASIS and by_rows < by_sums

    def moments(
        self, variance: float, targets: tuple[Scalar, Scalar], noise: tuple[Scalar, Scalar]
    ) -> tuple[Latent, Latent]:
        """Posterior mean and explained variance of all latent functions at the scored signals.

        `targets` and `noise` are those of signals of a class and of signals of other classes.
        """
        (t1, t0), (n1, n0) = targets, noise
        root = (1 + variance * self.eigenvalues / n0).rsqrt()
        weighted = self.rows * root
        at = weighted[self.scored]
        shared, total = at.square().sum(dim=1), self.rows.sum(dim=0)

        def of_class(members: Int[Tensor, "_"]) -> tuple[Tensor, Tensor]:
            own = weighted[members]
            inner = gram(own.T.contiguous())
            inner.diagonal().add_(1 / (variance * (1 / n1 - 1 / n0)))
            factor = stable_cholesky(inner, 0.0, "the covariance of a class", "features are not finite")
            half = torch.linalg.solve_triangular(factor, own @ at.T, upper=False)
            cross = root * (t0 / n0 * total + (t1 / n1 - t0 / n0) * self.rows[members].sum(dim=0))
            correction = torch.linalg.solve_triangular(factor, (own @ cross)[:, None], upper=False)[:, 0]
            return at @ cross - correction @ half, shared - half.square().sum(dim=0)

        means, explained = zip(*map_latents(of_class, self.members), strict=True)
        return variance * torch.stack(means, dim=1), variance * torch.stack(explained, dim=1)
