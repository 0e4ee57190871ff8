"""Sums of a base kernel over patches: the engine of the library.

Every sum is Σ_i Σ_j m_i m_j k_g(x_i, y_j) over the patches of one signal or a pair of signals, with the
multiplicities m. Blocks of values stay in cache, and each core takes blocks of its own. The RBF is one matrix
product with the norms folded in and one loop that takes exponentials and adds them up; its pull-backs are
written by hand. Gradients of other kernels are autograd's, with blocks recomputed in the backward pass. So
memory never grows with the number of kernel values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gcgp.kernel.base import distance_form, doubled, is_function_of_distance, prior_variance
from gcgp.kernel.engine.blocks import Blocks, block_elements, on_cpu, segments
from gcgp.kernel.engine.precision import coarse_signals, signal_means, wide_signals
from gcgp.kernel.engine.rbf_sums import RBFDoubleSums, RBFSums, padded
from gcgp.kernel.engine.rotation_sums import RotationSums
from gcgp.kernel.rotation_average import RotationAverage
from gcgp.patches import Patches


def kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Kuf transposed: for each signal and inducing patch, Σ_v m_v k_g(Z[v], U)."""
    if len(patches.values) == 0:
        return inducing.new_zeros(len(patches), len(inducing))
    coarse = coarse_signals(kernel, patches, inducing)
    if bool(coarse.any()):
        return _apart(
            coarse,
            patches,
            lambda part: _kfu(kernel, part, inducing),
            partial(_precise_kfu, kernel, inducing),
        )
    return _kfu(kernel, patches, inducing)


def _kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """`kfu` of signals for which products of their dtype are accurate."""
    center = inducing.detach().mean(dim=0)
    if type(kernel) is RotationAverage:
        turning = RotationSums.of(kernel, patches.values, inducing, center)
        if turning is None or patches.multiplicity.requires_grad:
            return kernel.pooled(_kfu(kernel.base_kernel, patches, kernel.turned(inducing)))
        return turning.sums(patches)
    form = distance_form(kernel)
    if form is not None and form.of_squared_distance is None and on_cpu(inducing):
        lengthscale = form.lengthscale.to(inducing)
        m, offsets = patches.multiplicity, patches.offsets
        return RBFSums.apply(patches.values, m, inducing, lengthscale, offsets) * form.scale
    blocks = Blocks.of(kernel, patches.values, inducing, center)
    return blocks.sums(patches, slice(None), len(inducing)) * blocks.scale


def _precise_kfu(kernel: Kernel, inducing: Float[Tensor, "M dim"], patches: Patches) -> Float[Tensor, "N M"]:
    """`kfu` in float64 or, if it is float64 already, by differences of coordinates."""
    if patches.values.dtype == torch.float32:
        return kfu(doubled(kernel), patches.double(), inducing.double()).to(inducing.dtype)
    if type(kernel) is RotationAverage:
        return kernel.pooled(_precise_kfu(kernel.base_kernel, kernel.turned(inducing), patches))
    blocks = Blocks.of(kernel, patches.values, inducing, inducing.detach().mean(dim=0), exact=True)
    return blocks.sums(patches, slice(None), len(inducing)) * blocks.scale


def _apart(
    chosen: Bool[Tensor, "N"],
    patches: Patches,
    plain: Callable[[Patches], Tensor],
    precise: Callable[[Patches], Tensor],
) -> Tensor:
    """The rows of `precise` for the chosen signals and of `plain` for the others, in the order of signals."""
    if bool(chosen.all()):
        return precise(patches)
    others, these = torch.nonzero(~chosen)[:, 0], torch.nonzero(chosen)[:, 0]
    parts = [plain(patches.of(others)), precise(patches.of(these))]
    return torch.cat(parts)[torch.argsort(torch.cat([others, these]))]


def kff(kernel: Kernel, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']) for each pair of signals, a signal of `right` at a time."""
    columns = []
    for start, stop in segments(right):
        if start == stop:
            columns.append(left.values.new_zeros(len(left)))
            continue
        columns.append(kfu(kernel, left, right.values[start:stop]) @ right.multiplicity[start:stop])
    return torch.stack(columns, dim=1)


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
    if len(patches.values) == 0:
        return patches.values.new_zeros(len(patches))
    if draws is not None and bool((patches.offsets.diff() > draws).any()):
        numbers = np.arange(len(patches)) if numbers is None else numbers
        return _partly_sampled(kernel, patches, draws, seed, numbers)
    wide = wide_signals(kernel, patches)
    if bool(wide.any()):
        return _apart(wide, patches, partial(_diagonal, kernel), partial(_precise_diagonal, kernel))
    return _diagonal(kernel, patches)


def _diagonal(kernel: Kernel, patches: Patches) -> Float[Tensor, "N"]:
    """`kff_diagonal` of signals for which products of their dtype are accurate."""
    if type(kernel) is RotationAverage:
        center = signal_means(patches)[patches.signal_of]
        turning = RotationSums.of(kernel, patches.values, patches.values, center)
        if turning is not None and not patches.multiplicity.requires_grad:
            return turning.diagonal(patches)
        # A single turn makes the sum unsymmetric in its two patches; all turns together do not.
        parts = [
            _double_sums(kernel.base_kernel, patches, patches.values[:, turn]) for turn in kernel.rotations
        ]
        return torch.stack(parts).mean(dim=0)
    form = distance_form(kernel)
    if form is not None and form.of_squared_distance is None and on_cpu(patches.values):
        x = patches.values / form.lengthscale.to(patches.values)
        return RBFDoubleSums.apply(x, patches.multiplicity, patches.offsets) * form.scale
    return _double_sums(kernel, patches, patches.values)


def _precise_diagonal(kernel: Kernel, patches: Patches) -> Float[Tensor, "N"]:
    """`kff_diagonal` in float64 or, if it is float64 already, by differences of coordinates."""
    if patches.values.dtype == torch.float32:
        return kff_diagonal(doubled(kernel), patches.double()).to(patches.values.dtype)
    if type(kernel) is RotationAverage:
        turned = [patches.values[:, turn] for turn in kernel.rotations]
        parts = [_double_sums(kernel.base_kernel, patches, others, exact=True) for others in turned]
        return torch.stack(parts).mean(dim=0)
    return _double_sums(kernel, patches, patches.values, exact=True)


def _double_sums(
    kernel: Kernel, patches: Patches, others: Float[Tensor, "total_patches dim"], exact: bool = False
) -> Float[Tensor, "N"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']), where Z' are `others`: the patches themselves, or turned."""
    blocks = Blocks.of(kernel, patches.values, others, signal_means(patches)[patches.signal_of], exact)
    counts = patches.offsets.diff()
    # GPyTorch may center all signals of a batch on one mean, so signals are evaluated one at a time.
    alone = not is_function_of_distance(kernel)
    large = (counts * counts > block_elements(patches.values)) | (alone & (counts > 0))
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


def independent_halves(
    patches: Patches, draws: int, seed: int, numbers: Int[np.ndarray, "N"]
) -> tuple[Patches, Patches]:
    """Two independent samples of each signal's patches, each of half the draws, that stand for all.

    Patches are drawn in proportion to their multiplicities. A bilinear form in the two samples is right on
    average, self-pairs included. What is drawn depends on the seed and the signal's number.
    """
    from gcgp.kernel.engine.loops import draw_rows

    if draws < 2 or bool((patches.offsets.diff() <= draws).any()):
        raise ValueError(f"draws={draws!r}: expected at least 2, and fewer than any signal has patches")
    magnitude = patches.multiplicity.detach().abs().cpu().numpy()
    rows, mass = draw_rows(magnitude, patches.offsets.numpy(), draws, seed, numbers)
    totals = torch.from_numpy(np.sqrt(mass * (draws * (draws - 1))))
    by_signal, half = torch.from_numpy(rows).reshape(len(patches), draws), draws // 2
    return (
        _standing_for_all(patches, by_signal[:, :half], totals),
        _standing_for_all(patches, by_signal[:, half : 2 * half], totals),
    )


def _standing_for_all(patches: Patches, rows: Int[Tensor, "N draws"], totals: Float[Tensor, "N"]) -> Patches:
    """These rows of each signal, with multiplicities of equal size that sum up to the total."""
    flat, draws = rows.flatten(), rows.shape[1]
    m = patches.multiplicity[flat]
    sign = m / m.detach().abs().clamp_min(torch.finfo(m.dtype).tiny)
    share = torch.repeat_interleave(totals / draws, draws).to(m)
    offsets = torch.arange(len(rows) + 1) * draws
    return Patches(patches.values[flat], sign * share, offsets, patches.vertices[flat])


def _partly_sampled(
    kernel: Kernel, patches: Patches, draws: int, seed: int, numbers: Int[np.ndarray, "N"]
) -> Float[Tensor, "N"]:
    """The diagonal, where signals of more patches than `draws` are estimated.

    (Σ|m|)² times the mean of ±k over pairs of independent draws with probabilities |m| / Σ|m|.
    """
    from gcgp.kernel.engine.loops import draw_rows

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
