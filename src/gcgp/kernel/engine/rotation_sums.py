"""Sums over patches and all rotations of other patches at once, for `RotationAverage` without gradients."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.threads import parallel_map
from gcgp.kernel.base import DistanceForm, distance_form
from gcgp.kernel.engine.blocks import (
    add_exponentials,
    block_elements,
    compiled,
    cut,
    needs_gradient,
    on_cpu,
    threaded_sums,
)
from gcgp.kernel.engine.circular_correlation import CircularCorrelation
from gcgp.kernel.rotation_average import RotationAverage
from gcgp.patches import Patches

ROWS_PER_TILE = 32
"""With as many columns as fit the cache; products of fewer, longer rows take twice as long."""


@dataclass(frozen=True)
class RotationSums:
    """The average of k_g between rows of x and the rotations of rows of y."""

    correlation: CircularCorrelation
    form: DistanceForm

    @classmethod
    def of(
        cls,
        kernel: RotationAverage,
        patches: Patches,
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
    ) -> RotationSums | None:
        """For the patches as x; None if gradients are needed or the base kernel is not supported.

        `center`, one row or one per row of x and y, is subtracted for accuracy.
        """
        x, form = patches.values, distance_form(kernel.base_kernel)
        gradient = patches.multiplicity.requires_grad or needs_gradient(x, y, *kernel.parameters())
        if form is None or form.kink or gradient or not on_cpu(x):
            return None
        lengthscale = form.lengthscale.detach().to(x.dtype)
        correlation = CircularCorrelation.of(
            x.detach(), y.detach(), center.detach().to(x), lengthscale, kernel.rotations
        )
        return None if correlation is None else cls(correlation, form)

    def sums(self, patches: Patches) -> Float[Tensor, "N Q"]:
        """Σ_v m_v k(Z_n[v], y) for each signal and each row of y."""
        blocks = cut(len(patches.values), ROWS_PER_TILE)
        tiles = cut(self.correlation.right.shape[2], self._columns)
        return threaded_sums(self._add, patches, blocks, tiles, torch.float64) * self.form.constant_scale

    def diagonal(self, patches: Patches) -> Float[Tensor, "N"]:
        """The double sum over the patches of each signal, which are x and y.

        The sum is symmetric, so tiles above the diagonal count twice.
        """
        m = patches.multiplicity
        pieces = [
            (n, slice(start + block.start, start + block.stop), stop)
            for n, (start, stop) in enumerate(pairwise(patches.offsets.tolist()))
            for block in cut(stop - start, ROWS_PER_TILE)
        ]

        def sum_of(piece: tuple[int, slice, int]) -> Tensor:
            _, rows, stop = piece
            total = torch.zeros((), dtype=torch.float64)
            signal_of = torch.zeros(rows.stop - rows.start, dtype=torch.int64)
            for tile in cut(stop - rows.start, self._columns):
                columns = slice(rows.start + tile.start, rows.start + tile.stop)
                part = torch.zeros(1, tile.stop - tile.start, dtype=torch.float64)
                self._add(rows, columns, m[rows], signal_of, part)
                part[:, max(0, rows.stop - columns.start) :] *= 2
                total += part[0] @ m[columns].double()
            return total

        out = torch.zeros(len(patches), dtype=torch.float64)
        for (n, _, _), total in zip(pieces, parallel_map(sum_of, pieces), strict=True):
            out[n] += total
        return out.to(patches.values.dtype) * self.form.constant_scale

    @property
    def _columns(self) -> int:
        """Columns of a tile of kernel values."""
        left = self.correlation.left
        return max(1, block_elements(left) // (ROWS_PER_TILE * len(left)))

    def _add(
        self,
        rows: slice,
        columns: slice,
        m: Float[Tensor, "p"],
        signal_of: Int[Tensor, "p"],
        sums: Float[Tensor, "n q"],
    ) -> None:
        """Add m times the average over rotations of the values of a tile to the sums of the signals."""
        rotations = self.correlation.exponents(rows, columns)
        exponents, count = rotations.flatten(0, 1), len(rotations)
        m, signal_of = (m / count).repeat(count), signal_of.repeat(count)
        h = self.form.of_squared_distance
        if h is None and compiled(exponents):
            add_exponentials(exponents, m, signal_of, sums)
        else:
            values = exponents.clamp_max_(0.0)
            values = values.exp_() if h is None else h(values.mul_(-2.0))
            sums.index_add_(0, signal_of, (values * m[:, None]).double())
