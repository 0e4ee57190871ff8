"""Slow, obvious references for charts, weightings and patches: loops over pairs of vertices."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gcgp.weighting import Anisotropic, Box, GaussianMixture, Polar, Radial, Weighting


@dataclass(frozen=True)
class Pair:
    """The local coordinates of one vertex in the chart of another."""

    rho: float
    theta: float = math.nan
    offset: tuple[float, ...] = ()
    degree: tuple[float, float] = (1.0, 1.0)


def direction(offset: Sequence[float]) -> float:
    """The angle of a two-dimensional offset; NaN if it is zero."""
    x, y = offset
    return math.nan if x == y == 0 else math.atan2(y, x)


def grid_pairs(height: int, width: int) -> list[list[Pair]]:
    """All pairs of pixels; ρ by breadth-first search over the eight neighbors of each pixel."""
    pixels = [(row, column) for row in range(height) for column in range(width)]
    table = []
    for start in pixels:
        steps = {start: 0}
        queue = deque([start])
        while queue:
            row, column = queue.popleft()
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    there = (row + dy, column + dx)
                    if there in pixels and there not in steps:
                        steps[there] = steps[row, column] + 1
                        queue.append(there)
        offsets = [(float(column - start[1]), float(row - start[0])) for row, column in pixels]
        table.append(
            [
                Pair(float(steps[pixel]), direction(offset), offset)
                for pixel, offset in zip(pixels, offsets, strict=True)
            ]
        )
    return table


def shortest_paths(vertices: int, edges: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Lengths of shortest paths between all vertices, by Floyd–Warshall; inf if there is no path."""
    paths = np.full((vertices, vertices), np.inf)
    np.fill_diagonal(paths, 0.0)
    for (a, b), length in zip(edges, lengths, strict=True):
        paths[a, b] = paths[b, a] = min(paths[a, b], length)
    for via in range(vertices):
        paths = np.minimum(paths, paths[:, via, None] + paths[via])
    return paths


def graph_pairs(
    kind: str,
    vertices: int,
    edges: np.ndarray,
    lengths: np.ndarray | None = None,
    coordinates: np.ndarray | None = None,
) -> list[list[Pair]]:
    """All pairs of vertices of one graph; ρ by straight lines (`euclidean`) or along edges (`path`)."""
    if coordinates is None:
        coordinates = np.zeros((vertices, 2))
        costs = np.ones(len(edges)) if lengths is None else lengths
    else:
        costs = np.array([math.dist(coordinates[a], coordinates[b]) for a, b in edges])
        costs = costs if lengths is None else lengths
    paths = shortest_paths(vertices, edges, costs)
    joined = {frozenset((int(a), int(b))) for a, b in edges if a != b}
    degrees = [max(1, sum(v in edge for edge in joined)) for v in range(vertices)]
    table = []
    for v in range(vertices):
        row = []
        for w in range(vertices):
            offset = tuple(coordinates[w] - coordinates[v])
            rho = paths[v, w] if kind == "path" else math.dist(coordinates[v], coordinates[w])
            theta = direction(offset) if len(offset) == 2 else math.nan
            row.append(Pair(rho, theta, offset, (degrees[v] ** -0.5, degrees[w] ** -0.5)))
        table.append(row)
    return table


def slow_weights(weighting: Weighting, pair: Pair) -> list[float]:
    """The weight of one pair in each bin, by the formula of the family."""
    return FORMULAS[type(weighting)](weighting.get_params(), pair)


def slow_sums(
    weighting: Weighting, pairs: list[list[Pair]], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bins of all channels `[V, C·B]` and bin counts `[V, B]` of one signal, by loops over pairs."""
    vertices, channels = values.shape
    formula, params, reach = FORMULAS[type(weighting)], weighting.get_params(), weighting.reach
    sums = np.zeros((vertices, channels, weighting.bins))
    counts = np.zeros((vertices, weighting.bins))
    for v in range(vertices):
        for w in range(vertices):
            if pairs[v][w].rho > reach:
                continue
            for b, weight in enumerate(formula(params, pairs[v][w])):
                counts[v, b] += weight
                for c in range(channels):
                    sums[v, c, b] += weight * values[w, c]
    if weighting.normalize:
        sums /= np.where(counts == 0, 1, counts)[:, None, :]
    return sums.reshape(vertices, -1), counts


def _gaussian(distance: float, width: float) -> float:
    return math.exp(-(distance**2) / (2 * width**2))


def _radial(params: dict[str, Any], pair: Pair) -> list[float]:
    return [_gaussian(pair.rho - radius, params["radial_width"]) for radius in params["radii"]]


def _polar(params: dict[str, Any], pair: Pair) -> list[float]:
    weights = []
    for radial in _radial(params, pair):
        for angle in params["angles"]:
            apart = min(abs(pair.theta - angle + 2 * math.pi * turn) for turn in range(-3, 4))
            everywhere = math.isnan(pair.theta)
            weights.append(radial * (1.0 if everywhere else _gaussian(apart, params["angular_width"])))
    return weights


def _mixture(params: dict[str, Any], pair: Pair) -> list[float]:
    u: list[float] = []
    for name in params["on"]:
        value = getattr(pair, name)
        u.extend(value if isinstance(value, tuple) else [0.0 if math.isnan(value) else value])
    weights = []
    for mean, scales, shear in zip(params["means"], params["scales"], params["shear"], strict=True):
        root = np.zeros((len(u), len(u)))
        for row in range(len(u)):
            root[row, row] = 1 / scales[row]
            for column in range(row):
                root[row, column] = shear[row][column]
        precision = root.T @ root
        away = np.array(u) - np.array(mean)
        weights.append(math.exp(-0.5 * float(away @ precision @ away)))
    return weights


def _anisotropic(params: dict[str, Any], pair: Pair) -> list[float]:
    weights = []
    for radius in params["radii"]:
        for angle in params["angles"]:
            turned = 0.0 if pair.rho == 0 else pair.theta - angle
            ahead, aside = pair.rho * math.cos(turned), pair.rho * math.sin(turned)
            weights.append(_gaussian(ahead - radius, params["along"]) * _gaussian(aside, params["across"]))
    return weights


def _box(params: dict[str, Any], pair: Pair) -> list[float]:
    before = (params["side"] - 1) // 2
    square = range(-before, params["side"] - before)
    return [float(pair.offset == (x, y)) for y in square for x in square]


FORMULAS: dict[type[Weighting], Callable[[dict[str, Any], Pair], list[float]]] = {
    Anisotropic: _anisotropic,
    Box: _box,
    Radial: _radial,
    GaussianMixture: _mixture,
    Polar: _polar,
}
