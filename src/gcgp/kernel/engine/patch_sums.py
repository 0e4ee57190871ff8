"""Sums over patches of signals and over pairs of them: the fastest implementation that is accurate enough."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Bool, Float
from torch import Tensor

from gcgp.kernel.base import converted, distance_form, is_function_of_distance
from gcgp.kernel.engine.blocks import Blocks, block_elements, cut, on_cpu, padded_batches
from gcgp.kernel.engine.precision import coarse_signals, signal_means, wide_signals
from gcgp.kernel.engine.rbf_sums import RBFDoubleSums, RBFSums
from gcgp.kernel.engine.rotation_sums import RotationSums
from gcgp.kernel.rotation_average import RotationAverage
from gcgp.patches import Patches


def single_sums(kernel: Kernel, patches: Patches, rows: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Σ_v m_v k_g(Z_n[v], row), with more precision for signals that need it."""
    return _by_precision(
        coarse_signals(kernel, patches, rows),
        kernel,
        patches,
        lambda kernel, part, exact: _single_sums(kernel, part, rows, exact),
        lambda kernel, part: single_sums(kernel, part, rows.double()),
    )


def double_sums(kernel: Kernel, patches: Patches) -> Float[Tensor, "N"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z_n[v], Z_n[v']), with more precision for signals that need it."""
    return _by_precision(wide_signals(kernel, patches), kernel, patches, _double_sums, double_sums)


def _by_precision(
    chosen: Bool[Tensor, "N"],
    kernel: Kernel,
    patches: Patches,
    compute: Callable[[Kernel, Patches, bool], Tensor],
    compute_double: Callable[[Kernel, Patches], Tensor],
) -> Tensor:
    """`compute(kernel, patches, exact)`, for the chosen signals in float64 or, in float64, with `exact`."""

    def precise(part: Patches) -> Tensor:
        if part.values.dtype == torch.float32:
            return compute_double(converted(kernel, torch.float64), part.double()).to(torch.float32)
        return compute(kernel, part, True)

    if not bool(chosen.any()):
        return compute(kernel, patches, False)
    if bool(chosen.all()):
        return precise(patches)
    rest, these = torch.nonzero(~chosen)[:, 0], torch.nonzero(chosen)[:, 0]
    parts = [compute(kernel, patches.select_signals(rest), False), precise(patches.select_signals(these))]
    return torch.cat(parts)[torch.argsort(torch.cat([rest, these]))]


def _single_sums(
    kernel: Kernel, patches: Patches, rows: Float[Tensor, "M dim"], exact: bool
) -> Float[Tensor, "N M"]:
    """`single_sums` by matrix products or, if `exact`, by differences of coordinates."""
    center = rows.detach().mean(dim=0)
    if type(kernel) is RotationAverage:
        rotation_sums = None if exact else RotationSums.of(kernel, patches, rows, center)
        if rotation_sums is not None:
            return rotation_sums.sums(patches)
        return kernel.average(_single_sums(kernel.base_kernel, patches, kernel.rotated(rows), exact))
    form = distance_form(kernel)
    if form is not None and form.is_rbf and on_cpu(rows) and not exact:
        lengthscale = form.lengthscale.to(rows)
        sums = RBFSums.apply(patches.values, patches.multiplicity, rows, lengthscale, patches.offsets)
        return sums * form.scale
    blocks = Blocks.of(kernel, patches.values, rows, center, exact)
    return blocks.sums(patches, len(rows)) * blocks.scale


def _double_sums(kernel: Kernel, patches: Patches, exact: bool) -> Float[Tensor, "N"]:
    """`double_sums` by matrix products or, if `exact`, by differences of coordinates."""
    if type(kernel) is RotationAverage:
        center = signal_means(patches)[patches.signal_of]
        rotation_sums = None if exact else RotationSums.of(kernel, patches, patches.values, center)
        if rotation_sums is not None:
            return rotation_sums.diagonal(patches)
        parts = [
            _cross_sums(kernel.base_kernel, patches, patches.values[:, rotation], exact)
            for rotation in kernel.rotations
        ]
        return torch.stack(parts).mean(dim=0)
    form = distance_form(kernel)
    if form is not None and form.is_rbf and on_cpu(patches.values) and not exact:
        x = patches.values / form.lengthscale.to(patches.values)
        return RBFDoubleSums.apply(x, patches.multiplicity, patches.offsets) * form.scale
    return _cross_sums(kernel, patches, patches.values, exact)


def _cross_sums(
    kernel: Kernel, patches: Patches, others: Float[Tensor, "total_patches dim"], exact: bool
) -> Float[Tensor, "N"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z_n[v], Z'_n[v']), where Z' are `others`: the patches, or rotations of them."""
    blocks = Blocks.of(kernel, patches.values, others, signal_means(patches)[patches.signal_of], exact)
    counts, elements = patches.offsets.diff(), block_elements(patches.values)
    large = counts * counts > elements
    if not is_function_of_distance(kernel):
        large |= counts > 0  # GPyTorch may center all signals of a batch on one mean
    out = patches.values.new_zeros(len(patches))
    for signals, rows, inside in padded_batches(patches.offsets, ~large, elements):
        m = torch.where(inside.to(out.device), patches.multiplicity[rows], 0)

        def quadratic(rows: Tensor = rows, m: Tensor = m) -> Tensor:
            return ((blocks.values(rows, rows) @ m[..., None])[..., 0] * m).sum(dim=-1)

        out = out.index_add(0, signals.to(out.device), blocks.recompute(quadratic))
    rest = torch.nonzero(large)[:, 0]
    if len(rest):
        sums = [_large_double_sum(blocks, patches, signal) for signal in rest.tolist()]
        out = out.index_add(0, rest.to(out.device), torch.stack(sums))
    return out * blocks.scale


def _large_double_sum(blocks: Blocks, patches: Patches, signal: int) -> Float[Tensor, ""]:
    """mᵀ K m of one signal, in blocks of rows."""
    first, last = patches.offsets[signal : signal + 2].tolist()
    span = slice(first, last)
    total = torch.zeros((), dtype=torch.float64, device=patches.values.device)
    for part in cut(last - first, block_elements(patches.values) // (last - first)):
        rows = slice(first + part.start, first + part.stop)

        def bilinear(rows: slice = rows) -> Tensor:
            return patches.multiplicity[rows] @ (blocks.values(rows, span) @ patches.multiplicity[span])

        total = total + blocks.recompute(bilinear)
    return total.to(patches.values.dtype)
