"""Images as graphs of superpixels, by the recipe of Walker & Glocker (2019), section 4.2."""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import ArrayLike

from gcgp._runtime.arrays import as_array
from gcgp._runtime.fork import parallel_njit
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
    """Clusters of pixels, by k-means on position and value, as graphs with coordinates.

    Pixels above 0 in any channel are the foreground, the others the background; each part gets its own
    clusters, fewer where it has fewer pixels. A vertex is a cluster: its value is the mean of its
    pixels, its coordinates the mean column (x) and row (y). Clusters closer than `threshold` pixels are
    joined by an edge as long as their distance.

    Args:
        images: `[N, H, W]` or `[N, H, W, C]`, non-negative.
        foreground: Clusters in the foreground.
        background: Clusters in the background.
        threshold: Distance in pixels below which two clusters are joined.
        value_scale: How many pixels of distance the whole range of values is worth in the clustering.
        max_iter: Rounds of Lloyd's algorithm at most.
        random_state: Seed; an image's graph depends on this and on the image's place in the array.

    Returns:
        Signals on graphs of at most `foreground + background` vertices.

    >>> superpixels(np.eye(12)[None], foreground=6, background=6)
    Signals(1 signals on graphs, 12 vertices, 1 channels)
    """
    for name, value in (("foreground", foreground), ("background", background)):
        if value < 0:
            raise ValueError(f"{name}={value!r} must not be negative")
    if foreground + background == 0:
        raise ValueError("foreground and background are both 0: no vertex would be left")
    for name, number in (("threshold", threshold), ("value_scale", value_scale)):
        if not (np.isfinite(number) and number >= 0):
            raise ValueError(f"{name}={number!r} must be finite and not negative")
    if max_iter < 1:
        raise ValueError(f"max_iter={max_iter!r} must be at least 1")
    grid = Signals.from_images(as_array(images, "images", stacked="image"))
    height, width = (int(side) for side in grid.domains.shapes[0])  # type: ignore[attr-defined]
    pixels = grid.values.reshape(len(grid), height * width, grid.channels)
    if (pixels < 0).any():
        image, pixel, channel = np.argwhere(pixels < 0)[0]
        raise ValueError(
            f"image {image}: values at {[int(pixel // width), int(pixel % width)]} is "
            f"{pixels[image, pixel, channel]}; superpixels need values that are not negative"
        )
    seed = np.uint64(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0])
    values, coordinates, counts = _clusters(
        pixels, width, foreground, background, value_scale, max_iter, seed
    )
    if (counts == 0).any():
        raise ValueError(
            f"image {int(np.argmin(counts))}: no clusters, for it is all "
            f"{'foreground' if foreground == 0 else 'background'} and that part gets 0 clusters"
        )
    kept = np.arange(foreground + background) < counts[:, None]
    vertex_offsets = np.concatenate([[0], np.cumsum(counts)])
    coordinates = coordinates[kept]
    edges, lengths, edge_offsets = _joined_below(coordinates, vertex_offsets, threshold)
    graphs = Graphs(vertex_offsets, edges, edge_offsets, lengths, coordinates)
    return Signals(values[kept], vertex_offsets, graphs, np.arange(len(grid)))


@njit(cache=True, nogil=True)
def _next_random(state):  # type: ignore[no-untyped-def]
    """SplitMix64: the next state and a number in [0, 1). One stream an image, whatever the thread."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return state, (mixed >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _lloyd(points, k, max_iter, state):  # type: ignore[no-untyped-def]
    """k-means from k-means++ seeds. Returns the cluster of every point; every cluster is used."""
    n, dim = points.shape
    centers = np.empty((k, dim))
    nearest = np.full(n, np.inf)
    chosen = 0
    for j in range(k):
        if j == 0:
            state, u = _next_random(state)
            chosen = min(int(u * n), n - 1)
        else:
            state, u = _next_random(state)
            goal = u * nearest.sum()
            reached = 0.0
            for i in range(n):
                if nearest[i] > 0.0:
                    chosen = i
                    reached += nearest[i]
                    if reached > goal:
                        break
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
    n, area, channels = pixels.shape
    most = foreground + background
    values = np.zeros((n, most, channels), dtype=pixels.dtype)
    coordinates = np.zeros((n, most, 2))
    counts = np.zeros(n, dtype=np.int64)
    for image in prange(n):
        bright = np.zeros(area, dtype=np.bool_)
        top = 0.0
        for i in range(area):
            for c in range(channels):
                bright[i] = bright[i] or pixels[image, i, c] > 0
                top = max(top, abs(pixels[image, i, c]))
        scale = value_scale / top if top > 0 else 0.0
        for part in range(2):
            members = np.flatnonzero(bright == (part == 0))
            k = min(foreground if part == 0 else background, len(members))
            if k == 0:
                continue
            points = np.empty((len(members), 2 + channels))
            for i in range(len(members)):
                points[i, 0] = members[i] % width
                points[i, 1] = members[i] // width
                for c in range(channels):
                    points[i, 2 + c] = pixels[image, members[i], c] * scale
            state = seed ^ (np.uint64(2 * image + part) * np.uint64(0xD1342543DE82EF95))
            labels = _lloyd(points, k, max_iter, state)
            sizes = np.zeros(k)
            sums = np.zeros((k, 2 + channels))
            for i in range(len(members)):
                sizes[labels[i]] += 1
                sums[labels[i], 0] += points[i, 0]
                sums[labels[i], 1] += points[i, 1]
                for c in range(channels):
                    sums[labels[i], 2 + c] += pixels[image, members[i], c]
            for j in range(k):
                if sizes[j] > 0:
                    place = counts[image]
                    coordinates[image, place, 0] = sums[j, 0] / sizes[j]
                    coordinates[image, place, 1] = sums[j, 1] / sizes[j]
                    for c in range(channels):
                        values[image, place, c] = sums[j, 2 + c] / sizes[j]
                    counts[image] += 1
    return values, coordinates, counts


def _joined_below(
    coordinates: np.ndarray, vertex_offsets: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found = _count_joined(coordinates, vertex_offsets, threshold)
    edge_offsets = np.concatenate([[0], np.cumsum(found)])
    edges, lengths = _fill_joined(coordinates, vertex_offsets, threshold, edge_offsets)
    return edges, lengths, edge_offsets


@parallel_njit(cache=True, nogil=True)
def _count_joined(coordinates, vertex_offsets, threshold):  # type: ignore[no-untyped-def]
    found = np.zeros(len(vertex_offsets) - 1, dtype=np.int64)
    for graph in prange(len(found)):
        for v in range(vertex_offsets[graph], vertex_offsets[graph + 1]):
            for w in range(v + 1, vertex_offsets[graph + 1]):
                dx = coordinates[v, 0] - coordinates[w, 0]
                dy = coordinates[v, 1] - coordinates[w, 1]
                if np.sqrt(dx * dx + dy * dy) < threshold:
                    found[graph] += 1
    return found


@parallel_njit(cache=True, nogil=True)
def _fill_joined(coordinates, vertex_offsets, threshold, edge_offsets):  # type: ignore[no-untyped-def]
    edges = np.empty((edge_offsets[-1], 2), dtype=np.int32)
    lengths = np.empty(edge_offsets[-1], dtype=np.float32)
    for graph in prange(len(edge_offsets) - 1):
        place = edge_offsets[graph]
        for v in range(vertex_offsets[graph], vertex_offsets[graph + 1]):
            for w in range(v + 1, vertex_offsets[graph + 1]):
                dx = coordinates[v, 0] - coordinates[w, 0]
                dy = coordinates[v, 1] - coordinates[w, 1]
                distance = np.sqrt(dx * dx + dy * dy)
                if distance < threshold:
                    edges[place, 0] = v - vertex_offsets[graph]
                    edges[place, 1] = w - vertex_offsets[graph]
                    lengths[place] = distance
                    place += 1
    return edges, lengths
