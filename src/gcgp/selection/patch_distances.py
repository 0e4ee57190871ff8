"""Distances between patches: their median, and coordinates in fewer dimensions that keep them."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.kernel.inducing import rows_by_content

MIN_MEDIAN_PAIRS, MAX_MEDIAN_PAIRS = 500, 4_000
MAX_MEDIAN_NUMBERS = 4_000_000
"""Numbers in the rows whose distances are measured: of long rows, fewer pairs suffice."""
COLUMNS_PER_PRODUCT = 4_096
"""Columns that are converted to float64 at a time."""
ROUNDING_ULPS = 64
"""Units in the last place by which numbers may differ that would be equal without rounding."""


def isometric_coordinates(rows: Float[Tensor, "n dim"]) -> Float[Tensor, "n rank"]:
    """Coordinates of n points in at most n dimensions, with the same distances between them.

    >>> x = torch.eye(3, 50)
    >>> bool(torch.allclose(torch.pdist(isometric_coordinates(x)), torch.pdist(x)))
    True
    """
    center = rows.mean(dim=0, dtype=torch.float64)
    gram = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for columns in range(0, rows.shape[1], COLUMNS_PER_PRODUCT):
        part = slice(columns, columns + COLUMNS_PER_PRODUCT)
        centered = rows[:, part].double() - center[part]
        gram.addmm_(centered, centered.T)
    squares, directions = torch.linalg.eigh(gram)
    rounding = len(rows) * torch.finfo(gram.dtype).eps * squares[-1]
    first = min(int((squares <= rounding).sum()), len(rows) - 1)
    return (directions[:, first:] * squares[first:].clamp_min(0.0).sqrt()).to(rows.dtype)


def median_distance(rows: Float[Tensor, "rows dim"], rng: np.random.Generator) -> float:
    """Median distance between two rows that differ by more than rounding; 1 if none do."""
    order = rows_by_content(rows, rng)
    affordable = MAX_MEDIAN_NUMBERS // max(rows.shape[1], 1)
    pairs = min(max(affordable, MIN_MEDIAN_PAIRS), MAX_MEDIAN_PAIRS)
    a, b = (order[torch.from_numpy(rng.integers(len(rows), size=pairs))] for _ in range(2))
    left, right = rows[a].double(), rows[b].double()
    distances = (left - right).norm(dim=1)
    # Magnitudes of the pair: one extreme row must not make all other distances look like rounding.
    magnitudes = torch.maximum(left.abs(), right.abs()).amax(dim=1) if rows.numel() else distances
    rounding = ROUNDING_ULPS * torch.finfo(rows.dtype).eps * magnitudes
    distances = distances[distances > rounding]
    return float(distances.median()) if len(distances) else 1.0
