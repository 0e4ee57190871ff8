"""Sums of a base kernel over patches, in blocks that stay in cache: the engine of the library.

Every sum is Σ_i Σ_j m_i m_j k_g(x_i, y_j) over the patches of one signal or a pair of signals, with the
multiplicities m. Without gradients the RBF is one matrix product with the norms folded in, and one loop
that takes exponentials and adds them up. With gradients each block is recomputed in
the backward pass, so memory does not grow with the number of patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gcgp.kernel.base import distance_form, evaluate, paired
from gcgp.kernel.correlation import Correlation
from gcgp.kernel.rotations import RotationPooled
from gcgp.patches import Patches

BLOCK_ELEMENTS = 3 << 17
"""Kernel values computed at a time: 1.5 MB of float32, about two cores' second-level caches."""
BLOCK_ELEMENTS_WITH_GRADIENT = 1 << 22

Rows = slice | Tensor


@dataclass(frozen=True)
class _Blocks:
    """k_g between any rows of x and any rows of y, divided by `scale`."""

    values: Callable[[Rows, Rows, Tensor | None], Tensor]
    """Of the rows of x, the rows of y, and a place for the result, if there is one."""
    scale: Tensor | float
    recomputed: bool = False
    """Whether a backward pass will follow, for which blocks are not to be kept."""
    exponents: Callable[[Rows, Rows, Tensor | None], Tensor] | None = None
    """Like `values`, but their logarithms, if the kernel is an exponential of a product."""

    def piece(self, function: Callable[[], Tensor]) -> Tensor:
        """What `function` makes of blocks, computed again in the backward pass."""
        return checkpoint(function, use_reentrant=False) if self.recomputed else function()


def _blocks(kernel: Kernel, x: Float[Tensor, "P dim"], y: Float[Tensor, "Q dim"]) -> _Blocks:
    form = distance_form(kernel)
    recomputed = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *kernel.parameters()))
    if form is None or form.kink or recomputed:
        return _Blocks(lambda a, b, _: evaluate(kernel, x[a], y[b]), 1.0, recomputed)
    centre = y.mean(dim=0)
    lengthscale = form.lengthscale.detach().to(x.dtype)
    left = _scaled_with_norms(x.detach(), centre, lengthscale)
    right = left if y is x else _scaled_with_norms(y.detach(), centre, lengthscale)
    scale = form.scale.detach() if isinstance(form.scale, Tensor) else form.scale
    return _blocks_of_products(left, right, form.of_squared_distance, scale)


def _gaussian_blocks(x: Float[Tensor, "P dim"], y: Float[Tensor, "Q dim"]) -> _Blocks:
    """exp(−½|x − y|²) of rows that have been centred and divided by lengthscales."""
    nought, one = x.new_zeros(x.shape[1]), x.new_ones(1)
    return _blocks_of_products(
        _scaled_with_norms(x, nought, one), _scaled_with_norms(y, nought, one), None, 1.0
    )


def _blocks_of_products(
    left: Float[Tensor, "P dim_plus_2"],
    right: Float[Tensor, "Q dim_plus_2"],
    of_squared_distance: Callable[[Tensor], Tensor] | None,
    scale: Tensor | float,
) -> _Blocks:
    """−½|x−y|² = x·y − ½|x|² − ½|y|²: both norms are two more columns of the product."""
    columns = right[:, [*range(right.shape[1] - 2), -1, -2]].T.contiguous()

    def exponents(a: Rows, b: Rows, out: Tensor | None) -> Tensor:
        other = columns[:, b] if isinstance(b, slice) else columns.T[b].mT
        return torch.matmul(left[a], other, out=out)

    def values(a: Rows, b: Rows, out: Tensor | None) -> Tensor:
        product = exponents(a, b, out)
        return product.exp_() if of_squared_distance is None else of_squared_distance(product.mul_(-2.0))

    return _Blocks(values, scale, exponents=exponents if of_squared_distance is None else None)


def _scaled_with_norms(
    x: Float[Tensor, "P dim"], centre: Float[Tensor, "dim"], lengthscale: Float[Tensor, "..."]
) -> Float[Tensor, "P dim_plus_2"]:
    """(x − centre) / lengthscale, then minus half the squared norm of that, then 1, side by side."""
    dim = x.shape[1]
    rows = x.new_ones(len(x), dim + 2)
    torch.addcmul(-centre / lengthscale, x, (1 / lengthscale).expand(dim), out=rows[:, :dim])
    rows[:, dim] = -0.5 * rows[:, :dim].square().sum(dim=1)
    return rows


def kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Kuf transposed: for each signal and inducing patch, Σ_v m_v k_g(Z[v], U)."""
    if type(kernel) is RotationPooled:
        turning = _turning(kernel, patches.values, inducing)
        if turning is None or patches.multiplicity.requires_grad:
            return kernel.pooled(kfu(kernel.base_kernel, patches, kernel.turned(inducing)))
        weights = torch.full((kernel.turns,), 1 / kernel.turns, dtype=inducing.dtype)
        return _turned_sums(turning, weights, patches, slice(None)).to(inducing.dtype) * turning.scale
    form = distance_form(kernel)
    tensors = (patches.values, patches.multiplicity, inducing, *kernel.parameters())
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    if differentiated and form is not None and form.of_squared_distance is None:
        lengthscale = form.lengthscale.to(inducing.dtype)
        centre = inducing.detach().mean(dim=0)
        x, y = (patches.values - centre) / lengthscale, (inducing - centre) / lengthscale
        return GaussianSums.apply(x, patches.multiplicity, y, patches.offsets) * form.scale
    blocks = _blocks(kernel, patches.values, inducing)
    return _sums(blocks, patches, slice(None), len(inducing)) * blocks.scale


class GaussianSums(torch.autograd.Function):
    """Σ_i m_i exp(−½|x_i − y_j|²) over each signal's rows of x, with a pull-back that recomputes blocks.

    By hand because autograd makes six arrays of a block, where a loop and three products do.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "P dim"],
        multiplicity: Float[Tensor, "P"],
        y: Float[Tensor, "M dim"],
        offsets: Int[Tensor, "N_plus_1"],
    ) -> Float[Tensor, "N M"]:
        """The sums, by signals."""
        ctx.save_for_backward(x, multiplicity, y, offsets)
        patches = Patches(x.detach(), multiplicity.detach(), offsets, torch.arange(len(x)))
        return _sums(_gaussian_blocks(x.detach(), y.detach()), patches, slice(None), len(y))

    @staticmethod
    def backward(
        ctx: Any, gradient: Float[Tensor, "N M"]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """With W = m G exp(…), row by row: W(y − x) for x, Wᵀ(x − y) for y, and Σ W/m for m."""
        x, m, y, offsets = ctx.saved_tensors
        blocks = _gaussian_blocks(x, y)
        assert blocks.exponents is not None
        signal_of = Patches(x, m, offsets, torch.arange(len(x))).signal_of
        x_and_one, y_and_one = _with_one(x), _with_one(y)
        pulled_x, pulled_m = torch.empty_like(x), torch.empty_like(m)
        moments = torch.zeros(y_and_one.shape, dtype=torch.float64)
        gradient = gradient.contiguous()
        step = max(1, BLOCK_ELEMENTS // max(1, len(y)))
        buffer = x.new_empty(min(step, len(x)), len(y))
        for start in range(0, len(x), step):
            part = slice(start, min(start + step, len(x)))
            weights = blocks.exponents(part, slice(None), buffer[: part.stop - start])
            _weigh_exponentials(weights, gradient, signal_of[part], m[part], pulled_m[part])
            sums = weights @ y_and_one
            pulled_x[part] = sums[:, :-1] - sums[:, -1:] * x[part]
            moments += weights.T @ x_and_one[part]
        pulled_y = (moments[:, :-1] - moments[:, -1:] * y).to(y.dtype)
        return pulled_x, pulled_m, pulled_y, None


def _with_one(x: Float[Tensor, "P dim"]) -> Float[Tensor, "P dim_plus_1"]:
    return torch.cat([x, x.new_ones(len(x), 1)], dim=1)


def kff(kernel: Kernel, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']) for each pair of signals, a signal of `right` at a time."""
    if type(kernel) is RotationPooled:
        turns = [
            kff(kernel.base_kernel, left, replace(right, values=right.values[:, turn]))
            for turn in kernel.rotations
        ]
        return torch.stack(turns).mean(dim=0)
    blocks = _blocks(kernel, left.values, right.values)
    columns = []
    for start, stop in _segments(right):
        sums = _sums(blocks, left, slice(start, stop), stop - start)
        columns.append(sums @ right.multiplicity[start:stop])
    return torch.stack(columns, dim=1) * blocks.scale


def kff_diagonal(
    kernel: Kernel, patches: Patches, *, draws: int | None = None, seed: int = 0, first: int = 0
) -> Float[Tensor, "N"]:
    """k(ψ, ψ) of every signal: the double sum over its own patches.

    With `draws`, signals of more patches than that get an unbiased estimate from that many patches,
    drawn in proportion to their multiplicities. What is drawn depends on the seed and the signal's number,
    which starts at `first`, and not on how signals are cut into chunks.
    """
    if draws is not None and draws < 2:
        raise ValueError(f"draws={draws!r}: an estimate needs two patches at least")
    if type(kernel) is RotationPooled:
        turning = None if draws is not None else _turning(kernel, patches.values, patches.values)
        if turning is not None and not patches.multiplicity.requires_grad:
            turns, weights = kernel.half_of_them()
            return _turned_diagonal(turning, turns, weights.to(patches.values.dtype), patches)
        # A single turn makes the sum unsymmetric in its two patches; all turns together do not.
        parts = [
            _diagonal(kernel.base_kernel, patches, patches.values[:, turn], draws, seed, first)
            for turn in kernel.rotations
        ]
        return torch.stack(parts).mean(dim=0)
    return _diagonal(kernel, patches, patches.values, draws, seed, first)


def _diagonal(
    kernel: Kernel,
    patches: Patches,
    others: Float[Tensor, "total_patches dim"],
    draws: int | None,
    seed: int,
    first: int,
) -> Float[Tensor, "N"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']), where Z' are `others`: the patches themselves, or turned."""
    blocks = _blocks(kernel, patches.values, others)
    counts = patches.offsets.diff()
    large = counts * counts > BLOCK_ELEMENTS if draws is None else counts > draws
    out = torch.zeros(len(patches), dtype=patches.values.dtype)
    small = torch.nonzero(~large)[:, 0]
    small = small[torch.argsort(counts[small], stable=True)]  # like sizes together: little padding
    for signals, rows, inside in _padded(patches, small):
        m = torch.where(inside, patches.multiplicity[rows], 0)
        out = out.index_add(0, signals, _double_sums(blocks, rows, m))
    rest = torch.nonzero(large)[:, 0]
    if draws is None:
        values = [_blocked_double_sum(blocks, patches, n) for n in rest.tolist()]
        return out.index_add(0, rest, torch.stack(values)) * blocks.scale if values else out * blocks.scale
    out = out * blocks.scale
    for signals in torch.split(rest, max(1, BLOCK_ELEMENTS // draws**2)):
        out = out.index_add(
            0, signals, _sampled(kernel, blocks, patches, others, signals, draws, seed, first)
        )
    return out


@dataclass(frozen=True)
class _Turning:
    """k_g between rows of x and all rotations of rows of y, divided by `scale`."""

    correlation: Correlation
    of_squared_distance: Callable[[Tensor], Tensor] | None
    scale: Tensor | float


def _turning(kernel: RotationPooled, x: Float[Tensor, "P dim"], y: Float[Tensor, "Q dim"]) -> _Turning | None:
    """The quick way to all rotations at once, without gradients, if the base kernel has one."""
    form = distance_form(kernel.base_kernel)
    recomputed = torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *kernel.parameters()))
    if form is None or form.kink or recomputed:
        return None
    lengthscale = form.lengthscale.detach().to(x.dtype)
    correlation = Correlation.of(x.detach(), y.detach(), lengthscale, kernel.rotations)
    scale = form.scale.detach() if isinstance(form.scale, Tensor) else form.scale
    return None if correlation is None else _Turning(correlation, form.of_squared_distance, scale)


def _turned_sums(
    turning: _Turning,
    weights: Float[Tensor, "S"],
    patches: Patches,
    columns: slice,
    turns: Int[Tensor, "S"] | slice = slice(None),
    rows: slice = slice(None),
) -> Float[Tensor, "N q"]:
    """Σ over turns and over each signal's patches, among some rows, of weight × multiplicity × kernel."""
    start, stop, _ = rows.indices(len(patches.values))
    width = turning.correlation.right[:, :, columns].shape[2]
    signal_of, m = patches.signal_of, patches.multiplicity
    out = torch.zeros(len(patches), width, dtype=torch.float64)
    step = max(1, BLOCK_ELEMENTS // max(1, width * len(weights)))
    for at in range(start, stop, step):
        part = slice(at, min(at + step, stop))
        exponents = turning.correlation.exponents(part, columns, turns).flatten(0, 1)
        factor = (weights[:, None] * m[part]).flatten()
        signals = signal_of[part].repeat(len(weights))
        h = turning.of_squared_distance
        if h is None and _compiled(exponents):
            _add_exponentials(exponents, factor, signals, out)
            continue
        values = exponents.exp_() if h is None else h(exponents.mul_(-2.0).clamp_min_(0.0))
        out.index_add_(0, signals, (values * factor[:, None]).double())
    return out


def _turned_diagonal(
    turning: _Turning, turns: Int[Tensor, "S"], weights: Float[Tensor, "S"], patches: Patches
) -> Float[Tensor, "N"]:
    """The double sum over each signal's own patches and their turns."""
    out = torch.zeros(len(patches), dtype=torch.float64)
    for n, (start, stop) in enumerate(_segments(patches)):
        own = slice(start, stop)
        sums = _turned_sums(turning, weights, patches, own, turns, own)[n]
        out[n] = sums @ patches.multiplicity[own].double()
    return out.to(patches.values.dtype) * turning.scale


def _segments(patches: Patches) -> Iterator[tuple[int, int]]:
    ends = patches.offsets.tolist()
    return pairwise(ends)


def _sums(blocks: _Blocks, patches: Patches, columns: slice, width: int) -> Float[Tensor, "N M"]:
    """Σ over each signal's patches of multiplicity × kernel, walking the flat rows block by block."""
    total = len(patches.values)
    out = torch.zeros(len(patches), width, dtype=patches.values.dtype)
    if blocks.recomputed or patches.multiplicity.requires_grad:
        signal_of = patches.signal_of
        rows = max(1, BLOCK_ELEMENTS_WITH_GRADIENT // max(width, 1))
        for start in range(0, total, rows):
            part = slice(start, min(start + rows, total))

            signals, place = torch.unique_consecutive(signal_of[part], return_inverse=True)

            def partial(part: slice = part, place: Tensor = place, count: int = len(signals)) -> Tensor:
                weighted = blocks.values(part, columns, None) * patches.multiplicity[part, None]
                return weighted.new_zeros(count, width).index_add(0, place, weighted)

            out = out.index_add(0, signals, blocks.piece(partial))
        return out
    rows = max(1, BLOCK_ELEMENTS // max(width, 1))
    buffer = torch.empty(min(rows, total), width, dtype=out.dtype)
    segments = list(_segments(patches))
    signal_of = patches.signal_of
    signal = 0
    compiled = blocks.exponents is not None and _compiled(patches.values)
    if compiled:
        out = out.double()
    for start in range(0, total, rows):
        stop = min(start + rows, total)
        part = slice(start, stop)
        if compiled:
            assert blocks.exponents is not None
            exponents = blocks.exponents(part, columns, buffer[: stop - start])
            _add_exponentials(exponents, patches.multiplicity[part], signal_of[part], out)
            continue
        block = blocks.values(part, columns, buffer[: stop - start])
        while signal < len(segments) and segments[signal][0] < stop:
            a, b = max(start, segments[signal][0]), min(stop, segments[signal][1])
            out[signal].addmv_(block[a - start : b - start].T, patches.multiplicity[a:b])
            if segments[signal][1] > stop:
                break
            signal += 1
    return out.to(patches.values.dtype)


def _compiled(values: Tensor) -> bool:
    """Whether there is a compiled loop for numbers of this kind and place."""
    return values.dtype == torch.float32 and values.device.type == "cpu"


def _add_exponentials(
    exponents: Float[Tensor, "P Q"],
    m: Float[Tensor, "P"],
    signal_of: Int[Tensor, "P"],
    out: Float[Tensor, "N Q"],
) -> None:
    from gcgp.kernel.compiled import add_exponentials

    add_exponentials(exponents.numpy(), m.numpy(), signal_of.numpy(), out.numpy())


def _weigh_exponentials(
    exponents: Float[Tensor, "P Q"],
    gradient: Float[Tensor, "N Q"],
    signal_of: Int[Tensor, "P"],
    m: Float[Tensor, "P"],
    sums: Float[Tensor, "P"],
) -> None:
    """In place of the exponents, m_i G exp(…) with the gradient G of the row's signal; its sums without m."""
    if _compiled(exponents):
        from gcgp.kernel.compiled import weigh_exponentials

        arrays = (exponents, gradient, signal_of, m, sums)
        weigh_exponentials(*(array.numpy() for array in arrays))
        return
    exponents.exp_().mul_(gradient[signal_of])
    torch.sum(exponents, dim=1, out=sums)
    exponents.mul_(m[:, None])


def _padded(
    patches: Patches, signals: Int[Tensor, "n"]
) -> Iterator[tuple[Int[Tensor, "b"], Int[Tensor, "b P"], Tensor]]:
    """Batches of signals, sorted by size: their rows, and which of these are not just filling."""
    starts, counts = patches.offsets[signals], patches.offsets.diff()[signals]
    sizes = counts.tolist()
    start = sum(size == 0 for size in sizes)
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * sizes[stop] ** 2 <= BLOCK_ELEMENTS:
            stop += 1
        place = torch.arange(sizes[stop - 1])
        inside = place < counts[start:stop, None]
        yield signals[start:stop], torch.where(inside, starts[start:stop, None] + place, 0), inside
        start = stop


def _double_sums(blocks: _Blocks, rows: Int[Tensor, "b P"], m: Float[Tensor, "b P"]) -> Float[Tensor, "b"]:
    """mᵀ K m for each set of rows."""

    def quadratic() -> Tensor:
        return ((blocks.values(rows, rows, None) @ m[..., None])[..., 0] * m).sum(dim=-1)

    return blocks.piece(quadratic)


def _blocked_double_sum(blocks: _Blocks, patches: Patches, signal: int) -> Float[Tensor, ""]:
    """mᵀ K m of one large signal, by blocks on and above the diagonal."""
    first, last = int(patches.offsets[signal]), int(patches.offsets[signal + 1])
    side = -(-(last - first) // -(-(last - first) // max(1, int(BLOCK_ELEMENTS**0.5))))
    total = torch.zeros((), dtype=torch.float64)
    for a in range(first, last, side):
        for b in range(a, last, side):
            rows, columns = slice(a, min(a + side, last)), slice(b, min(b + side, last))

            def bilinear(rows: slice = rows, columns: slice = columns) -> Tensor:
                left, right = patches.multiplicity[rows], patches.multiplicity[columns]
                if blocks.exponents is None or left.requires_grad or not _compiled(left):
                    return left @ (blocks.values(rows, columns, None) @ right)
                sums = torch.zeros(1, len(right), dtype=torch.float64)
                nought = torch.zeros(len(left), dtype=torch.int64)
                _add_exponentials(blocks.exponents(rows, columns, None), left, nought, sums)
                return sums[0] @ right.double()

            total = total + (1 if a == b else 2) * blocks.piece(bilinear)
    return total.to(patches.values.dtype)


def _sampled(
    kernel: Kernel,
    blocks: _Blocks,
    patches: Patches,
    others: Float[Tensor, "total_patches dim"],
    signals: Int[Tensor, "b"],
    draws: int,
    seed: int,
    first: int,
) -> Float[Tensor, "b"]:
    """(Σ|m|)² times the mean of ±k over pairs of independent draws with probabilities |m| / Σ|m|."""
    magnitude = patches.multiplicity.detach().abs().cpu().numpy().astype(np.float64)
    chosen = np.empty((len(signals), draws), dtype=np.int64)
    mass = np.empty(len(signals))
    for i, n in enumerate(signals.tolist()):
        start, stop = int(patches.offsets[n]), int(patches.offsets[n + 1])
        reached = np.cumsum(magnitude[start:stop])
        u = np.random.default_rng((seed, first + n)).random(draws) * reached[-1]
        chosen[i] = start + np.minimum(np.searchsorted(reached, u, side="right"), stop - start - 1)
        mass[i] = reached[-1]
    rows = torch.from_numpy(chosen)
    m = patches.multiplicity[rows]
    sign = m / m.detach().abs().clamp_min(torch.finfo(m.dtype).tiny)
    pairs = _double_sums(blocks, rows, sign) * blocks.scale
    flat = rows.flatten()
    own = (paired(kernel, patches.values[flat], others[flat]).reshape(rows.shape) * sign.square()).sum(1)
    return (pairs - own) * torch.from_numpy(mass**2 / (draws * (draws - 1))).to(pairs.dtype)
