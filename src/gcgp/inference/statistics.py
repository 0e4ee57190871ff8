"""Sums over signals that suffice for the closed forms; they add up over chunks and processes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.processes import ProcessGroup
from gcgp.inference.shapes import Matrix, PerSignal, Rows

SUBSPACE_ITERATIONS = 2
SPAN_TOLERANCE = 1e-13
"""Share of the largest eigenvalue of ΣΦᵀΦ above which a direction counts as spanned."""

MIN_CONTRAST = 1e-6
"""Share of the prior variance: signals that differ less are identical up to rounding."""


def gram(rows: Rows) -> Matrix:
    """Σ φφᵀ of the rows. NumPy recognizes the symmetry and takes half the time of torch."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    array = rows.numpy()
    return torch.from_numpy(array.T @ array)


@dataclass
class Statistics:
    """Per group g of signals (a class, say) with features φ, targets t and residuals r, all in float64."""

    gram: Float[Tensor, "groups M M"]
    """Σ φφᵀ."""
    cross: Float[Tensor, "groups M"]
    """Σ φt."""
    squares: Float[Tensor, "groups"]
    """Σ t²."""
    residual: Float[Tensor, "groups"]
    """Σ r, where r = kff − |φ|² is the prior variance that the features do not explain.

    Estimates of r may be negative. Their sum is unbiased; where it is used, a negative sum counts as 0.
    """
    count: Float[Tensor, "groups"]

    @classmethod
    def empty(cls, groups: int, size: int) -> Statistics:
        """The sums over no signals."""
        shapes = [(groups, size, size), (groups, size), (groups,), (groups,), (groups,)]
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def add(self, features: Rows, group: Int[Tensor, "n"], targets: PerSignal, residual: PerSignal) -> None:
        """Add a chunk of signals."""
        for g in torch.unique(group).tolist():
            member = group == g
            rows, t = features[member], targets[member]
            self.gram[g] += gram(rows)
            self.cross[g].addmv_(rows.T, t)
            self.squares[g] += t @ t
            self.residual[g] += residual[member].sum()
            self.count[g] += len(rows)

    def reduce(self, processes: ProcessGroup) -> None:
        """Replace the sums by those over the signals of all processes."""
        processes.sum(*(getattr(self, column.name) for column in fields(self)))

    def without(self, part: Statistics) -> Statistics:
        """The sums over the signals that are not in the part."""
        return Statistics(*(getattr(self, f.name) - getattr(part, f.name) for f in fields(self)))

    def contrast(self) -> float:
        """Mean squared distance of the signals from their mean in the space of the kernel.

        Unlike their mean prior variance it does not count what all signals have in common. Targets must be 1.
        """
        total = self.count.sum().clamp_min(1.0)
        diagonal = self.gram.diagonal(dim1=1, dim2=2).sum() + self.residual.sum().clamp_min(0.0)
        mean = self.cross.sum(dim=0) / total
        return float((diagonal / total - mean @ mean).clamp_min(MIN_CONTRAST * diagonal / total))

    def span(self) -> Float[Tensor, "M r"]:
        """An orthonormal basis of the span of the features of all signals."""
        values, vectors = torch.linalg.eigh(self.gram.sum(dim=0))
        return vectors[:, values > SPAN_TOLERANCE * values[-1].clamp_min(0.0)]

    def principal(self, count: int) -> Float[Tensor, "M count"]:
        """An orthonormal basis of approximately the `count` principal directions of the features.

        By subspace iteration: an eigendecomposition would take longer than everything done with its result.
        """
        total = self.gram.sum(dim=0)
        start = torch.linspace(0, len(total) - 1, count).round().long()
        basis = torch.linalg.qr(total[:, start]).Q
        for _ in range(SUBSPACE_ITERATIONS):
            basis = torch.linalg.qr(total @ basis).Q
        return basis

    def along(self, basis: Float[Tensor, "M r"]) -> Statistics:
        """Those of the features projected on an orthonormal basis; the rest is added to the residual."""
        gram = basis.T @ self.gram @ basis
        whole, projected = (sums.diagonal(dim1=1, dim2=2).sum(dim=1) for sums in (self.gram, gram))
        residual = self.residual + (whole - projected).clamp_min(0.0)
        return replace(self, gram=gram, cross=self.cross @ basis, residual=residual)
