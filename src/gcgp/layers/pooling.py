"""Pooling: all vertices of a signal together become one, by the mean, the sum, or side by side."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Points, Signals

POOLS = ("mean", "sum", "flatten")


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
