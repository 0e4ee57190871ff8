"""Compiled loops over the vertices of many graphs at once.

SciPy's KD-tree and shortest paths handle one graph at a time and return dense rows or Python lists, which
would need a Python loop over signals.
"""

from __future__ import annotations

import heapq

import numpy as np
from numba import njit, prange

from gcgp._numerics.segments import offsets_from_counts, repeat_starts
from gcgp._runtime.fork import parallel_njit

ROWS_PER_TASK = 64


def pairs_within(
    coordinates: np.ndarray, vertex_offsets: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs of vertices of a graph at a distance of at most `reach`: row offsets, neighbors, ρ."""
    first = repeat_starts(vertex_offsets)
    last = np.repeat(vertex_offsets[1:], np.diff(vertex_offsets))
    row_offsets = offsets_from_counts(_count_within(coordinates, first, last, reach))
    neighbors, rho = _fill_within(coordinates, first, last, reach, row_offsets)
    return row_offsets, neighbors, rho


@njit(cache=True, nogil=True, inline="always")
def _distance(coordinates, a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(coordinates.shape[1]):
        total += (coordinates[a, k] - coordinates[b, k]) ** 2
    return np.sqrt(total)


@parallel_njit(cache=True, nogil=True)
def _count_within(coordinates, first, last, reach):  # type: ignore[no-untyped-def]
    counts = np.zeros(len(first), dtype=np.int64)
    for v in prange(len(first)):
        count = 0
        for w in range(first[v], last[v]):
            count += _distance(coordinates, v, w) <= reach  # no branch, which would often be mispredicted
        counts[v] = count
    return counts


@parallel_njit(cache=True, nogil=True)
def _fill_within(coordinates, first, last, reach, row_offsets):  # type: ignore[no-untyped-def]
    neighbors = np.empty(row_offsets[-1], dtype=np.int32)
    rho = np.empty(row_offsets[-1])
    for v in prange(len(first)):
        pair = row_offsets[v]
        for w in range(first[v], last[v]):
            distance = _distance(coordinates, v, w)
            if distance <= reach:
                neighbors[pair] = w - first[v]
                rho[pair] = distance
                pair += 1
    return neighbors, rho


@parallel_njit(cache=True, nogil=True)
def nearest_distances(coordinates, vertex_offsets):  # type: ignore[no-untyped-def]
    """Distance from each vertex to the nearest vertex of its graph that does not coincide with it."""
    nearest = np.full(vertex_offsets[-1], np.inf)
    for graph in prange(len(vertex_offsets) - 1):
        for v in range(vertex_offsets[graph], vertex_offsets[graph + 1]):
            for w in range(vertex_offsets[graph], vertex_offsets[graph + 1]):
                distance = _distance(coordinates, v, w)
                if distance > 0:
                    nearest[v] = min(nearest[v], distance)
    return nearest


def pairs_along_edges(
    indptr: np.ndarray, indices: np.ndarray, lengths: np.ndarray, vertex_offsets: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs joined by a path of length at most `reach`: row offsets, neighbors, shortest length."""
    first = repeat_starts(vertex_offsets)
    graph = (indptr.astype(np.int64), indices.astype(np.int64), lengths, first)
    graph_size = int(np.diff(vertex_offsets).max())
    counts = np.zeros(len(first), dtype=np.int64)
    no_offsets, no_neighbors = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    _dijkstra(*graph, graph_size, reach, counts, no_offsets, no_neighbors, np.zeros(0))
    row_offsets = offsets_from_counts(counts)
    neighbors, rho = np.empty(row_offsets[-1], dtype=np.int32), np.empty(row_offsets[-1])
    _dijkstra(*graph, graph_size, reach, counts, row_offsets, neighbors, rho)
    return row_offsets, neighbors, rho


@parallel_njit(cache=True, nogil=True)
def _dijkstra(  # type: ignore[no-untyped-def]
    indptr, indices, lengths, first, graph_size, reach, counts, row_offsets, neighbors, rho
):
    """Dijkstra's algorithm from each vertex, cut off at `reach`. Without row offsets it only counts pairs."""
    total = len(first)
    filling = len(row_offsets) > 0
    for task in prange((total + ROWS_PER_TASK - 1) // ROWS_PER_TASK):
        distance = np.full(graph_size, np.inf)
        touched = np.empty(graph_size, dtype=np.int64)
        for source in range(task * ROWS_PER_TASK, min(total, (task + 1) * ROWS_PER_TASK)):
            base = first[source]
            touched[0] = source - base
            reached = 1
            distance[source - base] = 0.0
            heap = [(0.0, source - base)]
            while len(heap) > 0:
                here, v = heapq.heappop(heap)
                if here > distance[v]:
                    continue
                for e in range(indptr[base + v], indptr[base + v + 1]):
                    w = indices[e] - base
                    there = here + lengths[e]
                    if there <= reach and there < distance[w]:
                        if distance[w] == np.inf:
                            touched[reached] = w
                            reached += 1
                        distance[w] = there
                        heapq.heappush(heap, (there, w))
            counts[source] = reached
            if filling:
                order = np.sort(touched[:reached])
                for i in range(reached):
                    neighbors[row_offsets[source] + i] = order[i]
                    rho[row_offsets[source] + i] = distance[order[i]]
            for i in range(reached):
                distance[touched[i]] = np.inf


@parallel_njit(cache=True, nogil=True)
def pair_offsets(coordinates, first, row_offsets, neighbors):  # type: ignore[no-untyped-def]
    """The neighbor's coordinates minus those of the vertex, for each pair."""
    offsets = np.empty((len(neighbors), coordinates.shape[1]))
    for v in prange(len(row_offsets) - 1):
        for pair in range(row_offsets[v], row_offsets[v + 1]):
            for k in range(coordinates.shape[1]):
                offsets[pair, k] = coordinates[first[v] + neighbors[pair], k] - coordinates[v, k]
    return offsets


@parallel_njit(cache=True, nogil=True)
def pair_angles(offsets):  # type: ignore[no-untyped-def]
    """arctan2 of two-dimensional offsets; NaN where the offset is zero."""
    angles = np.empty(len(offsets))
    for pair in prange(len(offsets)):
        x, y = offsets[pair, 0], offsets[pair, 1]
        angles[pair] = np.nan if x == 0 and y == 0 else np.arctan2(y, x)
    return angles


@njit(cache=True, nogil=True)
def nearest_kept(row_offsets, neighbors, rho, first, order, distance):  # type: ignore[no-untyped-def]
    """For each vertex, the nearest of those that are kept.

    In the given order, a vertex is kept if none that was kept before is within the distance.
    """
    nearest = np.full(len(first), np.inf)
    owners = np.full(len(first), -1)
    for v in order:
        if owners[v] >= 0:
            continue
        owners[v], nearest[v] = v, -1.0
        for pair in range(row_offsets[v], row_offsets[v + 1]):
            w = first[v] + neighbors[pair]
            if rho[pair] < min(distance, nearest[w]):
                owners[w], nearest[w] = v, rho[pair]
    return owners
