"""Images as graphs of superpixels, as in Walker & Glocker (2019), section 4.2.

k-means is compiled here because scikit-learn's would need a Python loop over images.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike

from gcgp._numerics.segments import offsets_from_counts, repeat_starts
from gcgp._numerics.splitmix import GAMMA, uniform
from gcgp._runtime.arrays import as_array
from gcgp._runtime.errors import check_integer
from gcgp._runtime.fork import parallel_njit
from gcgp.domain.graph_loops import pairs_within
from gcgp.domain.graphs import Graphs
from gcgp.domain.signals import Signals


def superpixels(
    images: ArrayLike,
    foreground: int = 50,
    background: int = 25,
    *,
    threshold: float = 3.0,
    value_scale: float = 1.0,
    max_iter: int = 10,
    random_state: int = 0,
) -> Signals:
    """Graphs with coordinates whose vertices are clusters of pixels, by k-means on position and value.

    Pixels above 0 in any channel are foreground, all others background. The two parts are clustered
    separately, into fewer clusters if they have fewer pixels. The value of a vertex is the mean of its
    pixels, its coordinates are their mean column (x) and row (y). Clusters closer than `threshold` pixels are
    joined by an edge whose length is their distance.

    Args:
        images: `[N, H, W]` or `[N, H, W, C]`, non-negative.
        foreground: Number of clusters in the foreground.
        background: Number of clusters in the background.
        threshold: Distance in pixels below which two clusters are joined.
        value_scale: Distance in pixels that counts as much as the whole range of values.
        max_iter: Maximum number of iterations of Lloyd's algorithm.
        random_state: Seed. The graph of an image depends on it and on the index of the image.

    Returns:
        Signals on graphs with at most `foreground + background` vertices.

    >>> superpixels(np.eye(12)[None], foreground=6, background=6)
    Signals(1 signals on graphs, 12 vertices, 1 channels)
    """
    check_integer("foreground", foreground, 0)
    check_integer("background", background, 0)
    check_integer("max_iter", max_iter)
    if foreground + background == 0:
        raise ValueError("foreground and background are both 0, which leaves no vertices")
    for name, number in (("threshold", threshold), ("value_scale", value_scale)):
        if not (np.isfinite(number) and number >= 0):
            raise ValueError(f"{name}={number!r} must be finite and not negative")
    grid = Signals.from_images(as_array(images, "images", stacked="image"))
    height, width = grid.domains.vertex_shape(0)
    pixels = grid.values.reshape(len(grid), height * width, grid.channels)
    if (pixels < 0).any():
        image, pixel, channel = np.argwhere(pixels < 0)[0]
        raise ValueError(
            f"image {image}: values at {[int(pixel // width), int(pixel % width)]} is "
            f"{pixels[image, pixel, channel]}; values of superpixels must not be negative"
        )
    seed = np.uint64(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0])
    means, counts = _clusters(pixels, width, foreground, background, value_scale, max_iter, seed)
    if (counts == 0).any():
        raise ValueError(
            f"image {int(np.argmin(counts))}: no clusters, because it is all "
            f"{'foreground' if foreground == 0 else 'background'}, for which 0 clusters were requested"
        )
    means = means[np.arange(foreground + background) < counts[:, None]]
    coordinates, values = means[:, :2].copy(), means[:, 2:].astype(pixels.dtype)
    vertex_offsets = offsets_from_counts(counts)
    graphs = Graphs(vertex_offsets, *_edges_below(coordinates, vertex_offsets, threshold), coordinates)
    return Signals(values, vertex_offsets, graphs, np.arange(len(grid)))


@njit(cache=True, nogil=True)
def _lloyd(points, k, max_iter, state):  # type: ignore[no-untyped-def]
    """The cluster of each point by k-means, started by k-means++; no cluster is empty at the start."""
    n, dim = points.shape
    centers = np.empty((k, dim))
    nearest = np.full(n, np.inf)
    chosen = 0
    for j in range(k):
        if j == 0:
            chosen = min(int(uniform(state) * n), n - 1)
        else:
            threshold = uniform(state) * nearest.sum()
            total = 0.0
            for i in range(n):
                if nearest[i] > 0.0:
                    chosen = i
                    total += nearest[i]
                    if total > threshold:
                        break
        state += GAMMA
        centers[j] = points[chosen]
        for i in range(n):
            distance = 0.0
            for d in range(dim):
                distance += (points[i, d] - centers[j, d]) ** 2
            nearest[i] = min(nearest[i], distance)
    labels = np.full(n, -1, dtype=np.int64)
    sums = np.empty((k, dim))
    sizes = np.empty(k)
    for _ in range(max_iter):
        moved = False
        for i in range(n):
            best = np.inf
            label = 0
            for j in range(k):
                distance = 0.0
                for d in range(dim):
                    distance += (points[i, d] - centers[j, d]) ** 2
                if distance < best:
                    best = distance
                    label = j
            if label != labels[i]:
                labels[i] = label
                moved = True
        if not moved:
            break
        sums[:] = 0.0
        sizes[:] = 0.0
        for i in range(n):
            sizes[labels[i]] += 1
            for d in range(dim):
                sums[labels[i], d] += points[i, d]
        for j in range(k):
            if sizes[j] > 0:
                for d in range(dim):
                    centers[j, d] = sums[j, d] / sizes[j]
    return labels


@parallel_njit(cache=True, nogil=True)
def _clusters(pixels, width, foreground, background, value_scale, max_iter, seed):  # type: ignore[no-untyped-def]
    """Mean column, row and values of each cluster `[n, clusters, 2 + channels]`, and their number."""
    n, area, channels = pixels.shape
    means = np.zeros((n, foreground + background, 2 + channels))
    counts = np.zeros(n, dtype=np.int64)
    for image in prange(n):
        features = np.empty((area, 2 + channels))
        for i in range(area):
            features[i, 0] = i % width
            features[i, 1] = i // width
            features[i, 2:] = pixels[image, i]
        bright = np.zeros(area, dtype=np.bool_)
        for i in range(area):
            bright[i] = features[i, 2:].max() > 0
        top = features[:, 2:].max()
        points = features.copy()
        points[:, 2:] *= value_scale / top if top > 0 else 0.0
        for part in range(2):
            members = np.flatnonzero(bright == (part == 0))
            k = min(foreground if part == 0 else background, len(members))
            if k == 0:
                continue
            state = seed ^ (np.uint64(2 * image + part) * np.uint64(0xD1342543DE82EF95))
            labels = _lloyd(points[members], k, max_iter, state)
            sizes = np.zeros(k)
            sums = np.zeros((k, 2 + channels))
            for i in range(len(members)):
                sizes[labels[i]] += 1
                sums[labels[i]] += features[members[i]]
            for j in range(k):
                if sizes[j] > 0:
                    means[image, counts[image]] = sums[j] / sizes[j]
                    counts[image] += 1
    return means, counts


def _edges_below(
    coordinates: np.ndarray, vertex_offsets: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges between vertices of a graph closer than the threshold, with their offsets and lengths."""
    row_offsets, neighbors, rho = pairs_within(coordinates, vertex_offsets, threshold)
    vertices = np.arange(len(coordinates)) - repeat_starts(vertex_offsets)
    vertices = np.repeat(vertices, np.diff(row_offsets))
    joined = np.flatnonzero((vertices < neighbors) & (rho < threshold))
    edges = np.stack([vertices[joined], neighbors[joined]], axis=1).astype(np.int32)
    edge_offsets = np.searchsorted(joined, row_offsets[vertex_offsets])
    return edges, edge_offsets, rho[joined].astype(np.float32)
