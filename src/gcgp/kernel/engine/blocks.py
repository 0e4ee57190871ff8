"""Kernel values in blocks that stay in a core's cache, and their sums over the patches of signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gcgp._runtime.threads import parallel_map, scratch, shares
from gcgp.kernel.base import LARGEST_COORDINATE, distance_form, evaluate
from gcgp.patches import Patches

BLOCK_ELEMENTS = 1 << 18
"""Kernel values computed at a time: 1 MB of float32, about a core's second-level cache."""
BLOCK_ELEMENTS_ELSEWHERE = 1 << 26
"""On a device that is no CPU."""
BLOCK_ELEMENTS_WITH_GRADIENT = 1 << 22

Rows = slice | Tensor


def block_elements(values: Tensor) -> int:
    """Kernel values to compute at a time where these values are."""
    return BLOCK_ELEMENTS if on_cpu(values) else BLOCK_ELEMENTS_ELSEWHERE


def on_cpu(values: Tensor) -> bool:
    """Whether values are where our own loops and pull-backs run; elsewhere it is torch alone."""
    return values.device.type == "cpu"


def compiled(values: Tensor) -> bool:
    """Whether there are compiled loops for numbers of this kind and place."""
    return values.dtype == torch.float32 and on_cpu(values)


@dataclass(frozen=True)
class Blocks:
    """k_g between any rows of x and any rows of y, divided by `scale`."""

    values: Callable[[Rows, Rows], Tensor]
    """Without gradients, a block may be overwritten by the next one in the same thread."""
    scale: Tensor | float
    recomputed: bool = False
    """Whether a backward pass will follow, for which blocks are not to be kept."""
    exponents: Callable[[Rows, Rows], Tensor] | None = None
    """Like `values`, but their logarithms, if the kernel is an exponential of a product."""

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        x: Float[Tensor, "P dim"],
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
        exact: bool = False,
    ) -> Blocks:
        """Blocks of a kernel, the quick ones where it is a smooth function of distance without gradients.

        `center` is subtracted from the rows of both, for accuracy: one for all, or one per row of x and y.
        `exact` computes distances by differences of coordinates.
        """
        form = distance_form(kernel)
        recomputed = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *kernel.parameters()))
        if form is None or form.kink or recomputed or exact:
            return cls(lambda a, b: evaluate(kernel, x[a], y[b], exact=exact), 1.0, recomputed)
        lengthscale = form.lengthscale.detach().to(x)
        left = scaled(x, center, lengthscale)
        right = left if y is x else scaled(y, center, lengthscale)
        scale = form.scale.detach() if isinstance(form.scale, Tensor) else form.scale
        return cls.of_products(left, right, form.of_squared_distance, scale)

    @classmethod
    def of_products(
        cls,
        left: Float[Tensor, "P dim_plus_2"],
        right: Float[Tensor, "Q dim_plus_2"],
        of_squared_distance: Callable[[Tensor], Tensor] | None = None,
        scale: Tensor | float = 1.0,
    ) -> Blocks:
        """Blocks of rows that `scaled` made: −½|x−y|² = x·y − ½|y|² − ½|x|² is one product of them."""
        columns = right[:, [*range(right.shape[1] - 2), -1, -2]].T.contiguous()

        def exponents(a: Rows, b: Rows) -> Tensor:
            x, y = left[a], columns[:, b] if isinstance(b, slice) else columns.T[b].mT
            if torch.is_grad_enabled():  # autograd may keep the block
                return torch.matmul(x, y)
            return torch.matmul(x, y, out=scratch((*x.shape[:-1], y.shape[-1]), x))

        def values(a: Rows, b: Rows) -> Tensor:
            product = exponents(a, b)
            if of_squared_distance is None:
                return product.clamp_max_(0.0).exp_()
            return of_squared_distance(product.mul_(-2.0))

        return cls(values, scale, exponents=exponents if of_squared_distance is None else None)

    def piece(self, function: Callable[[], Tensor]) -> Tensor:
        """What `function` makes of blocks, computed again in the backward pass."""
        return checkpoint(function, use_reentrant=False) if self.recomputed else function()

    def sums(self, patches: Patches, columns: slice, width: int) -> Float[Tensor, "N M"]:
        """Σ over each signal's patches of multiplicity × kernel, walking the flat rows block by block."""
        total, signal_of = len(patches.values), patches.signal_of
        if self.recomputed or patches.multiplicity.requires_grad or not on_cpu(patches.values):
            return self._traced_sums(patches, columns, width, signal_of)
        quick = self.exponents is not None and compiled(patches.values)
        kind = torch.float64 if quick else patches.values.dtype
        size = max(1, block_elements(patches.values) // max(width, 1))

        def of_share(share: Sequence[slice]) -> tuple[slice, Tensor]:
            first, last = int(signal_of[share[0].start]), int(signal_of[share[-1].stop - 1])
            sums = torch.zeros(last + 1 - first, width, dtype=kind, device=patches.values.device)
            for part in share:
                own, m = signal_of[part] - first, patches.multiplicity[part]
                if quick and self.exponents is not None:
                    add_exponentials(self.exponents(part, columns), m, own, sums)
                else:
                    _add_segments(self.values(part, columns), m, own, sums)
            return slice(first, last + 1), sums

        out = torch.zeros(len(patches), width, dtype=kind, device=patches.values.device)
        if total:
            for signals, sums in parallel_map(of_share, shares(cut(total, size))):
                out[signals] += sums
        return out.to(patches.values.dtype)

    def _traced_sums(
        self, patches: Patches, columns: slice, width: int, signal_of: Int[Tensor, "P"]
    ) -> Float[Tensor, "N M"]:
        out = patches.values.new_zeros(len(patches), width)
        size = max(BLOCK_ELEMENTS_WITH_GRADIENT, block_elements(out)) // max(width, 1)
        for part in cut(len(patches.values), size):
            signals, place = torch.unique_consecutive(signal_of[part], return_inverse=True)
            signals, place = signals.to(out.device), place.to(out.device)

            def partial(part: slice = part, place: Tensor = place, count: int = len(signals)) -> Tensor:
                weighted = self.values(part, columns) * patches.multiplicity[part, None]
                return weighted.new_zeros(count, width).index_add(0, place, weighted)

            out = out.index_add(0, signals, self.piece(partial))
        return out


def cut(total: int, size: int) -> list[slice]:
    """Rows 0 to `total`, in pieces of so many."""
    size = max(1, size)
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def segments(patches: Patches) -> Iterator[tuple[int, int]]:
    """Where the rows of each signal start and stop."""
    ends = patches.offsets.tolist()
    return pairwise(ends)


def add_exponentials(
    exponents: Float[Tensor, "P Q"],
    m: Float[Tensor, "P"],
    signal_of: Int[Tensor, "P"],
    out: Float[Tensor, "N Q"],
) -> None:
    """out[signal_of[i]] += m_i exp(exponents[i]), where `compiled` says that this can be."""
    from gcgp.kernel.engine.loops import add_exponentials

    add_exponentials(exponents.numpy(), m.numpy(), signal_of.numpy(), out.numpy())


def _add_segments(
    block: Float[Tensor, "P Q"], m: Float[Tensor, "P"], signal_of: Int[Tensor, "P"], out: Float[Tensor, "N Q"]
) -> None:
    """out[signal_of[i]] += m_i block[i], by products."""
    signals, counts = torch.unique_consecutive(signal_of, return_counts=True)
    ends = [0, *counts.cumsum(0).tolist()]
    for n, (a, b) in zip(signals.tolist(), pairwise(ends), strict=True):
        out[n].addmv_(block[a:b].T, m[a:b])


def scaled(
    x: Float[Tensor, "P dim"], center: Float[Tensor, "*rows dim"], lengthscale: Float[Tensor, "..."]
) -> Float[Tensor, "P dim_plus_2"]:
    """x around the center, over the lengthscale; then 1; then minus half the squared norm of that."""
    dim, x, lengthscale = x.shape[1], x.detach(), lengthscale.detach()
    rows = x.new_ones(len(x), dim + 2)
    own = rows[:, :dim]
    torch.sub(x, center.detach().to(x), out=own)
    own.div_(lengthscale)
    largest = LARGEST_COORDINATE[x.dtype]
    own.clamp_(-largest, largest)
    torch.mul(torch.linalg.vecdot(own, own), -0.5, out=rows[:, dim + 1])
    return rows
