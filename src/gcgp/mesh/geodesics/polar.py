"""Geodesic polar coordinates round every vertex of a mesh, block by block of sources, compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np
from numba import njit

from gcgp.mesh.geodesics.marching import LINE, POINT, march, room_for
from gcgp.mesh.geodesics.rays import sector_ends, trace
from gcgp.mesh.geodesics.tables import Surface, Tables, length_between

SOURCES_AT_ONCE = 32


class Block(NamedTuple):
    """Neighbors of a run of sources, and their coordinates."""

    counts: np.ndarray
    """`[sources]`."""
    neighbors: np.ndarray
    """`[pairs]`, in the order of their numbers for each source."""
    rho: np.ndarray
    """`[pairs]`: geodesic distance."""
    theta: np.ndarray
    """`[pairs]` or empty: angle from the first direction, NaN at the source and where it has no faces."""
    rays: np.ndarray
    """`[pairs, J]`: distance from each ray."""


def blocks(
    surface: Surface, sources: Sequence[int], reach: float, rays: int, turning: bool, first: np.ndarray
) -> Iterator[Block]:
    """The neighbors within `reach` of each source, in as many threads as Numba may use.

    `rays` is the number of rays (0: none), `turning` whether angles are wanted, and `first` the fan's angle
    of each vertex from which both are counted.
    """
    runs = [
        np.asarray(sources[i : i + SOURCES_AT_ONCE], dtype=np.int64)
        for i in range(0, len(sources), SOURCES_AT_ONCE)
    ]
    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        yield from pool.map(lambda run: Block(*_block(surface, run, reach, rays, turning, first)), runs)


@njit(cache=True, nogil=True)
def _block(surface, sources, reach, rays, turning, first):  # type: ignore[no-untyped-def]
    total = len(surface.vertices)
    distance = np.full(total, np.inf)
    angle = np.full(total if turning else 0, np.nan)
    room = room_for(surface)
    within = np.empty(total, dtype=np.uint32)
    reached = np.empty(total, dtype=np.uint32)
    local = np.full(total if rays > 0 else 0, -1, dtype=np.int32)
    near = np.empty(total if rays > 0 else 0)
    path = np.empty(len(surface.faces) + 2 if rays > 0 else 0, dtype=np.int64)
    seen = np.zeros(len(surface.faces) if rays > 0 else 0, dtype=np.int64)
    counts = np.zeros(len(sources), dtype=np.int64)
    capacity = 64 * len(sources)
    neighbors = np.empty(capacity, dtype=np.int32)
    rho = np.empty(capacity, dtype=np.float32)
    theta = np.empty(capacity if turning else 0, dtype=np.float32)
    apart = np.empty((capacity, rays), dtype=np.float32)
    filled = 0
    stamp = 0
    for s in range(len(sources)):
        v = sources[s]
        distance[v] = 0.0
        if turning:
            _set_ring(surface, v, first[v], angle)
        reached[0] = v
        count = march(surface.tables, surface.step, POINT, reach, distance, angle, room, reached, 1)
        inside = 0
        for i in range(count):
            w = reached[i]
            # A front over unfolded triangles can be shorter than the chord on rough surfaces.
            distance[w] = max(distance[w], length_between(surface.vertices, v, w))
            if distance[w] <= reach:
                within[inside] = w
                inside += 1
            else:
                distance[w] = np.inf
                if turning:
                    angle[w] = np.nan
        members = np.sort(within[:inside])
        if filled + inside > capacity:
            capacity = max(2 * capacity, filled + inside)
            neighbors = _grown(neighbors, filled, capacity)
            rho = _grown(rho, filled, capacity)
            if turning:
                theta = _grown(theta, filled, capacity)
            if rays > 0:
                wider = np.empty((capacity, rays), dtype=np.float32)
                wider[:filled] = apart[:filled]
                apart = wider
        for i in range(inside):
            w = members[i]
            neighbors[filled + i] = w
            rho[filled + i] = distance[w]
            if turning:
                theta[filled + i] = np.nan if w == v else np.remainder(angle[w] + np.pi, 2 * np.pi) - np.pi
        for i in range(count):
            distance[reached[i]] = np.inf
            if turning:
                angle[reached[i]] = np.nan
        if turning:
            _unset_ring(surface, v, angle)
        if rays > 0:
            for i in range(inside):
                local[members[i]] = i
            tables = _within(surface.tables, members, local)
            own = apart[filled : filled + inside]
            for j in range(rays):
                stamp += 1
                direction = first[v] + surface.fan_totals[v] * j / rays
                if direction > surface.fan_totals[v] > 0:
                    direction -= surface.fan_totals[v]
                length = trace(surface, v, direction, reach, seen, stamp, path)
                own[:, j] = _from_ray(
                    tables, surface.step, path[:length], local, near[:inside], room, reached
                )
            for i in range(inside):
                own[i] = np.minimum(own[i], rho[filled + i])  # the vertex is on every ray
            for i in range(inside):
                local[members[i]] = -1
        counts[s] = inside
        filled += inside
    return counts, neighbors[:filled], rho[:filled], theta[:filled], apart[:filled]


@njit(cache=True, nogil=True)
def _from_ray(tables, step, path, local, near, room, reached):  # type: ignore[no-untyped-def]
    """Distances of the members from those of the path that are among them."""
    near[:] = np.inf
    count = 0
    for i in range(len(path)):
        w = local[path[i]]
        if w >= 0 and near[w] > 0:
            near[w] = 0.0
            reached[count] = w
            count += 1
    march(tables, step, LINE, np.inf, near, np.empty(0), room, reached, count)
    return near


@njit(cache=True, nogil=True)
def _grown(values, filled, capacity):  # type: ignore[no-untyped-def]
    larger = np.empty(capacity, dtype=values.dtype)
    larger[:filled] = values[:filled]
    return larger


@njit(cache=True, nogil=True)
def _set_ring(surface, v, first, angle):  # type: ignore[no-untyped-def]
    """The directions of the edges at `v`: as fractions of a full turn, or true angles at a boundary."""
    total = surface.fan_totals[v]
    stretch = 2 * np.pi / total if surface.fan_closed[v] and total > 0 else 1.0
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        p, q = sector_ends(surface, i)
        stop = surface.fan_starts[i + 1] if i + 1 < surface.fan_offsets[v + 1] else total
        if np.isnan(angle[p]):
            angle[p] = (surface.fan_starts[i] - first) * stretch
        if np.isnan(angle[q]):
            angle[q] = (stop - first) * stretch


@njit(cache=True, nogil=True)
def _unset_ring(surface, v, angle):  # type: ignore[no-untyped-def]
    for i in range(surface.fan_offsets[v], surface.fan_offsets[v + 1]):
        p, q = sector_ends(surface, i)
        angle[p] = np.nan
        angle[q] = np.nan


@njit(cache=True, nogil=True)
def _within(tables, members, local):  # type: ignore[no-untyped-def]
    """The tables for marching of the members alone, which have the numbers `local`: they fit the cache."""
    if len(members) == len(local):
        return tables
    line_offsets, lines = _within_of(tables.line_offsets, tables.line_ends.reshape((-1, 1)), members, local)
    corner_offsets, corners = _within_of(tables.corner_offsets, tables.corner_ends, members, local)
    beyond_offsets, beyond = _within_of(tables.beyond_offsets, tables.beyond_ends, members, local)
    return Tables(
        line_offsets,
        local[tables.line_ends[lines]].astype(np.uint32),
        tables.line_lengths[lines],
        tables.longest_edges[members],
        corner_offsets,
        _renamed(tables.corner_ends, corners, local),
        tables.corner_places[corners],
        beyond_offsets,
        _renamed(tables.beyond_ends, beyond, local),
        tables.beyond_places[beyond],
    )


@njit(cache=True, nogil=True)
def _within_of(offsets, ends, members, local):  # type: ignore[no-untyped-def]
    """Offsets and numbers of those rows of `ends` that belong to members and hold nobody else."""
    most = np.int64(0)
    for i in range(len(members)):
        most += np.int64(offsets[members[i] + 1]) - np.int64(offsets[members[i]])
    chosen = np.empty(most + 1, dtype=np.int64)
    inner = np.zeros(len(members) + 1, dtype=np.uint32)
    count = 0
    for i in range(len(members)):
        for row in range(offsets[members[i]], offsets[members[i] + 1]):
            chosen[count] = row
            inside = True
            for k in range(ends.shape[1]):
                inside &= local[ends[row, k]] >= 0
            count += inside
        inner[i + 1] = count
    return inner, chosen[:count]


@njit(cache=True, nogil=True)
def _renamed(ends, chosen, local):  # type: ignore[no-untyped-def]
    renamed = np.empty((len(chosen), 2), dtype=np.uint32)
    for i in range(len(chosen)):
        renamed[i, 0] = local[ends[chosen[i], 0]]
        renamed[i, 1] = local[ends[chosen[i], 1]]
    return renamed
