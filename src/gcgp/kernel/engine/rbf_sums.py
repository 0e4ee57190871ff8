"""Sums of exp(−½|x − y|²) over patches with hand-written gradients, for the RBF kernel.

Autograd would allocate six arrays per block, where one loop and three matrix products suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gcgp._runtime.threads import parallel_map, shares
from gcgp.kernel.engine.blocks import (
    Batch,
    Blocks,
    Exponents,
    add_exponentials,
    block_elements,
    compiled,
    cut,
    padded_batches,
    scaled,
)
from gcgp.kernel.engine.precision import signal_means
from gcgp.patches import Patches


class RBFSums(torch.autograd.Function):
    """Σ_i m_i exp(−½|(x_i − y_j)/ℓ|²) over the rows of x of each signal; gradients recompute blocks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "P dim"],
        m: Float[Tensor, "P"],
        y: Float[Tensor, "M dim"],
        lengthscale: Float[Tensor, "..."],
        offsets: Int[Tensor, "N_plus_1"],
    ) -> Float[Tensor, "N M"]:
        """The sums."""
        ctx.save_for_backward(x, m, y, lengthscale, offsets)
        left, right = (scaled(rows, y.mean(dim=0), lengthscale) for rows in (x, y))
        patches = Patches(x.detach(), m.detach(), offsets, torch.arange(len(x)))
        exponents = Exponents(left, right)
        return Blocks(exponents.exp, exponents=exponents).sums(patches, len(y))

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "N M"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, None]:
        """With W_ij = m_i G_nj exp(…): Σ_j W_ij(y_j − x_i) for x_i, Σ_i W_ij(x_i − y_j) for y_j, Σ_j W_ij/m_i
        for m_i and, in each dimension, Σ_ij W_ij(x_i − y_j)² for ln ℓ.
        """
        x, m, y, lengthscale, offsets = ctx.saved_tensors
        for_x, for_m, for_y, for_lengthscale, _ = ctx.needs_input_grad
        left, right = (scaled(rows, y.mean(dim=0), lengthscale) for rows in (x, y))
        exponents = Exponents(left, right)
        signal_of = Patches(x, m, offsets, torch.arange(len(x))).signal_of
        x, y, x_and_one, y_and_one = left[:, :-2], right[:, :-2], left[:, :-1], right[:, :-1]
        x_gradient = x.new_empty(x.shape) if for_x else None
        m_gradient = torch.empty_like(m)
        gradient = gradient.contiguous()

        def moments_of(share: Sequence[slice]) -> Tensor:
            moments = torch.zeros(y_and_one.shape, dtype=torch.float64)
            for part in share:
                weights = exponents(part)
                _weigh_exponentials(weights, gradient, signal_of[part], m[part], m_gradient[part])
                if x_gradient is not None:
                    sums = weights @ y_and_one
                    x_gradient[part] = sums[:, :-1] - sums[:, -1:] * x[part]
                moments += weights.T @ x_and_one[part]
            return moments

        moments = torch.zeros(y_and_one.shape, dtype=torch.float64)
        for part in parallel_map(moments_of, shares(cut(len(x), block_elements(x) // max(1, len(y))))):
            moments += part
        columns = moments[:, -1:]
        lengthscale_gradient = None
        if for_lengthscale:
            squares = (m * m_gradient).double() @ x.double().square()
            squares = squares + (columns * y.double().square()).sum(dim=0)
            squares -= 2 * (moments[:, :-1] * y).sum(dim=0)
            lengthscale_gradient = squares.to(lengthscale) / lengthscale
            if lengthscale.numel() == 1:
                lengthscale_gradient = lengthscale_gradient.sum().reshape(lengthscale.shape)
        return (
            x_gradient.div_(lengthscale) if x_gradient is not None else None,
            m_gradient if for_m else None,
            ((moments[:, :-1] - columns * y) / lengthscale).to(y.dtype) if for_y else None,
            lengthscale_gradient,
            None,
        )


class RBFDoubleSums(torch.autograd.Function):
    """Σ_i Σ_j m_i m_j exp(−½|x_i − x_j|²) over the rows of each signal.

    Gradients follow from Σ_j m_j exp(…) and Σ_j m_j x_j exp(…) of each row i, which the forward pass computes
    if they are needed. So blocks are not recomputed.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "P dim"],
        m: Float[Tensor, "P"],
        offsets: Int[Tensor, "N_plus_1"],
    ) -> Float[Tensor, "N"]:
        """The sums."""
        patches = Patches(x.detach(), m.detach(), offsets, torch.arange(len(x)))
        signal_of, m = patches.signal_of, m.detach()
        left = scaled(x, signal_means(patches)[signal_of], x.new_ones(1))
        exponents, x, counts = Exponents(left, left), left[:, :-2], offsets.diff()
        large = counts * counts > block_elements(x)
        batches = list(padded_batches(offsets, ~large, block_elements(x)))
        spans = [*zip(offsets[:-1][large].tolist(), offsets[1:][large].tolist(), strict=True)]
        out = torch.zeros(len(counts), dtype=torch.float64)
        if not any(ctx.needs_input_grad[:2]):

            def sums_of(share: Sequence[Batch]) -> list[Tensor]:
                return [_small_sums(exponents, rows, inside, m) for _, rows, inside in share]

            sums = chain.from_iterable(parallel_map(sums_of, shares(batches)))
            for (signals, _, _), values in zip(batches, sums, strict=True):
                out[signals] = values
            out[large] = _large_sums(exponents, m, spans)
            return out.to(x.dtype)
        moments = torch.zeros(len(x), x.shape[1] + 1, dtype=x.dtype)
        weighted = left[:, :-1] * m[:, None]

        def set_moments(share: Sequence[Batch]) -> None:
            for _, rows, inside in share:
                others = weighted[rows].mul_(inside[..., None])
                moments[rows[inside]] = (exponents.exp(rows, rows) @ others)[inside]

        for _ in parallel_map(set_moments, shares(batches)):
            pass
        for first, last in spans:
            _add_large_moments(exponents, weighted, first, last, moments)
        out.index_add_(0, signal_of, (m * moments[:, -1]).double())
        ctx.save_for_backward(x, m, signal_of, moments)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "N"]) -> tuple[Tensor, Tensor, None]:
        """2 G m_i (Σ_j m_j k_ij x_j − x_i Σ_j m_j k_ij) for x_i and 2 G Σ_j m_j k_ij for m_i."""
        x, m, signal_of, moments = ctx.saved_tensors
        factor = 2 * gradient[signal_of]
        x_gradient = moments[:, :-1] - moments[:, -1:] * x
        return x_gradient.mul_((factor * m)[:, None]), factor * moments[:, -1], None


def _small_sums(
    exponents: Exponents, rows: Int[Tensor, "b P"], inside: Bool[Tensor, "b P"], m: Float[Tensor, "total"]
) -> Float[Tensor, "b"]:
    """mᵀ K m of each signal of a batch."""
    weights = torch.where(inside, m[rows], 0)
    if not compiled(m):
        return ((exponents.exp(rows, rows) @ weights[..., None])[..., 0] * weights).sum(dim=-1).double()
    from gcgp.kernel.engine.loops import symmetric_sums

    out = torch.empty(len(rows), dtype=torch.float64)
    symmetric_sums(exponents(rows, rows).numpy(), weights.numpy(), out.numpy())
    return out


def _upper_blocks(first: int, last: int, elements: int) -> list[tuple[slice, slice]]:
    """Blocks on and above the diagonal of the rows of one signal."""
    count = -(-(last - first) // max(1, int(elements**0.5)))
    parts = [slice(first + p.start, first + p.stop) for p in cut(last - first, -(-(last - first) // count))]
    return [(a, b) for i, a in enumerate(parts) for b in parts[i:]]


def _large_sums(
    exponents: Exponents, m: Float[Tensor, "total"], spans: Sequence[tuple[int, int]]
) -> Float[Tensor, "large"]:
    """mᵀ K m of the rows of each span; threads share the blocks of all of them."""
    tasks = [(k, pair) for k, span in enumerate(spans) for pair in _upper_blocks(*span, block_elements(m))]

    def sums_of(share: Sequence[tuple[int, tuple[slice, slice]]]) -> Tensor:
        totals = torch.zeros(len(spans), dtype=torch.float64)
        for k, (a, b) in share:
            if compiled(m):
                sums = torch.zeros(1, len(m[b]), dtype=torch.float64)
                add_exponentials(exponents(a, b), m[a], torch.zeros(len(m[a]), dtype=torch.int64), sums)
                total = sums[0] @ m[b].double()
            else:
                total = (m[a] @ (exponents.exp(a, b) @ m[b])).double()
            totals[k] += total if a == b else 2 * total
        return totals

    out = torch.zeros(len(spans), dtype=torch.float64)
    for totals in parallel_map(sums_of, shares(tasks)):
        out += totals
    return out


def _add_large_moments(
    exponents: Exponents,
    weighted: Float[Tensor, "total dim_plus_1"],
    first: int,
    last: int,
    moments: Float[Tensor, "total dim_plus_1"],
) -> None:
    """Add Σ_j m_j k_ij (x_j, 1) to the rows of one signal."""

    def moments_of(pair: tuple[slice, slice]) -> tuple[slice, slice, Tensor, Tensor]:
        a, b = pair
        values = exponents.exp(a, b)
        return a, b, values @ weighted[b], values.T @ weighted[a]

    for a, b, of_a, of_b in parallel_map(moments_of, _upper_blocks(first, last, block_elements(weighted))):
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
    """Replace exponents by m_i G exp(…), with the gradient G of the signal, and `sums` by Σ_j G exp(…)."""
    if compiled(exponents):
        from gcgp.kernel.engine.loops import weigh_exponentials

        arrays = (exponents, gradient, signal_of, m, sums)
        weigh_exponentials(*(array.numpy() for array in arrays))
        return
    exponents.clamp_max_(0.0).exp_().mul_(gradient[signal_of])
    torch.sum(exponents, dim=1, out=sums)
    exponents.mul_(m[:, None])
