"""Sums over patches and all rotations of other patches at once: the quick way of a kernel that pools them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.kernel.base import distance_form
from gcgp.kernel.blocks import add_exponentials, block_elements, by_hand, compiled, cut, segments
from gcgp.kernel.correlation import Correlation
from gcgp.kernel.rotations import RotationPooled
from gcgp.kernel.workers import in_order, shares
from gcgp.patches import Patches


@dataclass(frozen=True)
class Turning:
    """k_g between rows of x and all rotations of rows of y, divided by `scale`."""

    correlation: Correlation
    of_squared_distance: Callable[[Tensor], Tensor] | None
    scale: Tensor | float

    @classmethod
    def of(
        cls, kernel: RotationPooled, x: Float[Tensor, "P dim"], y: Float[Tensor, "Q dim"]
    ) -> Turning | None:
        """None with gradients, or if the base kernel has no quick way."""
        form = distance_form(kernel.base_kernel)
        recomputed = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *kernel.parameters()))
        if form is None or form.kink or recomputed or not by_hand(x):
            return None
        lengthscale = form.lengthscale.detach().to(x.dtype)
        correlation = Correlation.of(x.detach(), y.detach(), lengthscale, kernel.rotations)
        scale = form.scale.detach() if isinstance(form.scale, Tensor) else form.scale
        return None if correlation is None else cls(correlation, form.of_squared_distance, scale)

    def sums(
        self,
        weights: Float[Tensor, "S"],
        patches: Patches,
        columns: slice,
        turns: Int[Tensor, "S"] | slice = slice(None),
        rows: slice = slice(None),
    ) -> Float[Tensor, "N q"]:
        """Σ over turns and over each signal's patches, among some rows, of weight × multiplicity × kernel."""
        start, stop, _ = rows.indices(len(patches.values))
        width = self.correlation.right[:, :, columns].shape[2]
        signal_of, m = patches.signal_of, patches.multiplicity

        def of_share(share: Sequence[slice]) -> tuple[slice, Tensor]:
            first, last = int(signal_of[start + share[0].start]), int(signal_of[start + share[-1].stop - 1])
            sums = torch.zeros(last + 1 - first, width, dtype=torch.float64)
            for block in share:
                part = slice(start + block.start, start + block.stop)
                exponents = self.correlation.exponents(part, columns, turns).flatten(0, 1)
                factor = (weights[:, None] * m[part]).flatten()
                own = (signal_of[part] - first).repeat(len(weights))
                h = self.of_squared_distance
                if h is None and compiled(exponents):
                    add_exponentials(exponents, factor, own, sums)
                else:
                    values = exponents.exp_() if h is None else h(exponents.mul_(-2.0).clamp_min_(0.0))
                    sums.index_add_(0, own, (values * factor[:, None]).double())
            return slice(first, last + 1), sums

        out = torch.zeros(len(patches), width, dtype=torch.float64)
        parts = cut(stop - start, block_elements(m) // max(1, width * len(weights)))
        if parts:
            for signals, sums in in_order(of_share, shares(parts)):
                out[signals] += sums
        return out

    def diagonal(
        self, turns: Int[Tensor, "S"], weights: Float[Tensor, "S"], patches: Patches
    ) -> Float[Tensor, "N"]:
        """The double sum over each signal's own patches and their turns."""
        out = torch.zeros(len(patches), dtype=torch.float64)
        for n, (start, stop) in enumerate(segments(patches)):
            own = slice(start, stop)
            sums = self.sums(weights, patches, own, turns, own)[n]
            out[n] = sums @ patches.multiplicity[own].double()
        return out.to(patches.values.dtype) * self.scale
