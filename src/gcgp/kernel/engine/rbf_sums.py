"""Sums of exp(−½|x − y|²) over patches, with pull-backs by hand: the RBF, which is nearly always the kernel.

By hand because autograd makes six arrays of a block, where a loop and three products do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.threads import parallel_map, shares
from gcgp.kernel.engine.blocks import Blocks, add_exponentials, block_elements, compiled, cut, scaled
from gcgp.kernel.engine.precision import signal_means
from gcgp.patches import Patches

Batch = tuple[Tensor, Tensor, Tensor]
"""Signals, their rows, side by side, and which of these rows are not just filling."""


class RBFSums(torch.autograd.Function):
    """Σ_i m_i exp(−½|(x_i − y_j)/ℓ|²) over each signal's rows of x; the pull-back recomputes blocks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "P dim"],
        m: Float[Tensor, "P"],
        y: Float[Tensor, "M dim"],
        lengthscale: Float[Tensor, "..."],
        offsets: Int[Tensor, "N_plus_1"],
    ) -> Float[Tensor, "N M"]:
        """The sums, by signals."""
        ctx.save_for_backward(x, m, y, lengthscale, offsets)
        left, right = (scaled(rows, y.mean(dim=0), lengthscale) for rows in (x, y))
        patches = Patches(x.detach(), m.detach(), offsets, torch.arange(len(x)))
        return Blocks.of_products(left, right).sums(patches, slice(None), len(y))

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "N M"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, None]:
        """With W = m G exp(…), row by row: W(y − x) for x, Wᵀ(x − y) for y, and Σ W/m for m.

        And for ln ℓ, in each dimension, Σ W (x − y)², which sums over rows and columns give.
        """
        x, m, y, lengthscale, offsets = ctx.saved_tensors
        for_x, for_m, for_y, for_lengthscale, _ = ctx.needs_input_grad
        left, right = (scaled(rows, y.mean(dim=0), lengthscale) for rows in (x, y))
        blocks = Blocks.of_products(left, right)
        signal_of = Patches(x, m, offsets, torch.arange(len(x))).signal_of
        x, y, x_and_one, y_and_one = left[:, :-2], right[:, :-2], left[:, :-1], right[:, :-1]
        pulled_x = x.new_empty(x.shape) if for_x else None
        pulled_m = torch.empty_like(m)
        moments = torch.zeros(y_and_one.shape, dtype=torch.float64, device=y.device)
        gradient = gradient.contiguous()

        def of_share(share: Sequence[slice]) -> Tensor:
            moments = torch.zeros(y_and_one.shape, dtype=torch.float64, device=y.device)
            for part in share:
                assert blocks.exponents is not None
                weights = blocks.exponents(part, slice(None))
                _weigh_exponentials(weights, gradient, signal_of[part], m[part], pulled_m[part])
                if pulled_x is not None:
                    sums = weights @ y_and_one
                    pulled_x[part] = sums[:, :-1] - sums[:, -1:] * x[part]
                moments += weights.T @ x_and_one[part]
            return moments

        parts = cut(len(x), block_elements(x) // max(1, len(y)))
        for share in parallel_map(of_share, shares(parts)):
            moments += share
        columns, rows = moments[:, -1:], (m * pulled_m).double()
        pulled_lengthscale = None
        if for_lengthscale:
            squares = rows @ x.double().square() + (columns * y.double().square()).sum(dim=0)
            squares -= 2 * (moments[:, :-1] * y).sum(dim=0)
            pulled_lengthscale = squares.to(lengthscale) / lengthscale
            if lengthscale.numel() == 1:
                pulled_lengthscale = pulled_lengthscale.sum().reshape(lengthscale.shape)
        return (
            pulled_x.div_(lengthscale) if pulled_x is not None else None,
            pulled_m if for_m else None,
            ((moments[:, :-1] - columns * y) / lengthscale).to(y.dtype) if for_y else None,
            pulled_lengthscale,
            None,
        )


class RBFDoubleSums(torch.autograd.Function):
    """Σ_i Σ_j m_i m_j exp(−½|x_i − x_j|²) over the rows of each signal.

    The gradient of a signal's sum is a multiple of two others that come along with it: Σ_j m_j exp(…) and
    Σ_j m_j x_j exp(…) for each row i. So blocks are not computed again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "P dim"],
        m: Float[Tensor, "P"],
        offsets: Int[Tensor, "N_plus_1"],
    ) -> Float[Tensor, "N"]:
        """The sums, by signals."""
        whole = Patches(x.detach(), m.detach(), offsets, torch.arange(len(x)))
        signal_of, m = whole.signal_of, m.detach()
        left = scaled(x, signal_means(whole)[signal_of], x.new_ones(1))
        x = left[:, :-2]
        blocks, counts = Blocks.of_products(left, left), offsets.diff()
        large = counts * counts > block_elements(x)
        out = torch.zeros(len(counts), dtype=torch.float64, device=x.device)
        small = torch.nonzero(~large)[:, 0]
        small = small[torch.argsort(counts[small], stable=True)]  # like sizes together: little padding
        batches = list(padded(offsets, small, block_elements(x)))
        rest = torch.nonzero(large)[:, 0].tolist()
        traced = any(ctx.needs_input_grad[:2])
        if not traced:

            def sums_of(share: Sequence[Batch]) -> list[Tensor]:
                return [_small_sums(blocks, rows, inside, m) for _, rows, inside in share]

            sums = chain.from_iterable(parallel_map(sums_of, shares(batches)))
            for (signals, _, _), own in zip(batches, sums, strict=True):
                out[signals] = own
            for n, total in zip(rest, _large_sums(blocks, m, offsets, rest), strict=True):
                out[n] = total
            return out.to(x.dtype)
        moments = torch.zeros(len(x), x.shape[1] + 1, dtype=x.dtype, device=x.device)
        weighted = left[:, :-1] * m[:, None]

        def add_moments(share: Sequence[Batch]) -> None:
            for _, rows, inside in share:
                moments[rows[inside]] = _small_moments(blocks, rows, inside, weighted)

        for _ in parallel_map(add_moments, shares(batches)):
            pass
        for n in rest:
            _add_large_moments(blocks, weighted, int(offsets[n]), int(offsets[n + 1]), moments)
        out.index_add_(0, signal_of, (m * moments[:, -1]).double())
        ctx.save_for_backward(x, m, signal_of, moments)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "N"]) -> tuple[Tensor, Tensor, None]:
        """2 g m_i (Σ_j m_j k_ij x_j − x_i Σ_j m_j k_ij) for x_i and 2 g Σ_j m_j k_ij for m_i."""
        x, m, signal_of, moments = ctx.saved_tensors
        factor = 2 * gradient[signal_of]
        pulled = moments[:, :-1] - moments[:, -1:] * x
        return pulled.mul_((factor * m)[:, None]), factor * moments[:, -1], None


def padded(
    offsets: Int[Tensor, "N_plus_1"], signals: Int[Tensor, "n"], elements: int
) -> Iterator[tuple[Int[Tensor, "b"], Int[Tensor, "b P"], Tensor]]:
    """Batches of signals, sorted by size: their rows, and which of these are not just filling.

    Padding repeats the first row of the signal, so that no signal depends on rows of another.
    """
    starts, counts = offsets[signals], offsets.diff()[signals]
    sizes = counts.tolist()
    start = sum(size == 0 for size in sizes)
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * sizes[stop] ** 2 <= elements:
            stop += 1
        place = torch.arange(sizes[stop - 1])
        inside = place < counts[start:stop, None]
        rows = starts[start:stop, None] + torch.where(inside, place, 0)
        yield signals[start:stop], rows, inside
        start = stop


def _small_sums(
    blocks: Blocks, rows: Int[Tensor, "b P"], inside: Tensor, m: Float[Tensor, "total"]
) -> Float[Tensor, "b"]:
    """mᵀ K m for each set of rows."""
    assert blocks.exponents is not None
    weights = torch.where(inside, m[rows], 0)
    exponents = blocks.exponents(rows, rows)
    if not compiled(exponents):
        return (
            ((exponents.clamp_max_(0.0).exp_() @ weights[..., None])[..., 0] * weights).sum(dim=-1).double()
        )
    from gcgp.kernel.engine.loops import symmetric_sums

    out = torch.empty(len(rows), dtype=torch.float64)
    symmetric_sums(exponents.numpy(), weights.numpy(), out.numpy())
    return out


def _small_moments(
    blocks: Blocks, rows: Int[Tensor, "b P"], inside: Tensor, weighted: Float[Tensor, "total dim_plus_1"]
) -> Float[Tensor, "r dim_plus_1"]:
    """Σ_j m_j k_ij (x_j, 1) of each row that is not just filling."""
    others = weighted[rows].mul_(inside[..., None])
    return (blocks.values(rows, rows) @ others)[inside]


def _pairs(first: int, last: int, elements: int) -> list[tuple[slice, slice]]:
    """Blocks on and above the diagonal."""
    count = -(-(last - first) // max(1, int(elements**0.5)))
    parts = [slice(first + p.start, first + p.stop) for p in cut(last - first, -(-(last - first) // count))]
    return [(a, b) for i, a in enumerate(parts) for b in parts[i:]]


def _large_sums(
    blocks: Blocks, m: Float[Tensor, "total"], offsets: Int[Tensor, "N_plus_1"], signals: Sequence[int]
) -> list[Tensor]:
    """mᵀ K m of large signals; each thread takes a share of all their blocks."""
    ends, elements = offsets.tolist(), block_elements(m)
    tasks = [(k, pair) for k, n in enumerate(signals) for pair in _pairs(ends[n], ends[n + 1], elements)]

    def of_share(share: Sequence[tuple[int, tuple[slice, slice]]]) -> dict[int, Tensor]:
        totals: dict[int, Tensor] = {}
        for k, (a, b) in share:
            assert blocks.exponents is not None
            exponents = blocks.exponents(a, b)
            if compiled(exponents):
                sums = torch.zeros(1, exponents.shape[1], dtype=torch.float64)
                add_exponentials(exponents, m[a], torch.zeros(len(exponents), dtype=torch.int64), sums)
                total = sums[0] @ m[b].double()
            else:
                total = (m[a] @ (exponents.clamp_max_(0.0).exp_() @ m[b])).double()
            totals[k] = totals.get(k, 0.0) + (total if a == b else 2 * total)
        return totals

    out = [torch.zeros((), dtype=torch.float64, device=m.device) for _ in signals]
    for totals in parallel_map(of_share, shares(tasks)):
        for k, total in totals.items():
            out[k] = out[k] + total
    return out


def _add_large_moments(
    blocks: Blocks,
    weighted: Float[Tensor, "total dim_plus_1"],
    first: int,
    last: int,
    moments: Float[Tensor, "total dim_plus_1"],
) -> None:
    """Add Σ_j m_j k_ij (x_j, 1) of the rows of one large signal."""

    def of_pair(pair: tuple[slice, slice]) -> tuple[slice, slice, Tensor, Tensor]:
        a, b = pair
        values = blocks.values(a, b)
        return a, b, values @ weighted[b], values.T @ weighted[a]

    for a, b, of_a, of_b in parallel_map(of_pair, _pairs(first, last, block_elements(weighted))):
        moments[a] += of_a
        if a != b:
            moments[b] += of_b


def _weigh_exponentials(
    exponents: Float[Tensor, "P Q"],
    gradient: Float[Tensor, "N Q"],
    signal_of: Int[Tensor, "P"],
    m: Float[Tensor, "P"],
    sums: Float[Tensor, "P"],
) -> None:
    """In place of the exponents, m_i G exp(…) with the gradient G of the row's signal; its sums without m."""
    if compiled(exponents):
        from gcgp.kernel.engine.loops import weigh_exponentials

        arrays = (exponents, gradient, signal_of, m, sums)
        weigh_exponentials(*(array.numpy() for array in arrays))
        return
    exponents.clamp_max_(0.0).exp_().mul_(gradient[signal_of])
    torch.sum(exponents, dim=1, out=sums)
    exponents.mul_(m[:, None])
