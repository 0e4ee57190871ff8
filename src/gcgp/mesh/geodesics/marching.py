"""Fast marching over triangles (Kimmel & Sethian 1998), compiled.

Libraries with fast marching solve the whole mesh for each source and reject non-manifold meshes.

A front passes from two vertices of a triangle to the third as if it came from a line (`front=LINE`, Kimmel &
Sethian) or from a point (`front=POINT`, the virtual source of Novotni & Klein 2002, exact on flat surfaces).
Both minimize the distance to a point of the edge plus the rest of the way, so no distance is longer than
along edges. Vertices are visited roughly in ascending order of distance, and again if they improve later.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gcgp.mesh.geodesics.unfolding import apex

POINT = 0
LINE = 1
IMPROVEMENT_FACTOR = 1 - 1e-10
"""A distance is lowered only by more than rounding; otherwise fronts could run in circles."""
CORRECTION_FACTOR = 1 - 1e-6
"""The same for a vertex that was visited, because everything that follows from it is computed again."""
MAX_VISITS_PER_VERTEX = 50
"""On average; after that, fronts follow only edges, which terminates."""


class Workspace(NamedTuple):
    """Arrays to work in, which `march` leaves as it finds them."""

    settled: np.ndarray  # [V], infinite: distances at which vertices were visited
    heads: np.ndarray  # [buckets], −1: the first slot of the queue in each bucket
    queue: np.ndarray  # [2V]: the vertex in each slot
    following: np.ndarray  # [2V]: the next slot of the same bucket
    improved: np.ndarray  # [max_updates]: vertices improved by the current visit


@njit(cache=True, nogil=True)
def new_workspace(surface):  # type: ignore[no-untyped-def]
    """A workspace for marches on a surface or on a part of it."""
    total = len(surface.vertices)
    return Workspace(
        np.full(total, np.inf),
        np.full(surface.buckets, -1, dtype=np.int32),
        np.empty(2 * total, dtype=np.uint32),
        np.empty(2 * total, dtype=np.int32),
        np.empty(surface.max_updates, dtype=np.uint32),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _from_point(da, db, base, x, y):  # type: ignore[no-untyped-def]
    """Distance of (x, y) from the virtual source below the base, at distances da and db from its ends.

    Infinite if the straight line does not cross the base: then the shortest way is an edge.
    """
    # As in `apex`, but accurate if da and db are much longer than the base and their squares nearly cancel.
    sx = 0.5 * ((da - db) * (da + db) / base + base)
    sy = np.sqrt(max(0.0, da * da - sx * sx))
    crossing = sx * y + x * sy
    if crossing < 0 or crossing > base * (sy + y):
        return np.inf
    return np.sqrt((x - sx) * (x - sx) + (y + sy) * (y + sy))


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _from_line(da, db, base, x, y):  # type: ignore[no-untyped-def]
    """Distance of (x, y) if it grows linearly along the base from da to db; infinite if the way is an edge.

    If a distance at the base is infinite or they differ by more than the base, `rise` is NaN.
    """
    slope = (db - da) / base
    rise = np.sqrt(1 - slope * slope)
    crossing = x * rise - y * slope
    distance = da + slope * x + rise * y
    return distance if (crossing >= 0) & (crossing <= base * rise) else np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def _across(front, da, db, base, x, y):  # type: ignore[no-untyped-def]
    if front == POINT and da + db >= base:
        return _from_point(da, db, base, x, y)
    return _from_line(da, db, base, x, y)


@njit(cache=True, nogil=True, error_model="numpy")
def _interpolated_angle(at_vertex, at_other, da, db, base, x, y):  # type: ignore[no-untyped-def]
    """The direction at (x, y), in proportion to the angles that the virtual source sees.

    As in the polar coordinates of Melvær & Reimers 2012.
    """
    between = np.remainder(at_other - at_vertex + np.pi, 2 * np.pi) - np.pi
    sx, sy = apex(base, da, db)
    if sy == 0:
        return at_vertex + between / 2
    to_vertex = np.arctan2(-sx, sy)
    whole = np.arctan2(base - sx, sy) - to_vertex
    part = np.arctan2(x - sx, y + sy) - to_vertex
    return at_vertex + between * (part / whole)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _threshold(known, settled):  # type: ignore[no-untyped-def]
    """The distance below which an update counts as an improvement."""
    return known * (IMPROVEMENT_FACTOR if settled == np.inf else CORRECTION_FACTOR)


@njit(cache=True, nogil=True, error_model="numpy")
def _enqueue_all(heads, queue, following, distance, now, inverse, reached, count):  # type: ignore[no-untyped-def]
    """Put all reached vertices into an emptied queue; those that need no visit are skipped later."""
    heads[:] = -1
    last = len(heads) - 1
    for i in range(count):
        bucket = min(max(np.int64(distance[reached[i]] * inverse), now), now + last) & last
        queue[i] = reached[i]
        following[i] = heads[bucket]
        heads[bucket] = i


@njit(cache=True, nogil=True, error_model="numpy")
def march(tables, step, front, radius, distance, angle, workspace, reached, sources):  # type: ignore[no-untyped-def]
    """March from the first `sources` of `reached`; return how many vertices were reached.

    `distance` holds the values at the sources, and infinity elsewhere. `reached` receives all vertices whose
    distance was set; distances beyond the radius are not final. If `angle` is not empty, it carries the
    direction in which the way left the only source, given at its neighbors and NaN elsewhere. Vertices
    wait in buckets of distances, `step` wide, in no order.
    """
    line_offsets, line_ends, line_lengths, longest_lines = tables[:4]
    corner_offsets, corner_ends, corner_layouts = tables[4:7]
    unfolded_offsets, unfolded_ends, unfolded_layouts = tables[7:]
    settled, heads, queue, following, improved = workspace
    with_angle = len(angle) > 0
    source = reached[0]
    inverse = 1 / step
    last = len(heads) - 1
    # Numbers of vertices reached, of vertices waiting, and of slots used; then the first free slot.
    count = waiting = used = np.int64(sources)
    free = np.int64(-1)
    now = np.int64(distance[source] * inverse)
    for i in range(sources):
        now = min(now, np.int64(distance[reached[i]] * inverse))
    _enqueue_all(heads, queue, following, distance, now, inverse, reached, count)
    longest = 0.0  # line out of a vertex within the radius; its end may be needed to reach another one
    visits = MAX_VISITS_PER_VERTEX * len(corner_offsets)
    while waiting > 0:
        slot = np.int64(heads[now & last])
        if slot < 0:
            now += 1
            if now * step > radius + longest:
                break
            continue
        v = queue[slot]
        heads[now & last] = following[slot]
        following[slot] = free
        free = slot
        waiting -= 1
        here = distance[v]
        if here == settled[v] or here > radius + longest:
            continue
        updates = 0
        if np.int64(here * inverse) > now:  # it waited in the last bucket because its own is farther
            improved[0], updates = v, 1
        else:
            visits -= 1
            over_faces = 1 if visits > 0 else 0
            again = settled[v] < np.inf
            settled[v] = here
            if here <= radius:
                longest = max(longest, longest_lines[v])
            # An improvement is written out each time: as a function it is 7 % slower.
            if front == LINE and not again and not with_angle:
                # The usual case, faster without branches: from v and the nearer of p and q, which cannot
                # gain, to the farther one. If neither was visited, the distance is infinite.
                for i in range(corner_offsets[v], corner_offsets[v + over_faces]):
                    p, q = corner_ends[i, 0], corner_ends[i, 1]
                    at_p, at_q = settled[p], settled[q]
                    to_p, to_q = corner_layouts[i, 0], corner_layouts[i, 1]
                    to_farther_p = at_p > at_q
                    w = p if to_farther_p else q
                    base, side = to_q if to_farther_p else to_p, to_p if to_farther_p else to_q
                    at_other, at_w = at_q if to_farther_p else at_p, at_p if to_farther_p else at_q
                    x, y = side * corner_layouts[i, 2], side * corner_layouts[i, 3]
                    there = _from_line(here, at_other, base, x, y)
                    if there < _threshold(distance[w], at_w):
                        if distance[w] == np.inf:
                            reached[count], count = w, count + 1
                        distance[w], improved[updates], updates = there, w, updates + 1
            else:
                # To each of p and q whose partner was visited, even if it was visited itself: a front from
                # a point is curved, and one that comes later may be nearer.
                for i in range(corner_offsets[v], corner_offsets[v + over_faces]):
                    p, q = corner_ends[i, 0], corner_ends[i, 1]
                    at_p, at_q = settled[p], settled[q]
                    for target in range(0 if at_q < np.inf else 1, 2 if at_p < np.inf else 1):
                        w, other = (p, q) if target == 0 else (q, p)
                        at_w, at_other = (at_p, at_q) if target == 0 else (at_q, at_p)
                        side, base = corner_layouts[i, target], corner_layouts[i, 1 - target]
                        if with_angle and (at_other == 0 or here == 0):
                            continue
                        x, y = side * corner_layouts[i, 2], side * corner_layouts[i, 3]
                        there = _across(front, here, at_other, base, x, y)
                        if there < _threshold(distance[w], at_w):
                            if with_angle:
                                angle[w] = _interpolated_angle(
                                    angle[v], angle[other], here, at_other, base, x, y
                                )
                            if distance[w] == np.inf:
                                reached[count], count = w, count + 1
                            distance[w], improved[updates], updates = there, w, updates + 1
            for i in range(unfolded_offsets[v], unfolded_offsets[v + over_faces]):
                p, w = unfolded_ends[i, 0], unfolded_ends[i, 1]
                at_p = settled[p]
                if at_p < np.inf and not (with_angle and (at_p == 0 or here == 0)):
                    base, x, y = unfolded_layouts[i, 0], unfolded_layouts[i, 1], unfolded_layouts[i, 2]
                    there = _across(front, here, at_p, base, x, y)
                    if there < _threshold(distance[w], settled[w]):
                        if with_angle:
                            angle[w] = _interpolated_angle(angle[v], angle[p], here, at_p, base, x, y)
                        if distance[w] == np.inf:
                            reached[count], count = w, count + 1
                        distance[w], improved[updates], updates = there, w, updates + 1
            for i in range(line_offsets[v], line_offsets[v + 1]):
                w = line_ends[i]
                there = here + abs(line_lengths[i])
                if there < distance[w] * IMPROVEMENT_FACTOR:
                    if with_angle:
                        if v != source:
                            angle[w] = angle[v]
                        elif line_lengths[i] < 0:
                            continue  # a shortcut, whose direction is not known
                        elif np.isnan(angle[w]):
                            angle[w] = 0.0  # an edge only of faces without area
                    if distance[w] == np.inf:
                        reached[count], count = w, count + 1
                    distance[w], improved[updates], updates = there, w, updates + 1
        for i in range(updates):
            if free < 0 and used == len(queue):
                _enqueue_all(heads, queue, following, distance, now, inverse, reached, count)
                waiting = used = count
                break
            w = improved[i]
            bucket = np.int64(distance[w] * inverse)
            now = min(now, bucket)  # back to a bucket that was passed too early
            bucket = min(bucket, now + last) & last
            if free >= 0:
                slot = free
                free = np.int64(following[slot])
            else:
                slot = used
                used += 1
            queue[slot] = w
            following[slot] = heads[bucket]
            heads[bucket] = slot
            waiting += 1
    heads[:] = -1
    for i in range(count):
        settled[reached[i]] = np.inf
    return count
