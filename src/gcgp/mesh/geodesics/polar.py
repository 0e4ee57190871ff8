"""Geodesic polar coordinates around the vertices of a mesh, computed in blocks of sources; compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
from numba import njit

from gcgp.mesh.geodesics.marching import LINE, POINT, march, new_workspace
from gcgp.mesh.geodesics.rays import sector_stop, trace
from gcgp.mesh.geodesics.tables import Surface, Tables
from gcgp.mesh.geodesics.unfolding import length_between

SOURCES_PER_BLOCK = 32


class Block(NamedTuple):
    """Neighbors of a run of sources, and their coordinates."""

    counts: np.ndarray  # [sources]
    neighbors: np.ndarray  # [pairs], ascending for each source
    rho: np.ndarray  # [pairs]: geodesic distance
    theta: np.ndarray  # [pairs] or empty: angle from the first direction; NaN at the source
    rays: np.ndarray  # [pairs, J]: distance from each ray


def blocks(
    surface: Surface, sources: Sequence[int], reach: float, rays: int, with_theta: bool, first: np.ndarray
) -> Iterator[Block]:
    """The neighbors within `reach` of each source, in as many threads as Numba may use.

    `rays` is the number of rays (may be 0), and `first` the fan angle of each vertex where θ = 0.
    """
    runs = [
        np.asarray(sources[i : i + SOURCES_PER_BLOCK], dtype=np.int64)
        for i in range(0, len(sources), SOURCES_PER_BLOCK)
    ]
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        yield from pool.map(lambda run: Block(*_block(surface, run, reach, rays, with_theta, first)), runs)


@njit(cache=True, nogil=True)
def _block(surface, sources, reach, rays, with_theta, first):  # type: ignore[no-untyped-def]
    total = len(surface.vertices)
    distance = np.full(total, np.inf)
    angle = np.full(total if with_theta else 0, np.nan)
    workspace = new_workspace(surface)
    within = np.empty(total, dtype=np.uint32)
    reached = np.empty(total, dtype=np.uint32)
    local = np.full(total if rays > 0 else 0, -1, dtype=np.int32)
    ray_distance = np.empty(total if rays > 0 else 0)
    path = np.empty(len(surface.faces) + 2 if rays > 0 else 0, dtype=np.int64)
    seen = np.zeros(len(surface.faces) if rays > 0 else 0, dtype=np.int64)
    counts = np.zeros(len(sources), dtype=np.int64)
    capacity = 64 * len(sources)
    neighbors = np.empty(capacity, dtype=np.int32)
    rho = np.empty(capacity, dtype=np.float32)
    theta = np.empty(capacity if with_theta else 0, dtype=np.float32)
    ray_columns = np.empty((capacity, rays), dtype=np.float32)
    filled = 0
    for s in range(len(sources)):
        v = sources[s]
        distance[v] = 0.0
        if with_theta:
            _set_ring(surface, v, first[v], angle)
        reached[0] = v
        count = march(surface.tables, surface.step, POINT, reach, distance, angle, workspace, reached, 1)
        inside = 0
        for i in range(count):
            w = reached[i]
            # A front over unfolded triangles can be shorter than the chord on rough surfaces.
            distance[w] = max(distance[w], length_between(surface.vertices, v, w))
            if distance[w] <= reach:
                within[inside] = w
                inside += 1
        members = np.sort(within[:inside])
        if filled + inside > capacity:
            capacity = max(2 * capacity, filled + inside)
            neighbors = _grown(neighbors, capacity)
            rho = _grown(rho, capacity)
            if with_theta:
                theta = _grown(theta, capacity)
            ray_columns = _grown(ray_columns, capacity)
        for i in range(inside):
            w = members[i]
            neighbors[filled + i] = w
            rho[filled + i] = distance[w]
            if with_theta:
                theta[filled + i] = np.nan if w == v else np.remainder(angle[w] + np.pi, 2 * np.pi) - np.pi
        for i in range(count):
            distance[reached[i]] = np.inf
            if with_theta:
                angle[reached[i]] = np.nan
        if rays > 0:
            for i in range(inside):
                local[members[i]] = i
            tables = _restricted(surface.tables, members, local)
            columns = ray_columns[filled : filled + inside]
            for j in range(rays):
                direction = first[v] + surface.fan_totals[v] * j / rays
                length = trace(surface, v, direction, reach, seen, s * rays + j + 1, path)
                columns[:, j] = _from_ray(
                    tables, surface.step, path[:length], local, ray_distance[:inside], workspace, reached
                )
            for i in range(inside):
                columns[i] = np.minimum(columns[i], rho[filled + i])  # the source is on every ray
                local[members[i]] = -1
        counts[s] = inside
        filled += inside
    return counts, neighbors[:filled], rho[:filled], theta[:filled], ray_columns[:filled]


@njit(cache=True, nogil=True)
def _from_ray(tables, step, path, local, distance, workspace, reached):  # type: ignore[no-untyped-def]
    """Distances of the members from those vertices of a path that are members."""
    distance[:] = np.inf
    count = 0
    for i in range(len(path)):
        w = local[path[i]]
        if w >= 0 and distance[w] > 0:
            distance[w] = 0.0
            reached[count] = w
            count += 1
    march(tables, step, LINE, np.inf, distance, np.empty(0), workspace, reached, count)
    return distance


@njit(cache=True, nogil=True)
def _grown(values, capacity):  # type: ignore[no-untyped-def]
    larger = np.empty((capacity, *values.shape[1:]), dtype=values.dtype)
    larger[: len(values)] = values
    return larger


@njit(cache=True, nogil=True)
def _set_ring(surface, v, first, angle):  # type: ignore[no-untyped-def]
    """Set the directions of the edges at `v`: as fractions of a full turn, or true angles at a boundary."""
    total = surface.fan_totals[v]
    stretch = 2 * np.pi / total if surface.fan_closed[v] and total > 0 else 1.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        p, q = surface.fan_ends[i, 0], surface.fan_ends[i, 1]
        if np.isnan(angle[p]):
            angle[p] = (surface.fan_starts[i] - first) * stretch
        if np.isnan(angle[q]):
            angle[q] = (sector_stop(surface, v, i) - first) * stretch


@njit(cache=True, nogil=True)
def _restricted(tables, members, local):  # type: ignore[no-untyped-def]
    """The tables of the members only, renumbered by `local`: they fit into the processor's cache."""
    if len(members) == len(local):
        return tables
    line_offsets, lines, line_ends = _restricted_rows(
        tables.line_offsets, tables.line_ends.reshape((-1, 1)), members, local
    )
    corner_offsets, corners, corner_ends = _restricted_rows(
        tables.corner_offsets, tables.corner_ends, members, local
    )
    unfolded_offsets, triangles, unfolded_ends = _restricted_rows(
        tables.unfolded_offsets, tables.unfolded_ends, members, local
    )
    return Tables(
        line_offsets,
        line_ends.reshape(-1),
        tables.line_lengths[lines],
        tables.longest_lines[members],
        corner_offsets,
        corner_ends,
        tables.corner_layouts[corners],
        unfolded_offsets,
        unfolded_ends,
        tables.unfolded_layouts[triangles],
    )


@njit(cache=True, nogil=True)
def _restricted_rows(offsets, ends, members, local):  # type: ignore[no-untyped-def]
    """Offsets, indices and renumbered ends of those rows of `ends` that connect only members."""
    capacity = np.int64(0)
    for v in members:
        capacity += np.int64(offsets[v + 1]) - np.int64(offsets[v])
    rows = np.empty(capacity, dtype=np.int64)
    renumbered = np.empty((capacity, ends.shape[1]), dtype=np.uint32)
    restricted_offsets = np.zeros(len(members) + 1, dtype=np.uint32)
    count = 0
    for i in range(len(members)):
        for row in range(offsets[members[i]], offsets[members[i] + 1]):
            rows[count] = row
            inside = True
            for k in range(ends.shape[1]):
                renumbered[count, k] = local[ends[row, k]]
                inside &= local[ends[row, k]] >= 0
            count += inside
        restricted_offsets[i + 1] = count
    return restricted_offsets, rows[:count], renumbered[:count]
