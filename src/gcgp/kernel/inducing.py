"""Choosing inducing patches among the patches of the training signals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.kernel.base import evaluate, prior_variance

METHODS = ("random", "k-means++", "greedy")
DUPLICATE_TOLERANCE = 2.0**-20
"""Patches are the same if no column differs by more than this, relative to the column's typical magnitude."""


def choose_inducing(
    candidates: Float[Tensor, "candidates dim"], count: int, **options: Any
) -> Float[Tensor, "M dim"]:
    """The candidates that `choose_rows` chooses, with the same arguments.

    >>> choose_inducing(torch.eye(4)[[0, 0, 1, 2]], 4).shape
    torch.Size([3, 4])
    """
    return candidates.detach()[choose_rows(candidates, count, **options)]


def choose_rows(
    candidates: Float[Tensor, "candidates dim"],
    count: int,
    *,
    method: str = "k-means++",
    kernel: Kernel | None = None,
    scale: Float[Tensor, "dim"] | None = None,
    random_state: np.random.Generator | int = 0,
) -> Int[Tensor, "M"]:
    """The numbers of at most `count` of the candidates, no two of which are the same but for rounding.

    `random` draws them; `k-means++` draws each with a probability proportional to its squared distance
    (of columns divided by `scale`) to those drawn; `greedy` takes the one of largest conditional
    variance under `kernel` each time (Burt et al. 2020), which is a pivoted Cholesky factorization.
    """
    if count < 1:
        raise ValueError(f"the number of inducing patches must be at least 1, got {count!r}")
    rng = np.random.default_rng(random_state)
    values = candidates.detach().double()
    unit = _column_magnitudes(values)
    if scale is not None:
        unit = torch.maximum(unit, scale.detach().to(unit))
    rounded = torch.round(values / (DUPLICATE_TOLERANCE * unit)).numpy()
    _, first = np.unique(rounded, axis=0, return_index=True)
    rows = torch.from_numpy(first)
    rows = rows[content_order(values[rows] / unit, rng)][rng.permutation(len(rows))]
    distinct = candidates.detach()[rows]
    count = min(count, len(distinct))
    if method == "random":
        return rows[:count]
    if method == "k-means++":
        scaled = distinct if scale is None else distinct / scale
        return rows[_kmeans_plus_plus(scaled.double(), count, rng)]
    if method == "greedy":
        if kernel is None:
            raise ValueError("method='greedy' needs the kernel whose conditional variance it looks at")
        return rows[_greedy_variance(distinct.double(), count, kernel)]
    raise unknown_option("inducing", method, METHODS)


def content_order(rows: Float[Tensor, "rows dim"], rng: np.random.Generator) -> Int[Tensor, "rows"]:
    """An order of the rows by their content alone: by their products with a random vector.

    Draws of positions in this order depend on what the rows are, and not on how they were numbered.
    """
    direction = torch.from_numpy(rng.normal(size=rows.shape[1])).to(rows.dtype)
    return torch.argsort(rows.detach() @ direction, stable=True)


def _column_magnitudes(values: Float[Tensor, "rows dim"]) -> Float[Tensor, "dim"]:
    """The median magnitude of the entries of each column that are not zero; 1 if all are.

    A median, so that one extreme patch does not make all others look the same.
    """
    magnitudes = values.abs()
    magnitudes[magnitudes == 0] = torch.nan
    return torch.nan_to_num(magnitudes.nanmedian(dim=0).values, nan=1.0)


def _kmeans_plus_plus(
    points: Float[Tensor, "candidates dim"], count: int, rng: np.random.Generator
) -> Tensor:
    norms = points.square().sum(dim=1)
    nearest = torch.full_like(norms, torch.inf)
    chosen = [int(rng.integers(len(points)))]
    taken = torch.zeros(len(points), dtype=torch.bool)
    while True:
        last = chosen[-1]
        taken[last] = True
        distance = norms + norms[last] - 2 * (points @ points[last])
        nearest = torch.minimum(nearest, distance.clamp_min(0.0))
        nearest[taken] = 0.0
        if len(chosen) == count:
            return torch.tensor(chosen)
        reached = torch.cumsum(nearest, dim=0)
        place = int(torch.searchsorted(reached, float(rng.random()) * reached[-1], right=True))
        if place >= len(points) or taken[place]:  # all distances are zero to rounding
            place = int(torch.nonzero(~taken)[0])
        chosen.append(place)


def _greedy_variance(points: Float[Tensor, "candidates dim"], count: int, kernel: Kernel) -> Tensor:
    left = prior_variance(kernel, points).detach().clone()
    rounding = 1e-12 * float(left.max())
    factors = torch.zeros(count, len(points), dtype=points.dtype)
    chosen: list[int] = []
    with torch.no_grad():
        for m in range(count):
            left[chosen] = -torch.inf
            pivot = int(torch.argmax(left))
            if left[pivot] <= rounding:  # the rest is explained to rounding: take them as they come
                rest = torch.nonzero(torch.isfinite(left))[:, 0]
                return torch.tensor([*chosen, *rest[: count - m].tolist()])
            column = evaluate(kernel, points, points[pivot : pivot + 1])[:, 0]
            factors[m] = (column - factors[:m].T @ factors[:m, pivot]) / left[pivot].sqrt()
            left = left - factors[m].square()
            chosen.append(pivot)
    return torch.tensor(chosen)
