"""Checks that the squares of values, positions, targets and weights neither overflow nor underflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp._runtime.arrays import as_float64
from gcgp.domain import Signals

MAX_VERTEX_WEIGHT = 1e15
"""Prior variances are sums of products of vertex weights, also in float32."""


def largest_magnitude(dtype: str) -> float:
    """The largest value whose square is finite; for `"auto"`, in float32."""
    return float(np.sqrt(np.finfo("float32" if dtype == "auto" else dtype).max))


def check_magnitudes(signals: Signals, largest: float) -> None:
    """Raise a ValueError that names the signal, the vertex and the value if one is too large."""
    values = signals.values
    if len(values) and (float(values.min()) < -largest or float(values.max()) > largest):
        row, channel = (int(i) for i in np.argwhere(np.abs(values) > largest)[0])
        number = int(np.searchsorted(signals.offsets, row, side="right") - 1)
        raise ValueError(
            f"X: signal {number}, vertex {row - signals.offsets[number]}, channel {channel}: the value is "
            f"{values[row, channel]:g}, whose square overflows; magnitudes up to {largest:.3g} are allowed"
        )
    positions = signals.domains.positions
    if positions is not None and positions.size and float(np.abs(positions).max()) > largest:
        row, axis = (int(i) for i in np.argwhere(np.abs(positions) > largest)[0])
        ends = np.cumsum(signals.domains.vertex_counts)
        domain = int(np.searchsorted(ends, row, side="right"))
        number = int(np.argmax(signals.domain_of == domain))
        vertex = row - int(ends[domain] - signals.domains.vertex_counts[domain])
        raise ValueError(
            f"X: signal {number}, vertex {vertex}, axis {axis}: the coordinate is {positions[row, axis]:g}, "
            f"whose square overflows; magnitudes up to {largest:.3g} are allowed"
        )


def check_not_tiny(signals: Signals, dtype: str) -> None:
    """Raise a ValueError if all values are so small that their squares underflow."""
    least = float(np.sqrt(np.finfo("float32" if dtype == "auto" else dtype).tiny))
    largest = float(np.abs(signals.values).max())
    if 0 < largest < least:
        raise ValueError(
            f"X: the largest magnitude of all values is {largest:g}, whose square underflows; "
            f"multiply the values by a constant, so that some exceed {least:.3g}"
        )


def check_targets(targets: np.ndarray) -> None:
    """Raise a ValueError unless sums of squares of centered targets are finite and not zero by underflow."""
    with np.errstate(over="ignore"):
        centered = targets - targets.mean()
        squares = np.square(centered)
        total = squares.sum()
    index = int(np.abs(targets).argmax())
    if not np.isfinite(total):
        raise ValueError(
            f"y[{index}] is {targets[index]:g}, whose square overflows; divide the targets by a constant"
        )
    largest = float(np.abs(centered).max())
    if largest > 0 and squares.max() < np.finfo(np.float64).tiny:
        raise ValueError(
            f"y: targets differ from their mean by at most {largest:g}, whose square underflows; "
            "multiply the targets by a constant"
        )


def checked_vertex_weights(weights: Any, dtype: torch.dtype) -> Float[Tensor, "vertices"]:
    """`vertex_weights` as a tensor; a ValueError names the first invalid weight."""
    checked = torch.as_tensor(as_float64(weights, "fit", "vertex_weights"), dtype=dtype).reshape(-1)
    if not torch.isfinite(checked).all():
        index = int(torch.argmin(torch.isfinite(checked).int()))
        raise ValueError(f"vertex_weights[{index}] is {float(checked[index])}; it must be finite")
    if (checked.abs() > MAX_VERTEX_WEIGHT).any():
        index = int(checked.abs().argmax())
        raise ValueError(
            f"vertex_weights[{index}] is {float(checked[index])}; it must be within ±{MAX_VERTEX_WEIGHT:g}, "
            "as products of weights are summed"
        )
    if not checked.any():
        raise ValueError("vertex_weights are all 0: no vertex would count")
    return checked
