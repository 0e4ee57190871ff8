"""Kernel values in blocks that fit the cache of a core, and their sums over the patches of signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gcgp._runtime.threads import parallel_map, scratch, shares
from gcgp.kernel.base import MAX_SCALED_COORDINATE, distance_form, evaluate
from gcgp.patches import Patches

BLOCK_ELEMENTS = 1 << 18
"""Kernel values per block: 1 MB of float32, about the second-level cache of a core."""
BLOCK_ELEMENTS_ON_DEVICE = 1 << 26
BLOCK_ELEMENTS_WITH_GRADIENT = 1 << 22

Rows = slice | Tensor
Batch = tuple[Tensor, Tensor, Tensor]
"""Indices of signals `[b]`, their rows with padding `[b, P]`, and which rows are not padding `[b, P]`."""


def block_elements(values: Tensor) -> int:
    """Kernel values per block on the device of these values."""
    return BLOCK_ELEMENTS if on_cpu(values) else BLOCK_ELEMENTS_ON_DEVICE


def on_cpu(values: Tensor) -> bool:
    """Whether threads, compiled loops and our own gradients can be used; other devices use torch only."""
    return values.device.type == "cpu"


def compiled(values: Tensor) -> bool:
    """Whether there are compiled loops for this dtype and device."""
    return values.dtype == torch.float32 and on_cpu(values)


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether autograd records operations on any of the tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def cut(total: int, size: int) -> list[slice]:
    """Rows 0 to `total` in slices of this size, at least 1."""
    size = max(1, size)
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def scaled(
    x: Float[Tensor, "P dim"], center: Float[Tensor, "*rows dim"], lengthscale: Float[Tensor, "..."]
) -> Float[Tensor, "P dim_plus_2"]:
    """(x − center) / lengthscale, a column of ones, and −½ times the squared norm."""
    dim, x = x.shape[1], x.detach()
    rows = x.new_ones(len(x), dim + 2)
    z = rows[:, :dim]
    torch.sub(x, center.detach().to(x), out=z)
    z.div_(lengthscale.detach()).clamp_(-MAX_SCALED_COORDINATE[x.dtype], MAX_SCALED_COORDINATE[x.dtype])
    torch.mul(torch.linalg.vecdot(z, z), -0.5, out=rows[:, dim + 1])
    return rows


class Exponents:
    """−½|x − y|² = x·y − ½|y|² − ½|x|² between rows returned by `scaled`, by one matrix product."""

    def __init__(self, left: Float[Tensor, "P dim_plus_2"], right: Float[Tensor, "Q dim_plus_2"]) -> None:
        self.left = left
        self.columns = right[:, [*range(right.shape[1] - 2), -1, -2]].T.contiguous()

    def __call__(self, a: Rows, b: Rows = slice(None)) -> Tensor:
        """Between some rows; without gradients, a block is overwritten by the next one in the same thread."""
        x, y = self.left[a], self.columns[:, b] if isinstance(b, slice) else self.columns.T[b].mT
        if torch.is_grad_enabled():  # autograd may keep the block
            return torch.matmul(x, y)
        return torch.matmul(x, y, out=scratch((*x.shape[:-1], y.shape[-1]), x))

    def exp(self, a: Rows, b: Rows = slice(None)) -> Tensor:
        """exp(−½|x − y|²), at most 1."""
        return self(a, b).clamp_max_(0.0).exp_()


@dataclass(frozen=True)
class Blocks:
    """k_g between any rows of x and any rows of y, divided by `scale`."""

    values: Callable[[Rows, Rows], Tensor]
    """Without gradients, a block may be overwritten by the next one in the same thread."""
    scale: Tensor | float = 1.0
    recomputed: bool = False
    """Whether to compute blocks again in the backward pass, instead of keeping them."""
    exponents: Exponents | None = None
    """The logarithms of `values`, if the kernel is an RBF without gradients."""

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        x: Float[Tensor, "P dim"],
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
        exact: bool = False,
    ) -> Blocks:
        """Blocks by one matrix product each if the kernel is a smooth function of distance without gradients.

        `center`, one row or one per row of x and y, is subtracted for accuracy. `exact` computes distances by
        differences of coordinates.
        """
        form = distance_form(kernel)
        recomputed = needs_gradient(x, y, *kernel.parameters())
        if form is None or form.kink or recomputed or exact:
            return cls(lambda a, b: evaluate(kernel, x[a], y[b], exact=exact), 1.0, recomputed)
        lengthscale, h = form.lengthscale.detach().to(x), form.of_squared_distance
        left = scaled(x, center, lengthscale)
        exponents = Exponents(left, left if y is x else scaled(y, center, lengthscale))
        if h is None:
            return cls(exponents.exp, form.constant_scale, exponents=exponents)
        return cls(lambda a, b: h(exponents(a, b).mul_(-2.0)), form.constant_scale)

    def recompute(self, function: Callable[[], Tensor]) -> Tensor:
        """The result of a function of blocks, which runs again in the backward pass if there is one."""
        return checkpoint(function, use_reentrant=False) if self.recomputed else function()

    def sums(self, patches: Patches, width: int) -> Float[Tensor, "N width"]:
        """Σ_v m_v k_g(Z_n[v], y) / scale for each signal and each row of y, of which there are `width`."""
        if self.recomputed or patches.multiplicity.requires_grad or not on_cpu(patches.values):
            return self._differentiable_sums(patches, width)
        exponents = self.exponents if compiled(patches.values) else None

        def add(rows: slice, columns: slice, m: Tensor, signal_of: Tensor, out: Tensor) -> None:
            if exponents is not None:
                add_exponentials(exponents(rows, columns), m, signal_of, out)
            else:
                _add_segments(self.values(rows, columns), m, signal_of, out)

        blocks = cut(len(patches.values), block_elements(patches.values) // max(width, 1))
        dtype = patches.values.dtype if exponents is None else torch.float64
        return threaded_sums(add, patches, blocks, [slice(0, width)], dtype)

    def _differentiable_sums(self, patches: Patches, width: int) -> Float[Tensor, "N width"]:
        out = patches.values.new_zeros(len(patches), width)
        size = max(BLOCK_ELEMENTS_WITH_GRADIENT, block_elements(out)) // max(width, 1)
        for rows in cut(len(patches.values), size):
            signals, inverse = torch.unique_consecutive(patches.signal_of[rows], return_inverse=True)
            signals, inverse = signals.to(out.device), inverse.to(out.device)

            def partial(rows: slice = rows, inverse: Tensor = inverse, count: int = len(signals)) -> Tensor:
                weighted = self.values(rows, slice(None)) * patches.multiplicity[rows, None]
                return weighted.new_zeros(count, width).index_add(0, inverse, weighted)

            out = out.index_add(0, signals, self.recompute(partial))
        return out


def threaded_sums(
    add: Callable[[slice, slice, Tensor, Tensor, Tensor], None],
    patches: Patches,
    blocks: Sequence[slice],
    tiles: Sequence[slice],
    dtype: torch.dtype,
) -> Float[Tensor, "N width"]:
    """Sums over the patches of each signal, by blocks of rows, shared among threads, and tiles of columns.

    `add(rows, columns, m, signal_of, out)` adds m_v k_g(Z[v], y) to row `signal_of[v]` of `out`.
    """
    signal_of, m = patches.signal_of, patches.multiplicity

    def sums_of(share: Sequence[slice]) -> tuple[slice, Tensor]:
        first, last = int(signal_of[share[0].start]), int(signal_of[share[-1].stop - 1])
        sums = [torch.zeros(last + 1 - first, tile.stop - tile.start, dtype=dtype) for tile in tiles]
        for columns, part in zip(tiles, sums, strict=True):
            for rows in share:
                add(rows, columns, m[rows], signal_of[rows] - first, part)
        return slice(first, last + 1), torch.cat(sums, dim=1)

    out = torch.zeros(len(patches), tiles[-1].stop, dtype=dtype)
    for signals, sums in parallel_map(sums_of, shares(blocks) if blocks else []):
        out[signals] += sums
    return out.to(patches.values.dtype)


def padded_batches(
    offsets: Int[Tensor, "N_plus_1"], chosen: Bool[Tensor, "N"], elements: int
) -> Iterator[Batch]:
    """Batches of the chosen signals, by size, of at most so many kernel values each.

    Padding repeats the first row of a signal, so that no signal depends on rows of another.
    """
    signals = torch.nonzero(chosen)[:, 0]
    signals = signals[torch.argsort(offsets.diff()[signals], stable=True)]
    starts, counts = offsets[signals], offsets.diff()[signals]
    sizes = counts.tolist()
    start = sum(size == 0 for size in sizes)
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * sizes[stop] ** 2 <= elements:
            stop += 1
        columns = torch.arange(sizes[stop - 1])
        inside = columns < counts[start:stop, None]
        rows = starts[start:stop, None] + torch.where(inside, columns, 0)
        yield signals[start:stop], rows, inside
        start = stop


def add_exponentials(
    exponents: Float[Tensor, "P Q"],
    m: Float[Tensor, "P"],
    signal_of: Int[Tensor, "P"],
    out: Float[Tensor, "N Q"],
) -> None:
    """out[signal_of[i]] += m_i exp(exponents[i]), by a compiled loop."""
    from gcgp.kernel.engine.loops import add_exponentials

    add_exponentials(exponents.numpy(), m.numpy(), signal_of.numpy(), out.numpy())


def _add_segments(
    block: Float[Tensor, "P Q"], m: Float[Tensor, "P"], signal_of: Int[Tensor, "P"], out: Float[Tensor, "N Q"]
) -> None:
    """out[signal_of[i]] += m_i block[i], by matrix products."""
    signals, counts = torch.unique_consecutive(signal_of, return_counts=True)
    ends = [0, *counts.cumsum(0).tolist()]
    for n, (a, b) in zip(signals.tolist(), pairwise(ends), strict=True):
        out[n].addmv_(block[a:b].T, m[a:b])
