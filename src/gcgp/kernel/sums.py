"""Sums of a base kernel over patches, in blocks that stay in cache: the engine of the library.

Every sum is Σ_i Σ_j m_i m_j k_g(x_i, y_j) over the patches of one signal or a pair of signals, with the
multiplicities m. Without gradients the RBF is one matrix product with the norms folded in, an
exponential in place, and a product with the multiplicities. With gradients each block is recomputed in
the backward pass, so memory does not grow with the number of patches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gcgp.kernel.base import distance_form, evaluate, prior_variance
from gcgp.patches import Patches

BLOCK_ELEMENTS = 3 << 17
"""Kernel values computed at a time: 1.5 MB of float32, about two cores' second-level caches."""
BLOCK_ELEMENTS_WITH_GRADIENT = 1 << 22


def kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Kuf transposed: for each signal and inducing patch, Σ_v m_v k_g(Z[v], U)."""
    return _sums_over_signals(kernel, patches, inducing)


def kff(kernel: Kernel, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']) for each pair of signals, a signal of `right` at a time."""
    columns = []
    for n in range(len(right)):
        other = right[n : n + 1]
        columns.append(_sums_over_signals(kernel, left, other.values) @ other.multiplicity)
    return torch.stack(columns, dim=1)


def kff_diagonal(
    kernel: Kernel, patches: Patches, *, draws: int | None = None, seed: int = 0, first: int = 0
) -> Float[Tensor, "N"]:
    """k(ψ, ψ) of every signal: the double sum over its own patches.

    With `draws`, signals of more patches than that get an unbiased estimate from that many patches,
    drawn in proportion to their multiplicities. What is drawn depends on the seed and the signal's number,
    which starts at `first`, and not on how signals are cut into chunks.
    """
    counts = patches.offsets.diff()
    large = counts * counts > BLOCK_ELEMENTS
    if draws is not None:
        large = counts > draws
    out = torch.zeros(len(patches), dtype=patches.values.dtype)
    small = torch.nonzero(~large)[:, 0]
    if len(small):
        small = small[torch.argsort(counts[small], stable=True)]  # like sizes together: little padding
        out = out.index_add(0, small, _padded_double_sums(kernel, patches, small))
    for n in torch.nonzero(large)[:, 0].tolist():
        rows = slice(int(patches.offsets[n]), int(patches.offsets[n + 1]))
        x, m = patches.values[rows], patches.multiplicity[rows]
        if draws is None:
            value = _blocked_double_sum(kernel, x, m)
        else:
            value = _sampled_double_sum(kernel, x, m, draws, (seed, first + n))
        out = out.index_add(0, torch.tensor([n]), value[None])
    return out


def _padded_double_sums(kernel: Kernel, patches: Patches, signals: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
    """mᵀ K m of many small signals, a batch at a time, filled up with patches of multiplicity 0."""
    starts, counts = patches.offsets[signals], patches.offsets.diff()[signals]
    parts = []
    start = 0
    while start < len(signals):
        stop = start + 1
        while stop < len(signals) and (stop + 1 - start) * int(counts[stop]) ** 2 <= BLOCK_ELEMENTS:
            stop += 1
        place = torch.arange(max(int(counts[stop - 1]), 1))
        inside = place < counts[start:stop, None]
        rows = torch.where(inside, starts[start:stop, None] + place, 0)
        if len(patches.values):
            m = torch.where(inside, patches.multiplicity[rows], 0)
            parts.append(_recomputed(_quadratic_forms, kernel, patches.values[rows], m))
        else:
            parts.append(torch.zeros(stop - start, dtype=patches.values.dtype))
        start = stop
    return torch.cat(parts)


def _quadratic_forms(
    kernel: Kernel, x: Float[Tensor, "*batch P dim"], m: Float[Tensor, "*batch P"]
) -> Float[Tensor, "*batch"]:
    """mᵀ k_g(x, x) m."""
    return ((evaluate(kernel, x, x) @ m[..., None])[..., 0] * m).sum(dim=-1)


def _blocked_double_sum(
    kernel: Kernel, x: Float[Tensor, "P dim"], m: Float[Tensor, "P"]
) -> Float[Tensor, ""]:
    """mᵀ K m of one large signal, by blocks on and above the diagonal."""
    side = max(1, int(BLOCK_ELEMENTS**0.5))
    total = torch.zeros((), dtype=torch.float64)
    for a in range(0, len(x), side):
        total = total + _recomputed(_quadratic_forms, kernel, x[a : a + side], m[a : a + side])
        if a + side < len(x):
            right, weights = x[a + side :], m[a + side :]
            rest = Patches(right, weights, torch.tensor([0, len(right)]), torch.arange(len(right)))
            total = total + 2 * (_sums_over_signals(kernel, rest, x[a : a + side])[0] @ m[a : a + side])
    return total.to(x.dtype)


def _sampled_double_sum(
    kernel: Kernel,
    x: Float[Tensor, "P dim"],
    m: Float[Tensor, "P"],
    draws: int,
    seed: tuple[int, int],
) -> Float[Tensor, ""]:
    """(Σ|m|)² times the mean of ±k over pairs of independent draws with probabilities |m| / Σ|m|."""
    reached = np.cumsum(m.detach().abs().cpu().numpy().astype(np.float64))
    u = np.random.default_rng(seed).random(draws) * reached[-1]
    drawn = torch.from_numpy(np.minimum(np.searchsorted(reached, u, side="right"), len(x) - 1))
    sign = m[drawn] / m[drawn].detach().abs()
    pairs = _recomputed(_quadratic_forms, kernel, x[drawn], sign)
    own = (prior_variance(kernel, x[drawn]) * sign.square()).sum()
    return (pairs - own) * float(reached[-1] ** 2 / (draws * (draws - 1)))


def _recomputed(function: Callable[..., Tensor], kernel: Kernel, *tensors: Tensor) -> Tensor:
    """function(kernel, …), recomputed in the backward pass if there is to be one."""
    if not torch.is_grad_enabled():
        return function(kernel, *tensors)
    return checkpoint(function, kernel, *tensors, use_reentrant=False)


def _sums_over_signals(
    kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]
) -> Float[Tensor, "N M"]:
    if torch.is_grad_enabled() and _needs_gradient(kernel, patches, inducing):
        return _differentiable_sums(kernel, patches, inducing)
    with torch.no_grad():
        block_values, scale = _block_function(kernel, patches.values, inducing)
        return _blocked_sums(block_values, patches, len(inducing)) * scale


def _needs_gradient(kernel: Kernel, patches: Patches, inducing: Tensor) -> bool:
    tensors = (patches.values, patches.multiplicity, inducing, *kernel.parameters())
    return any(tensor.requires_grad for tensor in tensors)


def _block_function(
    kernel: Kernel, x: Float[Tensor, "P dim"], y: Float[Tensor, "M dim"]
) -> tuple[Callable[[int, int, Tensor], Tensor], float]:
    """A function of (start, stop, buffer) that gives k_g(x[start:stop], y), and a factor left to the end."""
    form = distance_form(kernel)
    if form is None:
        return lambda start, stop, _: evaluate(kernel, x[start:stop], y), 1.0
    lengthscale = form.lengthscale.to(x.dtype)
    centre = y.mean(dim=0)
    x, y = (x - centre) / lengthscale, (y - centre) / lengthscale
    # exp(−½|x−y|²) = exp(x·y − ½|x|² − ½|y|²): both norms are two more columns of the product.
    one = torch.ones(1, dtype=x.dtype)
    left = torch.cat([x, -0.5 * x.square().sum(1, keepdim=True), one.expand(len(x), 1)], dim=1)
    right = torch.cat([y, one.expand(len(y), 1), -0.5 * y.square().sum(1, keepdim=True)], dim=1)
    right = right.T.contiguous()
    of_squared_distance = form.of_squared_distance

    def block_values(start: int, stop: int, buffer: Tensor) -> Tensor:
        torch.mm(left[start:stop], right, out=buffer)
        if of_squared_distance is None:
            return buffer.exp_()
        return of_squared_distance(buffer.mul_(-2.0))

    return block_values, float(form.scale)


def _blocked_sums(
    block_values: Callable[[int, int, Tensor], Tensor], patches: Patches, columns: int
) -> Float[Tensor, "N M"]:
    """Σ over each signal's patches of multiplicity × kernel, walking the flat rows block by block."""
    out = torch.zeros(len(patches), columns, dtype=patches.values.dtype)
    ends = patches.offsets.tolist()
    multiplicity = patches.multiplicity
    rows = max(1, BLOCK_ELEMENTS // max(columns, 1))
    buffer = torch.empty(min(rows, max(ends[-1], 1)), columns, dtype=patches.values.dtype)
    signal = 0
    for start in range(0, ends[-1], rows):
        stop = min(start + rows, ends[-1])
        block = block_values(start, stop, buffer[: stop - start])
        while signal < len(patches) and ends[signal] < stop:
            a, b = max(start, ends[signal]), min(stop, ends[signal + 1])
            if b > a:
                out[signal].addmv_(block[a - start : b - start].T, multiplicity[a:b])
            if ends[signal + 1] > stop:
                break
            signal += 1
    return out


def _differentiable_sums(
    kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]
) -> Float[Tensor, "N M"]:
    """The same sums, each block recomputed in the backward pass instead of kept."""
    rows = max(1, BLOCK_ELEMENTS_WITH_GRADIENT // len(inducing))
    signal_of = patches.signal_of
    out = torch.zeros(len(patches), len(inducing), dtype=patches.values.dtype)

    for start in range(0, len(patches.values), rows):
        block = slice(start, start + rows)
        signals = signal_of[block]
        tensors = patches.values[block], patches.multiplicity[block], inducing, signals
        partial = _recomputed(_block_sums, kernel, *tensors)
        out = out.index_add(0, torch.arange(int(signals[0]), int(signals[-1]) + 1), partial)
    return out


def _block_sums(
    kernel: Kernel, values: Tensor, multiplicity: Tensor, inducing: Tensor, signals: Tensor
) -> Tensor:
    """Sums over the rows of each signal, for the run of signals that these rows belong to."""
    weighted = evaluate(kernel, values, inducing) * multiplicity[:, None]
    low = int(signals[0])
    partial = torch.zeros(int(signals[-1]) - low + 1, len(inducing), dtype=weighted.dtype)
    return partial.index_add(0, signals - low, weighted)
