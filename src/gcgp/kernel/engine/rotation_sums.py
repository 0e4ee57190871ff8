"""Sums over patches and all rotations of other patches at once: the quick way of a kernel that pools them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.threads import parallel_map, shares
from gcgp.kernel.base import distance_form
from gcgp.kernel.engine.blocks import add_exponentials, block_elements, compiled, cut, on_cpu, segments
from gcgp.kernel.engine.circular_correlation import CircularCorrelation
from gcgp.kernel.rotation_average import RotationAverage
from gcgp.patches import Patches

ROWS = 32
"""Of a tile of values, with as many columns as fit the cache: products of a few long rows take twice
the time."""


@dataclass(frozen=True)
class RotationSums:
    """k_g between rows of x and all rotations of rows of y, divided by `scale`."""

    correlation: CircularCorrelation
    of_squared_distance: Callable[[Tensor], Tensor] | None
    scale: Tensor | float

    @classmethod
    def of(
        cls,
        kernel: RotationAverage,
        x: Float[Tensor, "P dim"],
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
    ) -> RotationSums | None:
        """None with gradients, or if the base kernel has no quick way.

        `center` is subtracted from the rows of both, for accuracy: one for all, or one per row of x and y.
        """
        form = distance_form(kernel.base_kernel)
        recomputed = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *kernel.parameters()))
        if form is None or form.kink or recomputed or not on_cpu(x):
            return None
        lengthscale = form.lengthscale.detach().to(x.dtype)
        correlation = CircularCorrelation.of(
            x.detach(), y.detach(), center.detach().to(x), lengthscale, kernel.rotations
        )
        scale = form.scale.detach() if isinstance(form.scale, Tensor) else form.scale
        return None if correlation is None else cls(correlation, form.of_squared_distance, scale)

    def sums(self, patches: Patches) -> Float[Tensor, "N Q"]:
        """The sum over each signal's patches of multiplicity × the mean over turns of a row of y."""
        signal_of, m = patches.signal_of, patches.multiplicity
        tiles = cut(self.correlation.right.shape[2], self._columns)

        def of_share(share: Sequence[slice]) -> tuple[slice, Tensor]:
            first, last = int(signal_of[share[0].start]), int(signal_of[share[-1].stop - 1])
            sums = [m.new_zeros(last + 1 - first, t.stop - t.start, dtype=torch.float64) for t in tiles]
            for columns, part in zip(tiles, sums, strict=True):
                for rows in share:
                    self._add(rows, columns, m[rows], signal_of[rows] - first, part)
            return slice(first, last + 1), torch.cat(sums, dim=1)

        out = torch.zeros(len(patches), self.correlation.right.shape[2], dtype=torch.float64)
        blocks = cut(len(patches.values), ROWS)
        if blocks:
            for signals, sums in parallel_map(of_share, shares(blocks)):
                out[signals] += sums
        return out.to(patches.values.dtype) * self.scale

    def diagonal(self, patches: Patches) -> Float[Tensor, "N"]:
        """The double sum over each signal's own patches, which are x and y.

        It is symmetric: what stands beside the blocks of its diagonal counts twice on one side.
        """
        m = patches.multiplicity
        pieces = [
            (n, slice(start + block.start, start + block.stop), stop)
            for n, (start, stop) in enumerate(segments(patches))
            for block in cut(stop - start, ROWS)
        ]

        def of_piece(piece: tuple[int, slice, int]) -> Tensor:
            _, rows, stop = piece
            total = torch.zeros((), dtype=torch.float64)
            alone = torch.zeros(rows.stop - rows.start, dtype=torch.int64)
            for tile in cut(stop - rows.start, self._columns):
                columns = slice(rows.start + tile.start, rows.start + tile.stop)
                part = torch.zeros(1, tile.stop - tile.start, dtype=torch.float64)
                self._add(rows, columns, m[rows], alone, part)
                part[:, max(0, rows.stop - columns.start) :] *= 2
                total += part[0] @ m[columns].double()
            return total

        out = torch.zeros(len(patches), dtype=torch.float64)
        for (n, _, _), total in zip(pieces, parallel_map(of_piece, pieces), strict=True):
            out[n] += total
        return out.to(patches.values.dtype) * self.scale

    @property
    def _columns(self) -> int:
        """Of a tile of values."""
        left = self.correlation.left
        return max(1, block_elements(left) // (ROWS * len(left)))

    def _add(
        self,
        rows: slice,
        columns: slice,
        factor: Float[Tensor, "p"],
        signal_of: Int[Tensor, "p"],
        sums: Float[Tensor, "n q"],
    ) -> None:
        """Add the mean over turns of the rows' values, times their factors, to the sums of their signals."""
        each = self.correlation.exponents(rows, columns)
        exponents, turns = each.flatten(0, 1), len(each)
        factor, signal_of = (factor / turns).repeat(turns), signal_of.repeat(turns)
        h = self.of_squared_distance
        if h is None and compiled(exponents):
            add_exponentials(exponents, factor, signal_of, sums)
        else:
            values = exponents.clamp_max_(0.0)
            values = values.exp_() if h is None else h(values.mul_(-2.0))
            sums.index_add_(0, signal_of, (values * factor[:, None]).double())
