"""Sums of a signal over the bins of each vertex, on stencils and on sparse charts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._numerics.segments import repeat_starts, take_segments
from gcgp._runtime.memory import runs
from gcgp.domain import Chart, Signals, Stencil
from gcgp.weighting import Weighting

DENSE_FRACTION = 0.5
"""Images with a larger fraction of nonzero values are convolved by torch."""
WEIGHTS_PER_BLOCK = 1 << 22
"""Weights in memory at the same time while the bins of a sparse chart are summed."""


def inverse_counts(counts: Float[Tensor, "rows bins"]) -> Float[Tensor, "rows bins"]:
    """1/count, and 0 for an empty bin: by selection, because 1/tiny would make its gradient NaN."""
    nonempty = counts > torch.finfo(counts.dtype).tiny
    return torch.where(nonempty, 1 / torch.where(nonempty, counts, 1.0), 0.0)


def stencil_sums(
    weighting: Weighting, stencil: Stencil, signals: Signals, values: Float[Tensor, "total_vertices channels"]
) -> tuple[Float[Tensor, "rows channels bins"], Float[Tensor, "rows bins"]]:
    """Sums (or means) and bin counts by convolution with zero padding, for images of one shape at a time.

    `values` are those of the signals, or others on the same vertices.
    """
    dtype = values.dtype
    coordinates = [torch.from_numpy(stencil.coordinates[c]).to(dtype) for c in weighting.coordinates]
    side = int(np.abs(stencil.offsets).max()) * 2 + 1
    filters = weighting(*coordinates).to(dtype).T.reshape(weighting.bins, 1, side, side)
    sums, counts = [], []
    for domain in range(len(signals.domains)):
        height, width = signals.domains.vertex_shape(domain)
        members = np.flatnonzero(signals.domain_of == domain)
        pixels = values
        if len(members) < len(signals):
            rows = signals.offsets[members][:, None] + np.arange(height * width)
            pixels = values[torch.from_numpy(rows.ravel())]
        images = pixels.reshape(len(members), height * width, -1).transpose(1, 2)  # [n, C, H·W]
        summed = _convolved(images.reshape(len(members), -1, height, width), filters)
        ones = torch.ones(1, 1, height, width, dtype=dtype)
        count = torch.nn.functional.conv2d(ones, filters, padding=side // 2).reshape(weighting.bins, -1).T
        if weighting.normalize:  # before the counts are repeated, which are the same in all images
            summed = summed.mul_(inverse_counts(count)[:, None, :])
        sums.append(summed.flatten(0, 1))
        counts.append(count.repeat(len(members), 1))
        if len(members) == len(signals):
            return sums[-1], counts[-1]
    grouped, _ = take_segments(signals.offsets, np.argsort(signals.domain_of, kind="stable"))
    order = torch.from_numpy(np.argsort(grouped))
    return torch.cat(sums)[order], torch.cat(counts)[order]


def _convolved(
    images: Float[Tensor, "n channels height width"], filters: Float[Tensor, "bins 1 side side"]
) -> Float[Tensor, "n pixels channels bins"]:
    """The convolution of each channel with each filter, by torch or by a loop over nonzero pixels."""
    traced = filters.requires_grad or images.requires_grad
    if not traced and float(images.count_nonzero()) < DENSE_FRACTION * images.numel():
        from gcgp.patches.loops import sparse_convolution

        flipped = filters[:, 0].permute(1, 2, 0).flip(0, 1).contiguous()
        summed = torch.from_numpy(sparse_convolution(images.contiguous().numpy(), flipped.numpy()))
        return summed.transpose(1, 2).contiguous()
    n, channels, height, width = images.shape
    stack = images.reshape(-1, 1, height, width)
    summed = torch.nn.functional.conv2d(stack, filters, padding=filters.shape[-1] // 2)
    return summed.reshape(n, channels, len(filters), height * width).permute(0, 3, 1, 2).contiguous()


def chart_sums(
    weighting: Weighting,
    chart: Chart,
    signals: Signals,
    values: Float[Tensor, "total_vertices channels"],
    measure: Float[np.ndarray, "total_vertices"] | None,
    vertices: Int[np.ndarray, "rows"] | None,
) -> tuple[Float[Tensor, "rows channels bins"], Float[Tensor, "rows bins"]]:
    """Sums (or means) and bin counts over sparse neighborhoods, in blocks of chart rows.

    `values` are those of the signals, or others on the same vertices.
    """
    dtype = values.dtype
    # Bin counts are the sums of one more channel.
    values = torch.cat([values, values.new_ones(len(values), 1)], dim=1)
    if measure is not None:
        values = values * torch.from_numpy(measure).to(dtype)[:, None]
    rows, starts = signals.domain_rows, repeat_starts(signals.offsets)
    if vertices is not None:
        rows, starts = rows[vertices], starts[vertices]
    order = np.argsort(rows, kind="stable")
    sums, counts = [], []
    for block in runs(np.diff(chart.row_offsets) * float(weighting.bins), WEIGHTS_PER_BLOCK):
        pairs = slice(chart.row_offsets[block.start], chart.row_offsets[block.stop])
        coordinates = [torch.from_numpy(chart.coordinates[c][pairs]).to(dtype) for c in weighting.coordinates]
        factors = weighting.factors(*coordinates)
        if factors is None:
            weights = weighting(*coordinates)
            factors = weights.new_ones(len(weights), 1), weights
        radial, angular = (factor.to(dtype) for factor in factors)
        members = order[slice(*np.searchsorted(rows[order], [block.start, block.stop]))]
        summed = _WeightedSums.apply(
            radial,
            angular,
            values,
            chart.row_offsets[block.start : block.stop + 1] - pairs.start,
            chart.neighbors[pairs],
            rows[members] - block.start,
            starts[members],
        )
        count = summed[:, -1]
        summed = summed[:, :-1]
        sums.append(summed * inverse_counts(count)[:, None, :] if weighting.normalize else summed)
        counts.append(count)
    if len(sums) == 1 and np.all(np.diff(order) == 1):
        return sums[0], counts[0]
    inverse = torch.from_numpy(np.argsort(order))
    return torch.cat(sums)[inverse], torch.cat(counts)[inverse]


class _WeightedSums(torch.autograd.Function):
    """`loops.weighted_sums` with its gradients with respect to the factors of the weights and the values."""

    @staticmethod
    def forward(ctx: Any, radial: Tensor, angular: Tensor, values: Tensor, *arrays: Any) -> Tensor:
        from gcgp.patches.loops import weighted_sums

        ctx.save_for_backward(radial, angular, values)
        ctx.arrays = arrays
        factors = (tensor.detach().numpy() for tensor in (radial, angular))
        return torch.from_numpy(weighted_sums(*factors, *arrays, values.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from gcgp.patches.loops import weighted_sums_pullback, weighted_values_pullback

        radial, angular, values = (tensor.numpy() for tensor in ctx.saved_tensors)
        row_offsets, neighbors, rows, starts = ctx.arrays
        of_sums = gradient.contiguous().numpy()
        pulled: list[Tensor | None] = [None] * 3
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            members = np.argsort(rows, kind="stable")
            row_members = np.searchsorted(rows[members], np.arange(len(row_offsets)))
            chart = (row_offsets, row_members, members, neighbors, starts)
            parts = weighted_sums_pullback(of_sums, radial, angular, *chart, values)
            pulled[:2] = map(torch.from_numpy, parts)
        if ctx.needs_input_grad[2]:
            weights = (radial[:, :, None] * angular[:, None, :]).reshape(len(radial), -1)
            vertices = (row_offsets, neighbors, rows, starts)
            pulled[2] = torch.from_numpy(weighted_values_pullback(of_sums, weights, *vertices, values))
        return *pulled, *[None] * len(ctx.arrays)
