"""Fronts that march over triangles (Kimmel & Sethian 1998), compiled.

Written by hand because the libraries that do it solve the whole mesh for every source and refuse meshes
that are no manifolds.

A front passes from two vertices of a triangle to the third, as if it came straight from a line
(`front=LINE`, the update of Kimmel & Sethian) or from a point (`front=POINT`, the virtual source of Novotni &
Klein 2002, which is exact on flat surfaces). Either is the least of distance-to-a-point-of-the-edge
plus the rest of the way, so neither is ever longer than along edges. Vertices are taken
off a heap in the order of their distance; one that is improved later is taken again.
"""

from __future__ import annotations

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


@njit(cache=True, nogil=True, error_model="numpy")
def _from_point(da, db, base, inverse, x, y):  # type: ignore[no-untyped-def]
    """Distance to (x, y) from the point below the base that is da and db from its ends; inf if none.

    Infinite also if the straight way does not cross the base: then the way is along an edge.
    """
    sx = 0.5 * ((da - db) * (da + db) * inverse + base)
    sy = np.sqrt(max(0.0, da * da - sx * sx))
    crossing = sx * y + x * sy
    if crossing < 0 or crossing > base * (sy + y):
        return np.inf
    return np.sqrt((x - sx) * (x - sx) + (y + sy) * (y + sy))


@njit(cache=True, nogil=True, error_model="numpy")
def _from_line(da, db, base, inverse, x, y):  # type: ignore[no-untyped-def]
    """Distance to (x, y) if it grows linearly along the base from da to db; inf if the way is an edge."""
    slope = (db - da) * inverse
    if slope >= 1 or slope <= -1:
        return np.inf
    rise = np.sqrt(1 - slope * slope)
    crossing = x * rise - y * slope
    if crossing < 0 or crossing > base * rise:
        return np.inf
    return da + slope * x + rise * y


@njit(cache=True, nogil=True, error_model="numpy")
def _push(heap, keys, place, size, v, key):  # type: ignore[no-untyped-def]
    """Put v into the heap, or move it up if it is there; its key must not be larger than before."""
    i = place[v]
    if i < 0:
        i = size
        size += 1
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] <= key:
            break
        heap[i] = heap[parent]
        keys[i] = keys[parent]
        place[heap[i]] = i
        i = parent
    heap[i] = v
    keys[i] = key
    place[v] = i
    return size


@njit(cache=True, nogil=True, error_model="numpy")
def _pop(heap, keys, place, size):  # type: ignore[no-untyped-def]
    """Take the first of the heap out; the caller has read it."""
    place[heap[0]] = -1
    size -= 1
    if size == 0:
        return size
    v, key = heap[size], keys[size]
    keys[size] = np.inf
    i = 0
    child = 1
    while child < size:
        child += 1 if keys[child + 1] < keys[child] else 0
        if keys[child] >= key:
            break
        heap[i] = heap[child]
        keys[i] = keys[child]
        place[heap[i]] = i
        i = child
        child = 2 * i + 1
    heap[i] = v
    keys[i] = key
    place[v] = i
    return size


@njit(cache=True, nogil=True, error_model="numpy")
def march(  # type: ignore[no-untyped-def]
    edge_offsets,
    edge_ends,
    edge_lengths,
    longest_edges,
    corner_offsets,
    corner_ends,
    corner_places,
    beyond_offsets,
    beyond_ends,
    beyond_places,
    front,
    radius,
    distance,
    settled,
    angle,
    heap,
    keys,
    place,
    reached,
    sources,
):
    """March from the first `sources` of `reached`; return how many vertices have been reached.

    The tables are those of a `Surface`. `distance` holds the values at the sources, and infinity elsewhere.
    All vertices whose distance has been set come out in `reached`, those beyond the radius among
    them, whose distances are not final. If `angle` has entries, it carries the direction in which the way
    left the one source; at the source's neighbours it is given, elsewhere NaN.

    `settled` (infinite), `heap`, `keys` and `place` (−1) are room to work in; the first and the last are left
    as they were.
    """
    turning = len(angle) > 0
    source = reached[0]
    count = sources
    size = 0
    for i in range(sources):
        size = _push(heap, keys, place, size, reached[i], distance[reached[i]])
    longest = 0.0  # edge out of a vertex within the radius; its end may be needed to reach another one
    visits = MOST_VISITS * len(edge_offsets)
    while size > 0:
        v, here = heap[0], keys[0]
        if here > radius + longest:
            break
        visits -= 1
        size = _pop(heap, keys, place, size)
        settled[v] = here
        if here <= radius:
            longest = max(longest, longest_edges[v])
        over_faces = visits > 0
        for i in range(corner_offsets[v], corner_offsets[v + 1] if over_faces else corner_offsets[v]):
            p, q = corner_ends[i, 0], corner_ends[i, 1]
            at_p, at_q = settled[p], settled[q]
            first, last = 0, 0  # which of p (0) and q (1) may be reached from the other
            if (at_p < np.inf) == (at_q < np.inf):
                if at_p == np.inf:
                    continue
                to_q, to_p = corner_places[i, 0], corner_places[i, 1]
                # A front from a point is curved, and can turn back over an acute corner, too.
                first = 0 if to_p < 0 or front == POINT else 1
                last = 1 if to_q < 0 or front == POINT else 0
            else:
                first = 1 if at_p < np.inf else 0
                last = first
            for target in range(first, last + 1):
                base, side = abs(corner_places[i, 1 - target]), abs(corner_places[i, target])
                x, y = side * corner_places[i, 2], side * corner_places[i, 3]
                w, other = (q, p) if target == 1 else (p, q)
                at_other = settled[other]
                known = distance[w]
                there = _across(front, here, at_other, base, corner_places[i, 5 - target], x, y)
                if there < known * IMPROVEMENT and (not turning or (at_other > 0 and here > 0)):
                    if settled[w] < np.inf and there >= known * CORRECTION:
                        continue
                    if turning:
                        angle[w] = _turned(angle[v], angle[other], here, at_other, base, x, y)
                    if known == np.inf:
                        reached[count] = w
                        count += 1
                    distance[w] = there
                    size = _push(heap, keys, place, size, w, there)
        for i in range(beyond_offsets[v], beyond_offsets[v + 1] if over_faces else beyond_offsets[v]):
            p, q = beyond_ends[i, 0], beyond_ends[i, 1]
            at_p, known = settled[p], distance[q]
            if at_p < np.inf:
                base, x, y = beyond_places[i, 0], beyond_places[i, 1], beyond_places[i, 2]
                there = _across(front, here, at_p, base, 1 / base, x, y)
                if there < known * IMPROVEMENT and (not turning or (at_p > 0 and here > 0)):
                    if settled[q] < np.inf and there >= known * CORRECTION:
                        continue
                    if turning:
                        angle[q] = _turned(angle[v], angle[p], here, at_p, base, x, y)
                    if known == np.inf:
                        reached[count] = q
                        count += 1
                    distance[q] = there
                    size = _push(heap, keys, place, size, q, there)
        for e in range(edge_offsets[v], edge_offsets[v + 1]):
            w = edge_ends[e]
            length = abs(edge_lengths[e])
            there = here + length
            known = distance[w]
            if there < known * IMPROVEMENT:
                if turning:
                    if v != source:
                        angle[w] = angle[v]
                    elif np.isnan(angle[w]):
                        if edge_lengths[e] < 0:
                            continue  # over unfolded faces; in which direction is not known
                        angle[w] = 0.0  # an edge of no proper face
                if known == np.inf:
                    reached[count] = w
                    count += 1
                distance[w] = there
                size = _push(heap, keys, place, size, w, there)
    for i in range(size):
        place[heap[i]] = -1
    for i in range(count):
        settled[reached[i]] = np.inf
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _across(front, da, db, base, inverse, x, y):  # type: ignore[no-untyped-def]
    if front == POINT and da + db >= base:
        return _from_point(da, db, base, inverse, x, y)
    return _from_line(da, db, base, inverse, x, y)


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
    march(
        surface.edge_offsets,
        surface.edge_ends,
        surface.edge_lengths,
        surface.longest_edges,
        surface.corner_offsets,
        surface.corner_ends,
        surface.corner_places,
        surface.beyond_offsets,
        surface.beyond_ends,
        surface.beyond_places,
        front,
        radius,
        distance,
        np.full(total, np.inf),
        np.empty(0),
        np.empty(total + 1, dtype=np.uint32),
        np.full(total + 1, np.inf),
        np.full(total, -1, dtype=np.int32),
        reached,
        count,
    )
    for v in range(total):
        if distance[v] > radius:
            distance[v] = np.inf
    return distance
