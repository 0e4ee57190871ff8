"""Local averages of signals, and subsampling of their vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._numerics.segments import offsets_from_counts, take_segments
from gcgp.domain import Chart, Signals, Stencil
from gcgp.patches import Convolution
from gcgp.weighting import Radial


@dataclass(frozen=True)
class Stride:
    """How far apart the vertices are that are kept, and how distances are measured.

    >>> coarse, kept = Stride(2).subsampled(Signals.from_images(np.zeros((1, 4, 4))))
    >>> coarse.vertex_counts.tolist(), kept.tolist()
    ([4], [5, 7, 13, 15])
    """

    steps: int = 1
    """On images, the distance between kept rows and columns; elsewhere, a multiple of the spacing."""
    spacing: float = 1.0
    chart: str = "auto"

    def subsampled(self, signals: Signals) -> tuple[Signals, Int[np.ndarray, "kept"]]:
        """Signals without channels on the vertices that are kept, and flat indices of these."""
        if self.steps == 1:
            return replace(signals, values=signals.values[:, :0]), np.arange(len(signals.values))
        domains, kept = signals.domains.subsampled(self.steps, self.spacing, self.chart)
        starts = offsets_from_counts([len(rows) for rows in kept])
        rows, offsets = take_segments(starts, signals.domain_of)
        vertices = np.concatenate(kept)[rows] + np.repeat(signals.offsets[:-1], np.diff(offsets))
        return Signals(signals.values[vertices, :0], offsets, domains, signals.domain_of), vertices


def local_averages(
    values: Float[Tensor, "total_vertices channels"],
    signals: Signals,
    width: float,
    stride: Stride,
    chart: Chart | Stencil | None,
) -> Float[Tensor, "kept channels"]:
    """Averages with Gaussian weights of this width around the vertices that are kept; width 0: no average.

    Vertices with areas count by these.
    """
    if width > 0 and signals.domains.one_chart:
        return _grid_averages(values, signals, width, stride.steps)
    kept = torch.from_numpy(stride.subsampled(signals)[1])
    if width == 0:
        return values if stride.steps == 1 else values[kept]
    weighting = Radial([0.0], width).requires_grad_(False)
    has_areas = signals.domains.measure is not None
    convolution = Convolution(weighting, stride.chart, area_weighted=has_areas, dtype=values.dtype)
    centers = None if stride.steps == 1 else convolution.empty_patches(signals).select_rows(kept)
    return convolution.patches(signals, chart, centers, values).values


def average_reach(width: float) -> float:
    """The distance beyond which vertices do not count in an average."""
    return float(Radial([0.0], width).reach)


def _grid_averages(
    values: Float[Tensor, "total_vertices channels"], signals: Signals, width: float, stride: int
) -> Float[Tensor, "kept channels"]:
    """Averages over rows, then over columns: the weights exp(−|offset|²/2w²) are products."""
    parts: list[tuple[np.ndarray, Tensor]] = []
    for domain in range(len(signals.domains)):
        height, breadth = signals.domains.vertex_shape(domain)
        members = np.flatnonzero(signals.domain_of == domain)
        rows = signals.offsets[members][:, None] + np.arange(height * breadth)
        images = values if len(members) == len(signals) else values[torch.from_numpy(rows.ravel())]
        vertical = _average_matrix(height, width, stride, values.dtype)
        horizontal = _average_matrix(breadth, width, stride, values.dtype)
        averaged = vertical @ images.reshape(len(members), height, -1)
        averaged = horizontal @ averaged.reshape(len(members) * len(vertical), breadth, -1)
        parts.append((members, averaged.reshape(len(members), -1, values.shape[1])))
    if len(parts) == 1:
        return parts[0][1].flatten(0, 1)
    counts = np.zeros(len(signals), dtype=np.int64)
    for members, part in parts:
        counts[members] = part.shape[1]
    offsets = offsets_from_counts(counts)
    out = values.new_empty(int(offsets[-1]), values.shape[1])
    for members, part in parts:
        rows = offsets[members][:, None] + np.arange(part.shape[1])
        out[torch.from_numpy(rows.ravel())] = part.flatten(0, 1)
    return out


@cache
def _average_matrix(size: int, width: float, stride: int, dtype: torch.dtype) -> Float[Tensor, "kept size"]:
    """Weights of all pixels of a line around every `stride`-th of them, which sum to 1."""
    centers, pixels = torch.arange(stride // 2, size, stride), torch.arange(size)
    distance = (centers[:, None] - pixels).double()
    weights = torch.exp(-0.5 * (distance / width).square()) * (distance.abs() <= average_reach(width))
    return (weights / weights.sum(dim=1, keepdim=True)).to(dtype)
