"""Posterior moments of all classes at once, from the features of single signals instead of their sums.

The Gram matrix of class c is ΣΦᵀΦ/n₀ plus a term of rank N_c, the number of its signals. In the eigenbasis
of ΣΦᵀΦ the first part is diagonal for every variance and noise, so that the second needs only matrices of
size N_c. With few signals per class this is much faster than a Cholesky factor of size M per class.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.inference.posterior import map_latents, precision_factor
from gcgp.inference.shapes import Latent, Rows, Scalar
from gcgp.inference.statistics import gram

NEGLIGIBLE_EIGENVALUE = 1e-13
"""Directions with a smaller share of the largest eigenvalue do not count."""
MAX_EIGENBASIS = 2_000
"""An eigendecomposition of a larger matrix takes longer than what it saves."""


@dataclass(frozen=True)
class ClassRows:
    """Features of all training signals in the eigenbasis of their Gram matrix, sorted by class."""

    eigenvalues: Float[Tensor, "r"]
    rows: Float[Tensor, "N r"]
    offsets: Int[Tensor, "C_plus_1"]
    """Class c has the rows `offsets[c]` to `offsets[c + 1]`."""
    scored: Int[Tensor, "scored"]
    """Rows of the signals whose moments are computed."""

    @classmethod
    def build(
        cls, features: Rows, labels: Int[Tensor, "n"], classes: int, scored: Int[Tensor, "scored"]
    ) -> ClassRows:
        """From the features and classes of all training signals, some of which are scored."""
        order = torch.argsort(labels, stable=True)
        features, scored = features[order], torch.argsort(order)[scored]
        if len(features) < features.shape[1]:
            eigenvalues, vectors = torch.linalg.eigh(gram(features.T.contiguous()))
            rows = vectors * eigenvalues.clamp_min(0.0).sqrt()
        else:
            eigenvalues, vectors = torch.linalg.eigh(gram(features))
            rows = features @ vectors
        kept = eigenvalues > NEGLIGIBLE_EIGENVALUE * eigenvalues[-1].clamp_min(0.0)
        offsets = torch.nn.functional.pad(torch.bincount(labels, minlength=classes).cumsum(0), (1, 0))
        return cls(eigenvalues[kept], rows[:, kept].contiguous(), offsets, scored)

    @staticmethod
    def worthwhile(count: Float[Tensor, "C"], size: int, scored: int) -> bool:
        """Whether an evaluation is cheaper than with one Cholesky factor per class, by their operations."""
        total, rank = float(count.sum()), min(float(count.sum()), size)
        squares = float(count.square().sum())
        by_rows = total * scored * rank + squares * (rank + scored) + float(count.pow(3).sum()) / 3
        by_sums = len(count) * rank**2 * (rank / 3 + scored)
        return len(count) > 1 and rank <= MAX_EIGENBASIS and by_rows < by_sums

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.offsets) - 1

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
        covariances, shared = weighted @ at.T, at.square().sum(dim=1)
        members = [slice(a, b) for a, b in pairwise(self.offsets.tolist())]
        sums = torch.stack([weighted[rows].sum(dim=0) for rows in members])
        cross = t0 / n0 * sums.sum(dim=0) + (t1 / n1 - t0 / n0) * sums

        def of_class(label: int) -> tuple[Tensor, Tensor]:
            rows = members[label]
            inner = gram(weighted[rows].T)
            inner.diagonal().add_(1 / (variance * (1 / n1 - 1 / n0)))
            factor = precision_factor(inner)
            columns = torch.cat([covariances[rows], (weighted[rows] @ cross[label])[:, None]], dim=1)
            half = torch.linalg.solve_triangular(factor, columns, upper=False)
            return half[:, -1] @ half[:, :-1], half[:, :-1].square().sum(dim=0)

        corrections, explained = zip(*map_latents(of_class, range(self.classes)), strict=True)
        mean = at @ cross.T - torch.stack(corrections, dim=1)
        return variance * mean, variance * (shared[:, None] - torch.stack(explained, dim=1))
