"""Pooling: all vertices of a signal together become one, by the mean, the sum, side by side, or on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Domains, Points, Signals

POOLS = ("mean", "sum", "flatten", "grid")
GRID_REACH = 3.0
"""Vertices count in a cell up to this many widths from its center."""
WIDTH_PER_CELL = 0.75
"""Standard deviation of the Gaussian weights of a cell, relative to its side."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of a regular grid over the bounding box of the coordinates of training signals."""

    centers: Float[Tensor, "cells k"]
    widths: Float[Tensor, "k"]
    """Standard deviations of the weights of a cell in each direction."""

    @classmethod
    def over(cls, domains: Domains, cells: int) -> Grid:
        """A grid with this number of cells in each direction in which the coordinates differ.

        >>> from gcgp.domain import Grids
        >>> Grid.over(Grids(np.array([[1, 5]])), 2).centers.tolist()
        [[1.0, 0.0], [3.0, 0.0]]
        """
        positions = domains.positions
        if positions is None:
            raise ValueError("pool='grid': needs domains with coordinates; these have none")
        low, high = positions.min(axis=0), positions.max(axis=0)
        axes = [
            a + (b - a) * (np.arange(cells) + 0.5) / cells if b > a else np.array([a])
            for a, b in zip(low, high, strict=True)
        ]
        centers = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
        widths = np.where(high > low, WIDTH_PER_CELL * (high - low) / cells, 1.0)
        return cls(torch.from_numpy(centers), torch.from_numpy(widths))

    def sums(
        self, values: Float[Tensor, "total_vertices channels"], signals: Signals
    ) -> Float[Tensor, "signals grid_channels"]:
        """Sums over vertices with Gaussian weights around the center of each cell, cell by cell.

        Vertices with areas count by these.
        """
        domains, directions = signals.domains, len(self.widths)
        if domains.positions is None or domains.position_dimensions != directions:
            raise ValueError(
                f"pool='grid': vertices have {domains.position_dimensions} coordinates "
                f"instead of {directions}"
            )
        positions = torch.from_numpy(domains.positions[signals.domain_rows])
        distances = torch.cdist(positions / self.widths, self.centers / self.widths)
        vertex, cell = torch.nonzero(distances <= GRID_REACH, as_tuple=True)
        weights = torch.exp(-0.5 * distances[vertex, cell].square())
        if domains.measure is not None:
            weights = weights * torch.from_numpy(domains.measure[signals.domain_rows])[vertex]
        signal_of = torch.from_numpy(np.repeat(np.arange(len(signals)), signals.vertex_counts))
        rows = signal_of[vertex] * len(self.centers) + cell
        matrix = torch.sparse_coo_tensor(
            torch.stack([rows, vertex]),
            weights.to(values.dtype),
            (len(signals) * len(self.centers), len(values)),
            check_invariants=False,
        )
        return torch.sparse.mm(matrix, values).reshape(len(signals), -1)


def pooled_outline(signals: Signals) -> tuple[Signals, Int[np.ndarray, "signals"]]:
    """Signals without channels on one vertex each, with the area of all of it; the first vertex of each."""
    domains, count = signals.domains, len(signals)
    areas = None
    if domains.measure is not None:
        areas = np.add.reduceat(domains.measure, np.cumsum(domains.vertex_counts) - domains.vertex_counts)
    values = np.zeros((count, 0), dtype=signals.values.dtype)
    points = Points(len(domains), areas, domains.position_dimensions)
    return Signals(values, np.arange(count + 1), points, signals.domain_of), signals.offsets[:-1]


def pooled_values(
    values: Float[Tensor, "total_vertices channels"], signals: Signals, *, mean: bool
) -> Float[Tensor, "signals channels"]:
    """The mean or the sum over the vertices of each signal, weighted by their areas if they have any."""
    counts = signals.vertex_counts
    measure = signals.domains.measure
    weights = np.ones(len(values)) if measure is None else measure[signals.domain_rows]
    if mean:
        total = np.repeat(np.add.reduceat(weights, signals.offsets[:-1]), counts)
        # All vertices of a mesh without area count equally.
        weights = np.where(
            total > 0, weights / np.where(total > 0, total, 1.0), 1 / np.repeat(counts, counts)
        )
    weighted = values * torch.from_numpy(weights).to(values.dtype)[:, None]
    signal_of = torch.from_numpy(np.repeat(np.arange(len(signals)), counts))
    return values.new_zeros(len(signals), values.shape[1]).index_add(0, signal_of, weighted)


def check_flattened(signals: Signals, count: int) -> None:
    """Raise a ValueError that names the first signal with another number of vertices."""
    other = np.flatnonzero(signals.vertex_counts != count)
    if len(other):
        found = int(signals.vertex_counts[other[0]])
        raise ValueError(
            f"pool='flatten': signal {other[0]} has {found} vertices (after strides) instead of {count}; "
            "flattened signals need the same vertices"
        )


def flattened(
    values: Float[Tensor, "total_vertices channels"], signals: Signals, count: int
) -> Float[Tensor, "signals flat_channels"]:
    """The values of all vertices of each signal side by side; each must have `count` vertices."""
    check_flattened(signals, count)
    return values.reshape(len(signals), -1)
