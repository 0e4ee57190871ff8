"""Sums over signals that are all the closed forms need; they add up over chunks and machines."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.processes import ProcessGroup

POWERS = 2
"""Steps of subspace iteration."""
SPANNED = 1e-13
"""A direction counts if this share of the largest sum of squares of features lies along it."""


def gram(rows: Float[Tensor, "n M"]) -> Float[Tensor, "M M"]:
    """Σ φφᵀ of the rows. NumPy sees that this is symmetric and takes half the time that torch does."""
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

    An estimated r may be negative. The sum is right on average; where it is used, it counts as 0 if negative.
    """
    count: Float[Tensor, "groups"]

    @classmethod
    def empty(cls, groups: int, size: int) -> Statistics:
        """Of no signals."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64)

        return cls(zeros(groups, size, size), zeros(groups, size), *(zeros(groups) for _ in range(3)))

    def add(
        self,
        features: Float[Tensor, "n M"],
        group: Int[Tensor, "n"],
        targets: Float[Tensor, "n"],
        residual: Float[Tensor, "n"],
    ) -> None:
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
        processes.sum(self.gram, self.cross, self.squares, self.residual, self.count)

    def without(self, part: Statistics) -> Statistics:
        """Those of the signals that are not in the part."""
        return Statistics(*(getattr(self, each.name) - getattr(part, each.name) for each in fields(self)))

    def span(self) -> Float[Tensor, "M r"]:
        """An orthonormal basis of what the features of all signals span, to rounding."""
        values, vectors = torch.linalg.eigh(self.gram.sum(dim=0))
        return vectors[:, values > SPANNED * values[-1].clamp_min(0.0)]

    def principal(self, count: int) -> Float[Tensor, "M count"]:
        """An orthonormal basis of about the `count` directions in which features of signals are largest.

        By subspace iteration: an eigendecomposition would take longer than all that is done with its result.
        """
        total = self.gram.sum(dim=0)
        start = torch.linspace(0, len(total) - 1, count).round().long()
        basis = torch.linalg.qr(total[:, start]).Q
        for _ in range(POWERS):
            basis = torch.linalg.qr(total @ basis).Q
        return basis

    def along(self, basis: Float[Tensor, "M r"]) -> Statistics:
        """Those of the features' coordinates in an orthonormal basis; what is left out joins the residual."""
        gram = basis.T @ self.gram @ basis
        whole, kept = (each.diagonal(dim1=1, dim2=2).sum(dim=1) for each in (self.gram, gram))
        return replace(
            self, gram=gram, cross=self.cross @ basis, residual=self.residual + (whole - kept).clamp_min(0.0)
        )
