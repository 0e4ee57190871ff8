"""Fronts that march over triangles (Kimmel & Sethian 1998), compiled.

Written by hand because the libraries that do it solve the whole mesh for every source and refuse meshes
that are no manifolds.

A front passes from two vertices of a triangle to the third, as if it came straight from a line
(`front=LINE`, the update of Kimmel & Sethian) or from a point (`front=POINT`, the virtual source of Novotni &
Klein 2002, which is exact on flat surfaces). Either is the least of distance-to-a-point-of-the-edge
plus the rest of the way, so neither is ever longer than along edges. Vertices are visited
roughly in the order of their distance; one that is improved later is visited again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

POINT = 0
LINE = 1
IMPROVEMENT = 1 - 1e-10
"""A distance is lowered only by more than rounding, or fronts would run in circles for ever."""
CORRECTION = 1 - 1e-6
"""The same for a vertex that the front has passed: what follows from it has to be done again."""
MOST_VISITS = 50
"""Times the number of vertices; after that, fronts follow edges alone, which comes to an end."""


class Room(NamedTuple):
    """Arrays to work in, which a march leaves as it finds them; some are of interest to nobody else."""

    settled: np.ndarray
    """`[V]`, infinite: distances at which vertices have been visited."""
    heads: np.ndarray
    """`[buckets]`, −1: the first place of the queue that belongs to each bucket."""
    queue: np.ndarray
    following: np.ndarray
    """Who waits in each place, and the next place of the same bucket."""
    improved: np.ndarray
    """`[widest]`: who has been improved by the vertex that is visited."""


@njit(cache=True, nogil=True)
def room_for(surface):  # type: ignore[no-untyped-def]
    """Room for marches on a surface, or on a part of it."""
    total = len(surface.vertices)
    return Room(
        np.full(total, np.inf),
        np.full(surface.buckets, -1, dtype=np.int32),
        np.empty(2 * total, dtype=np.uint32),
        np.empty(2 * total, dtype=np.int32),
        np.empty(surface.widest, dtype=np.uint32),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _from_point(da, db, base, x, y):  # type: ignore[no-untyped-def]
    """Distance to (x, y) from the point below the base that is da and db from its ends; inf if none.

    Infinite also if the straight way does not cross the base: then the way is along an edge.
    """
    sx = 0.5 * ((da - db) * (da + db) / base + base)
    sy = np.sqrt(max(0.0, da * da - sx * sx))
    crossing = sx * y + x * sy
    if crossing < 0 or crossing > base * (sy + y):
        return np.inf
    return np.sqrt((x - sx) * (x - sx) + (y + sy) * (y + sy))


@njit(cache=True, nogil=True, error_model="numpy")
def _from_line(da, db, base, x, y):  # type: ignore[no-untyped-def]
    """Distance to (x, y) if it grows linearly along the base from da to db; inf if the way is an edge."""
    slope = (db - da) / base
    if slope >= 1 or slope <= -1:
        return np.inf
    rise = np.sqrt(1 - slope * slope)
    crossing = x * rise - y * slope
    if crossing < 0 or crossing > base * rise:
        return np.inf
    return da + slope * x + rise * y


@njit(cache=True, nogil=True, error_model="numpy")
def _put_all(heads, queue, following, distance, now, inverse, reached, count):  # type: ignore[no-untyped-def]
    """Put everyone who has been reached into an empty queue; those who need no visit will be passed over."""
    heads[:] = -1
    last = len(heads) - 1
    for i in range(count):
        bucket = min(max(np.int64(distance[reached[i]] * inverse), now), now + last) & last
        queue[i] = reached[i]
        following[i] = heads[bucket]
        heads[bucket] = i


@njit(cache=True, nogil=True, error_model="numpy")
def march(tables, step, front, radius, distance, angle, room, reached, sources):  # type: ignore[no-untyped-def]
    """March from the first `sources` of `reached`; return how many vertices have been reached.

    `distance` holds the values at the sources, and infinity elsewhere. All vertices whose distance has been
    set come out in `reached`, those beyond the radius among them, whose distances are not final. If `angle`
    has entries, it carries the direction in which the way left the one source; at the source's neighbors
    it is given, elsewhere NaN. Vertices wait in buckets of distances, `step` wide, in no order.
    """
    line_offsets, line_ends, line_lengths = tables.line_offsets, tables.line_ends, tables.line_lengths
    corner_offsets, corner_ends = tables.corner_offsets, tables.corner_ends
    corner_places, longest_edges = tables.corner_places, tables.longest_edges
    beyond_offsets, beyond_ends = tables.beyond_offsets, tables.beyond_ends
    beyond_places = tables.beyond_places
    settled, heads, improved = room.settled, room.heads, room.improved
    queue, following = room.queue, room.following
    turning = len(angle) > 0
    source = reached[0]
    inverse = 1 / step
    last = len(heads) - 1
    # How many vertices have been reached, wait, and are or were in the queue; and its first free place.
    count = waiting = used = np.int64(sources)
    free = np.int64(-1)
    now = np.int64(distance[source] * inverse)
    for i in range(sources):
        now = min(now, np.int64(distance[reached[i]] * inverse))
    _put_all(heads, queue, following, distance, now, inverse, reached, count)
    longest = 0.0  # edge out of a vertex within the radius; its end may be needed to reach another one
    visits = MOST_VISITS * len(corner_offsets)
    while waiting > 0:
        place = np.int64(heads[now & last])
        if place < 0:
            now += 1
            if now * step > radius + longest:
                break
            continue
        v = queue[place]
        heads[now & last] = following[place]
        following[place] = free
        free = place
        waiting -= 1
        here = distance[v]
        if here == settled[v] or here > radius + longest:
            continue
        better = 0
        if np.int64(here * inverse) > now:  # it had to wait in the last bucket there is
            improved[0], better = v, 1
        else:
            visits -= 1
            over_faces = visits > 0
            again = settled[v] < np.inf
            settled[v] = here
            if here <= radius:
                longest = max(longest, longest_edges[v])
            # What an improvement entails is written out each time: as a function it costs a third more.
            corners = range(corner_offsets[v], corner_offsets[v + 1] if over_faces else corner_offsets[v])
            if front == LINE and not again and not turning:
                # The usual case, a sixth faster without branches: over the face from the nearer of p and q,
                # which itself cannot gain, to the further. If neither has been passed, this is not a number.
                for i in corners:
                    p, q = corner_ends[i, 0], corner_ends[i, 1]
                    at_p, at_q = settled[p], settled[q]
                    to_p, to_q = corner_places[i, 0], corner_places[i, 1]
                    p_further = at_p > at_q
                    w = p if p_further else q
                    base, side = to_q if p_further else to_p, to_p if p_further else to_q
                    at_other, at_w = at_q if p_further else at_p, at_p if p_further else at_q
                    x, y = side * corner_places[i, 2], side * corner_places[i, 3]
                    slope = (at_other - here) / base
                    rise = np.sqrt(1 - slope * slope)
                    crossing = x * rise - y * slope
                    there = here + slope * x + rise * y
                    enough = distance[w] * (IMPROVEMENT if at_w == np.inf else CORRECTION)
                    if (there < enough) & (crossing >= 0) & (crossing <= base * rise):
                        if distance[w] == np.inf:
                            reached[count] = w
                            count += 1
                        distance[w] = there
                        improved[better] = w
                        better += 1
            else:
                for i in corners:
                    # From the two that have been passed to the third, even if that has been passed: a front
                    # from a point is curved, and one that comes again may be nearer to all.
                    p, q = corner_ends[i, 0], corner_ends[i, 1]
                    at_p, at_q = settled[p], settled[q]
                    for target in range(0 if at_q < np.inf else 1, 2 if at_p < np.inf else 1):
                        w, other = (p, q) if target == 0 else (q, p)
                        at_w, at_other = (at_p, at_q) if target == 0 else (at_q, at_p)
                        side, base = corner_places[i, target], corner_places[i, 1 - target]
                        if turning and (at_other == 0 or here == 0):
                            continue
                        x, y = side * corner_places[i, 2], side * corner_places[i, 3]
                        there = _across(front, here, at_other, base, x, y)
                        if there < distance[w] * (IMPROVEMENT if at_w == np.inf else CORRECTION):
                            if turning:
                                angle[w] = _turned(angle[v], angle[other], here, at_other, base, x, y)
                            if distance[w] == np.inf:
                                reached[count] = w
                                count += 1
                            distance[w] = there
                            improved[better] = w
                            better += 1
            for i in range(beyond_offsets[v], beyond_offsets[v + 1] if over_faces else beyond_offsets[v]):
                p, q = beyond_ends[i, 0], beyond_ends[i, 1]
                at_p, known = settled[p], distance[q]
                if at_p < np.inf and not (turning and (at_p == 0 or here == 0)):
                    base, x, y = beyond_places[i, 0], beyond_places[i, 1], beyond_places[i, 2]
                    there = _across(front, here, at_p, base, x, y)
                    if there < known * (IMPROVEMENT if settled[q] == np.inf else CORRECTION):
                        if turning:
                            angle[q] = _turned(angle[v], angle[p], here, at_p, base, x, y)
                        if distance[q] == np.inf:
                            reached[count] = q
                            count += 1
                        distance[q] = there
                        improved[better] = q
                        better += 1
            for e in range(line_offsets[v], line_offsets[v + 1]):
                w = line_ends[e]
                there = here + abs(line_lengths[e])
                if there < distance[w] * IMPROVEMENT:
                    if turning:
                        if v != source:
                            angle[w] = angle[v]
                        elif line_lengths[e] < 0:
                            continue  # over unfolded faces; in which direction is not known
                        elif np.isnan(angle[w]):
                            angle[w] = 0.0  # an edge of no proper face
                    if distance[w] == np.inf:
                        reached[count] = w
                        count += 1
                    distance[w] = there
                    improved[better] = w
                    better += 1
        for i in range(better):
            if free < 0 and used == len(queue):
                _put_all(heads, queue, following, distance, now, inverse, reached, count)
                waiting = used = count
                break
            w = improved[i]
            bucket = np.int64(distance[w] * inverse)
            now = min(now, bucket)  # back to one that was passed too early
            bucket = min(bucket, now + last) & last
            if free >= 0:
                place = free
                free = np.int64(following[place])
            else:
                place = used
                used += 1
            queue[place] = w
            following[place] = heads[bucket]
            heads[bucket] = place
            waiting += 1
    heads[:] = -1
    for i in range(count):
        settled[reached[i]] = np.inf
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _across(front, da, db, base, x, y):  # type: ignore[no-untyped-def]
    if front == POINT and da + db >= base:
        return _from_point(da, db, base, x, y)
    return _from_line(da, db, base, x, y)


@njit(cache=True, nogil=True, error_model="numpy")
def _turned(at_vertex, at_other, da, db, base, x, y):  # type: ignore[no-untyped-def]
    """The direction in between, in proportion to the angles that the virtual source sees.

    As in the polar coordinates of Melvær & Reimers 2012.
    """
    between = np.remainder(at_other - at_vertex + np.pi, 2 * np.pi) - np.pi
    sx = (da * da - db * db + base * base) / (2 * base)
    sy = np.sqrt(max(0.0, da * da - sx * sx))
    if sy == 0:
        return at_vertex + between / 2
    to_vertex = np.arctan2(-sx, sy)
    whole = np.arctan2(base - sx, sy) - to_vertex
    part = np.arctan2(x - sx, y + sy) - to_vertex
    return at_vertex + between * (part / whole)


@njit(cache=True, nogil=True, error_model="numpy")
def march_whole(surface, sources, starts, front, radius):  # type: ignore[no-untyped-def]
    """Distance of every vertex from the nearest source; infinite beyond the radius."""
    total = len(surface.vertices)
    distance = np.full(total, np.inf)
    reached = np.empty(total, dtype=np.uint32)
    count = 0
    for i in range(len(sources)):
        if distance[sources[i]] == np.inf:
            reached[count] = sources[i]
            count += 1
        distance[sources[i]] = min(distance[sources[i]], starts[i])
    room = room_for(surface)
    march(surface.tables, surface.step, front, radius, distance, np.empty(0), room, reached, count)
    for v in range(total):
        if distance[v] > radius:
            distance[v] = np.inf
    return distance
