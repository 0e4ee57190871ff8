"""Sums of a base kernel over patches: the engine of the library.

Every sum is Σ_i Σ_j m_i m_j k_g(x_i, y_j) over the patches of one signal or a pair of signals, with the
multiplicities m. Blocks of values stay in cache, and each core takes blocks of its own. The RBF is one matrix
product with the norms folded in and one loop that takes exponentials and adds them up; its pull-backs are
written by hand. Gradients of other kernels are autograd's, with blocks recomputed in the backward pass. So
memory never grows with the number of kernel values.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.kernel.base import distance_form, prior_variance
from gcgp.kernel.blocks import Blocks, block_elements, by_hand, segments
from gcgp.kernel.gaussian import GaussianDoubleSums, GaussianSums, padded
from gcgp.kernel.rotations import RotationPooled
from gcgp.kernel.turned import Turning
from gcgp.patches import Patches


def kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Kuf transposed: for each signal and inducing patch, Σ_v m_v k_g(Z[v], U)."""
    if type(kernel) is RotationPooled:
        turning = Turning.of(kernel, patches.values, inducing)
        if turning is None or patches.multiplicity.requires_grad:
            return kernel.pooled(kfu(kernel.base_kernel, patches, kernel.turned(inducing)))
        return turning.sums(patches)
    form = distance_form(kernel)
    if form is not None and form.of_squared_distance is None and by_hand(inducing):
        lengthscale = form.lengthscale.to(inducing)
        m, offsets = patches.multiplicity, patches.offsets
        return GaussianSums.apply(patches.values, m, inducing, lengthscale, offsets) * form.scale
    blocks = Blocks.of(kernel, patches.values, inducing)
    return blocks.sums(patches, slice(None), len(inducing)) * blocks.scale


def kff(kernel: Kernel, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']) for each pair of signals, a signal of `right` at a time."""
    if type(kernel) is RotationPooled:
        turns = [
            kff(kernel.base_kernel, left, replace(right, values=right.values[:, turn]))
            for turn in kernel.rotations
        ]
        return torch.stack(turns).mean(dim=0)
    blocks = Blocks.of(kernel, left.values, right.values)
    columns = []
    for start, stop in segments(right):
        sums = blocks.sums(left, slice(start, stop), stop - start)
        columns.append(sums @ right.multiplicity[start:stop])
    return torch.stack(columns, dim=1) * blocks.scale


def kff_diagonal(
    kernel: Kernel,
    patches: Patches,
    *,
    draws: int | None = None,
    seed: int = 0,
    numbers: Int[np.ndarray, "N"] | None = None,
) -> Float[Tensor, "N"]:
    """k(ψ, ψ) of every signal: the double sum over its own patches.

    With `draws`, signals of more patches than that get an unbiased estimate from that many patches,
    drawn in proportion to their multiplicities. What is drawn depends on the seed and the signal's number
    (its place, if none are given), and not on how signals are cut into chunks.
    """
    if draws is not None and draws < 2:
        raise ValueError(f"draws={draws!r}: an estimate needs two patches at least")
    if draws is not None and bool((patches.offsets.diff() > draws).any()):
        numbers = np.arange(len(patches)) if numbers is None else numbers
        return _partly_sampled(kernel, patches, draws, seed, numbers)
    if type(kernel) is RotationPooled:
        turning = Turning.of(kernel, patches.values, patches.values)
        if turning is not None and not patches.multiplicity.requires_grad:
            return turning.diagonal(patches)
        # A single turn makes the sum unsymmetric in its two patches; all turns together do not.
        parts = [
            _double_sums(kernel.base_kernel, patches, patches.values[:, turn]) for turn in kernel.rotations
        ]
        return torch.stack(parts).mean(dim=0)
    form = distance_form(kernel)
    if form is not None and form.of_squared_distance is None and by_hand(patches.values):
        x = patches.values / form.lengthscale.to(patches.values)
        return GaussianDoubleSums.apply(x, patches.multiplicity, patches.offsets) * form.scale
    return _double_sums(kernel, patches, patches.values)


def _double_sums(
    kernel: Kernel, patches: Patches, others: Float[Tensor, "total_patches dim"]
) -> Float[Tensor, "N"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']), where Z' are `others`: the patches themselves, or turned."""
    blocks = Blocks.of(kernel, patches.values, others)
    counts = patches.offsets.diff()
    large = counts * counts > block_elements(patches.values)
    out = patches.values.new_zeros(len(patches))
    small = torch.nonzero(~large)[:, 0]
    small = small[torch.argsort(counts[small], stable=True)]
    for signals, rows, inside in padded(patches.offsets, small, block_elements(patches.values)):
        m = torch.where(inside.to(out.device), patches.multiplicity[rows], 0)

        def quadratic(rows: Tensor = rows, m: Tensor = m) -> Tensor:
            return ((blocks.values(rows, rows) @ m[..., None])[..., 0] * m).sum(dim=-1)

        out = out.index_add(0, signals.to(out.device), blocks.piece(quadratic))
    rest = torch.nonzero(large)[:, 0]
    values = [_large_double_sum(blocks, patches, n) for n in rest.tolist()]
    if values:
        out = out.index_add(0, rest.to(out.device), torch.stack(values))
    return out * blocks.scale


def _large_double_sum(blocks: Blocks, patches: Patches, signal: int) -> Float[Tensor, ""]:
    """mᵀ K m of one large signal, some rows at a time."""
    first, last = int(patches.offsets[signal]), int(patches.offsets[signal + 1])
    own = slice(first, last)
    step = max(1, block_elements(patches.values) // (last - first))
    total = torch.zeros((), dtype=torch.float64, device=patches.values.device)
    for start in range(first, last, step):
        rows = slice(start, min(start + step, last))

        def bilinear(rows: slice = rows) -> Tensor:
            return patches.multiplicity[rows] @ (blocks.values(rows, own) @ patches.multiplicity[own])

        total = total + blocks.piece(bilinear)
    return total.to(patches.values.dtype)


def _partly_sampled(
    kernel: Kernel, patches: Patches, draws: int, seed: int, numbers: Int[np.ndarray, "N"]
) -> Float[Tensor, "N"]:
    """The diagonal, where signals of more patches than `draws` are estimated.

    (Σ|m|)² times the mean of ±k over pairs of independent draws with probabilities |m| / Σ|m|.
    """
    from gcgp.kernel.compiled import draw_rows

    counts = patches.offsets.diff()
    magnitude = patches.multiplicity.detach().abs().cpu().numpy()
    rows, mass = draw_rows(magnitude, patches.offsets.numpy(), draws, seed, numbers)
    chosen = torch.from_numpy(rows)
    m = patches.multiplicity[chosen]
    drawn = torch.repeat_interleave(counts > draws, counts.clamp_max(draws)).to(m.device)
    sign = m / m.detach().abs().clamp_min(torch.finfo(m.dtype).tiny)
    offsets = torch.cat([counts.new_zeros(1), counts.clamp_max(draws).cumsum(0)])
    values = patches.values[chosen]
    some = Patches(values, torch.where(drawn, sign, m), offsets, patches.vertices[chosen])
    pairs = kff_diagonal(kernel, some)
    own = torch.where(drawn, prior_variance(kernel, values) * sign.square(), 0)
    pairs = pairs - torch.zeros_like(pairs).index_add(0, some.signal_of.to(own.device), own.to(pairs.dtype))
    return pairs * torch.from_numpy(mass).to(pairs)
