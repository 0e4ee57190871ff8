"""Tables of a mesh that its compiled walks read: who is next to whom, and how triangles lie in the plane.

Any set of triangles has these tables. A triangle without area takes no part in them but by its edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gcgp.mesh.mesh import Mesh

FLAT = 1e-9
"""A corner whose sine is below this has no area to speak of."""
RIGHT = 1 - 1e-9
"""A right angle counts as obtuse, for all that rounding does to it."""
MOST_UNFOLDINGS = 64
STEPS_IN_EDGE = 16.0
MOST_BUCKETS = 1024.0


class Tables(NamedTuple):
    """What a front reads that marches over a mesh; ranges `*_offsets[v]:*_offsets[v + 1]` are of vertex `v`.

    Numbers are unsigned: Numba need not ask whether an index counts from the end.
    """

    line_offsets: np.ndarray
    line_ends: np.ndarray
    line_lengths: np.ndarray
    """Edges, and lines over unfolded obtuse triangles; the lengths of these are negative."""
    longest_edges: np.ndarray
    """`[V]`: the longest edge or line out of each vertex; 0 where there are none."""
    corner_offsets: np.ndarray
    corner_ends: np.ndarray
    """`[corners, 2]`: the other two vertices, p and q, of each face at the vertex."""
    corner_places: np.ndarray
    """`[corners, 4]`: the lengths of the edges to p and to q, cosine and sine of the angle between."""
    beyond_offsets: np.ndarray
    beyond_ends: np.ndarray
    """`[pairs, 2]`: p and q, which unfolded make a triangle with the vertex; q has an obtuse corner."""
    beyond_places: np.ndarray
    """`[pairs, 3]`: with the vertex at (0, 0) and p at (a, 0), q lies at (b, c), c > 0."""


class Surface(NamedTuple):
    """See `surface_of`. The range `fan_offsets[v]:fan_offsets[v + 1]` belongs to vertex `v`."""

    vertices: np.ndarray
    """`[V, 3]`."""
    faces: np.ndarray
    """`[F, 3]`."""
    across: np.ndarray
    """`[F, 3]`: the face beyond the edge that lies opposite corner `i`, or −1."""
    tables: Tables
    fan_offsets: np.ndarray
    fan_faces: np.ndarray
    fan_corners: np.ndarray
    fan_starts: np.ndarray
    """Corners round each vertex in order, and the angle at which each starts."""
    fan_turned: np.ndarray
    """Whether the face runs against the order of the fan."""
    fan_totals: np.ndarray
    """`[V]`: total angle."""
    fan_closed: np.ndarray
    """`[V]`: whether the fan comes back to where it started."""
    step: float
    """Distances that differ by less may be visited in any order: a small part of an edge."""
    buckets: int
    """A power of two; so many steps are longer than the longest edge, unless that is very long."""
    widest: int
    """So many others at the most are reached from one vertex, each by each of its ways counted."""


def surface_of(mesh: Mesh) -> Surface:
    """The tables of a mesh's distinct faces; quick, but worth keeping while the mesh is walked on."""
    vertices, faces = mesh.vertices, mesh.distinct_faces
    across, manifold = _faces_across(vertices, faces)
    fan_offsets, corners = _grouped(faces.ravel(), len(vertices))
    fan_faces, fan_corners, fan_starts, fan_turned, fan_totals, fan_closed = _fans(
        vertices, faces, fan_offsets, corners
    )
    corner_places = _corner_places(vertices, faces, corners)
    kept = corner_places[:, 3] > 0
    corner_places = corner_places[kept]
    corner_ends = np.stack([np.roll(faces, -1, axis=1).ravel(), np.roll(faces, -2, axis=1).ravel()], axis=1)
    corner_ends = corner_ends[corners[kept]]
    shortcuts, shortcut_lengths, pairs, places = _unfold_obtuse(vertices, faces, across, manifold)
    edges = np.concatenate([mesh.edges, mesh.edges[:, ::-1]])
    edge_lengths = np.linalg.norm(vertices[edges[:, 0]] - vertices[edges[:, 1]], axis=1)
    lines = np.concatenate([edges, shortcuts])
    line_offsets, order = _grouped(lines[:, 0], len(vertices))
    line_lengths = np.concatenate([edge_lengths, -shortcut_lengths])[order]
    longest = np.zeros(len(vertices))
    np.maximum.at(longest, lines[order, 0], np.abs(line_lengths))
    beyond_offsets, by_vertex = _grouped(pairs[:, 0], len(vertices))
    step, buckets = _steps(np.abs(line_lengths))
    tables = Tables(
        line_offsets.astype(np.uint32),
        lines[order, 1].astype(np.uint32),
        line_lengths,
        longest,
        np.concatenate([[0], np.cumsum(kept)])[fan_offsets].astype(np.uint32),
        corner_ends.astype(np.uint32),
        corner_places,
        beyond_offsets.astype(np.uint32),
        pairs[by_vertex, 1:].astype(np.uint32),
        np.ascontiguousarray(places[by_vertex]),
    )
    return Surface(
        vertices,
        faces,
        across,
        tables,
        fan_offsets,
        fan_faces,
        fan_corners,
        fan_starts,
        fan_turned,
        fan_totals,
        fan_closed,
        step,
        buckets,
        int(np.max(2 * np.diff(fan_offsets) + np.diff(beyond_offsets) + np.diff(line_offsets))) + 1,
    )


def _steps(lengths: np.ndarray) -> tuple[float, int]:
    step = float(np.mean(lengths)) / STEPS_IN_EDGE if len(lengths) else 0.0
    if step == 0:
        return 1.0, 2
    wanted = min(MOST_BUCKETS, float(lengths.max()) / step + 2)
    return step, 1 << int(np.ceil(np.log2(wanted)))


def _grouped(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the groups with keys 0 to count − 1, and the order that sorts items into them."""
    order = np.argsort(keys, kind="stable")
    return np.searchsorted(keys[order], np.arange(count + 1)), order


def _faces_across(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each face and corner the face beyond the opposite edge (or −1), and whether it is the only one."""
    if len(faces) == 0:
        return np.zeros((0, 3), dtype=np.int64), np.zeros((0, 3), dtype=np.bool_)
    ends = np.sort(faces[:, [1, 2, 2, 0, 0, 1]].reshape(-1, 2), axis=1)
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    changes = np.any(np.diff(ends[order], axis=0) != 0, axis=1)
    groups = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(order)]])
    return _match_across(vertices, faces, order, groups)


@njit(cache=True, nogil=True)
def _match_across(vertices, faces, order, groups):  # type: ignore[no-untyped-def]
    """At an edge of three or more faces, the one beyond is that which bends least."""
    across = np.full(faces.shape, -1, dtype=np.int64)
    manifold = np.zeros(faces.shape, dtype=np.bool_)
    for g in range(len(groups) - 1):
        size = groups[g + 1] - groups[g]
        for i in range(groups[g], groups[g + 1]):
            face, corner = order[i] // 3, order[i] % 3
            a = vertices[faces[face, (corner + 1) % 3]]
            along = vertices[faces[face, (corner + 2) % 3]] - a
            own = _across_direction(vertices[faces[face, corner]] - a, along)
            flattest = np.inf
            for j in range(groups[g], groups[g + 1]):
                if j == i:
                    continue
                other, other_corner = order[j] // 3, order[j] % 3
                bend = np.dot(own, _across_direction(vertices[faces[other, other_corner]] - a, along))
                if bend < flattest:
                    flattest = bend
                    across[face, corner] = other
            manifold[face, corner] = size == 2
    return across, manifold


@njit(cache=True, nogil=True)
def _across_direction(offset, along):  # type: ignore[no-untyped-def]
    """The unit part of `offset` that is perpendicular to the edge `along`; zero if there is none."""
    squared = np.dot(along, along)
    if squared > 0:
        offset = offset - along * (np.dot(offset, along) / squared)
    length = np.sqrt(np.dot(offset, offset))
    return offset / length if length > 0 else offset * 0.0


@njit(cache=True, nogil=True, inline="always")
def length_between(vertices, a, b):  # type: ignore[no-untyped-def]
    """Straight-line distance of two vertices."""
    x = vertices[a, 0] - vertices[b, 0]
    y = vertices[a, 1] - vertices[b, 1]
    z = vertices[a, 2] - vertices[b, 2]
    return np.sqrt(x * x + y * y + z * z)


@njit(cache=True, nogil=True, inline="always")
def apex(base, left, right):  # type: ignore[no-untyped-def]
    """Where the third corner lies above a base from (0, 0) to (base, 0), by its distances to both ends."""
    x = (left * left - right * right + base * base) / (2 * base)
    return x, np.sqrt(max(0.0, left * left - x * x))


@njit(cache=True, nogil=True)
def third_vertex(faces, face, a, b):  # type: ignore[no-untyped-def]
    """The vertex of a face that is neither `a` nor `b`."""
    for i in range(3):
        v = faces[face, i]
        if v != a and v != b:
            return v
    return -1


@njit(cache=True, nogil=True)
def _corner_opposite(faces, face, a, b):  # type: ignore[no-untyped-def]
    for i in range(3):
        if faces[face, i] != a and faces[face, i] != b:
            return i
    return -1


@njit(cache=True, nogil=True)
def _corner_places(vertices, faces, corners):  # type: ignore[no-untyped-def]
    """See `Surface.corner_places`; the sine is 0 where the triangle has no area to speak of."""
    places = np.zeros((len(corners), 4))
    for i in range(len(corners)):
        face, corner = corners[i] // 3, corners[i] % 3
        v, p, q = faces[face, corner], faces[face, (corner + 1) % 3], faces[face, (corner + 2) % 3]
        vp, vq, pq = (
            length_between(vertices, v, p),
            length_between(vertices, v, q),
            length_between(vertices, p, q),
        )
        if vp == 0 or vq == 0 or pq == 0:
            continue
        x, y = apex(vp, vq, pq)
        if y <= FLAT * max(vp, vq, pq):
            continue
        places[i, 0] = vp
        places[i, 1] = vq
        places[i, 2] = x / vq
        places[i, 3] = y / vq
    return places


@njit(cache=True, nogil=True)
def _unfold_obtuse(vertices, faces, across, manifold):  # type: ignore[no-untyped-def]
    """Triangles over unfolded faces from which a front reaches obtuse corners, and lines that split these.

    A front may reach an obtuse corner before both ends of the opposite edge. So the triangles beyond that
    edge are unfolded until a vertex lies where it splits the obtuse angle into two acute ones (Kimmel &
    Sethian 1998). It is used only if the line to it stays within the unfolded triangles: a funnel
    between the vertices passed on the left and on the right keeps track of that.
    """
    shortcuts = [(0, 0)]
    lengths = [0.0]
    pairs = [(0, 0, 0)]
    places = [(0.0, 0.0, 0.0)]
    for face in range(len(faces)):
        for corner in range(3):
            c = faces[face, corner]
            a = faces[face, (corner + 1) % 3]
            b = faces[face, (corner + 2) % 3]
            base = length_between(vertices, a, b)
            ca, cb = length_between(vertices, c, a), length_between(vertices, c, b)
            if base == 0 or ca == 0 or cb == 0:
                continue
            x, y = apex(base, ca, cb)
            if y <= FLAT * max(base, ca, cb):
                continue
            if x * (base - x) <= y * y * RIGHT or not manifold[face, corner]:
                continue
            found, beyond, dx, dy, left, lx, ly, right, rx, ry = _split_obtuse(
                vertices, faces, across, manifold, face, corner, a, b, base, x, y
            )
            if not found or beyond == c:
                continue
            shortcuts.append((beyond, c))
            lengths.append(np.hypot(dx, dy))
            for end, ex, ey in ((left, lx, ly), (right, rx, ry)):
                side = np.hypot(ex - dx, ey - dy)
                if end in (beyond, c) or side == 0:
                    continue
                px, py = apex(side, np.hypot(ex, ey), np.hypot(dx, dy))
                if py <= FLAT * side:
                    continue
                pairs.append((end, beyond, c))
                places.append((side, px, py))
                pairs.append((beyond, end, c))
                places.append((side, side - px, py))
    return (
        np.array(shortcuts)[1:],
        np.array(lengths)[1:],
        np.array(pairs)[1:],
        np.array(places)[1:],
    )


@njit(cache=True, nogil=True)
def _split_obtuse(vertices, faces, across, manifold, face, corner, a, b, base, x, y):  # type: ignore[no-untyped-def]
    """The vertex that splits the obtuse corner, seen from the corner, and the two ends of the funnel.

    In the plane the corner is (0, 0), a is (−x, −y) and b is (base − x, −y).
    """
    left, lx, ly = a, -x, -y
    right, rx, ry = b, base - x, -y
    # The edge that is crossed next, and the ends of the funnel: the tightest bounds seen so far.
    p, px, py = left, lx, ly
    q, qx, qy = right, rx, ry
    nothing = (False, -1, 0.0, 0.0, left, lx, ly, right, rx, ry)
    for _ in range(MOST_UNFOLDINGS):
        if not manifold[face, corner]:
            return nothing
        face = across[face, corner]
        d = third_vertex(faces, face, p, q)
        if d < 0:
            return nothing
        side = np.hypot(qx - px, qy - py)
        if side == 0:
            return nothing
        along, height = apex(side, length_between(vertices, d, p), length_between(vertices, d, q))
        ux, uy = (qx - px) / side, (qy - py) / side
        dx, dy = px + along * ux + height * uy, py + along * uy - height * ux
        # Acute with a: dot(d, a) > 0; acute with b: dot(d, b) > 0.
        with_a = -dx * x - dy * y > (RIGHT - 1) * (dx * dx + dy * dy)
        with_b = dx * (base - x) - dy * y > (RIGHT - 1) * (dx * dx + dy * dy)
        inside_left = lx * dy - ly * dx > 0
        inside_right = dx * ry - dy * rx > 0
        if with_a and with_b:
            if inside_left and inside_right:
                return (True, d, dx, dy, left, lx, ly, right, rx, ry)
            return nothing
        if with_a:  # too far left: the wanted directions pass on the right of d
            if inside_left and inside_right:
                left, lx, ly = d, dx, dy
            corner = _corner_opposite(faces, face, d, q)
            p, px, py = d, dx, dy
        else:
            if inside_left and inside_right:
                right, rx, ry = d, dx, dy
            corner = _corner_opposite(faces, face, d, p)
            q, qx, qy = d, dx, dy
        if corner < 0:
            return nothing
    return nothing


@njit(cache=True, nogil=True)
def _fans(vertices, faces, offsets, corners):  # type: ignore[no-untyped-def]
    """Order the corners round each vertex: across shared edges as long as there are any, then the rest."""
    count = len(corners)
    fan_faces = np.empty(count, dtype=np.int64)
    fan_corners = np.empty(count, dtype=np.int64)
    fan_starts = np.zeros(count)
    fan_turned = np.zeros(count, dtype=np.bool_)
    totals = np.zeros(len(offsets) - 1)
    closed = np.zeros(len(offsets) - 1, dtype=np.bool_)
    for v in range(len(offsets) - 1):
        start, stop = offsets[v], offsets[v + 1]
        used = np.zeros(stop - start, dtype=np.bool_)
        last = -1
        first = -1
        angle = 0.0
        chains = 0
        for place in range(start, stop):
            chosen, turned = -1, False
            if last >= 0:
                for i in range(stop - start):
                    if used[i]:
                        continue
                    face, corner = corners[start + i] // 3, corners[start + i] % 3
                    if faces[face, (corner + 1) % 3] == last:
                        chosen, turned = i, False
                        break
                    if chosen < 0 and faces[face, (corner + 2) % 3] == last:
                        chosen, turned = i, True
            if chosen < 0:
                chains += 1
                chosen, turned = _chain_start(faces, corners, start, stop, used)
                face, corner = corners[start + chosen] // 3, corners[start + chosen] % 3
                first = faces[face, (corner + (2 if turned else 1)) % 3]
            used[chosen] = True
            face, corner = corners[start + chosen] // 3, corners[start + chosen] % 3
            p, q = faces[face, (corner + 1) % 3], faces[face, (corner + 2) % 3]
            fan_faces[place], fan_corners[place], fan_turned[place] = face, corner, turned
            fan_starts[place] = angle
            angle += corner_angle(vertices, v, p, q)
            last = p if turned else q
        totals[v] = angle
        closed[v] = chains == 1 and last == first and stop - start > 2
    return fan_faces, fan_corners, fan_starts, fan_turned, totals, closed


@njit(cache=True, nogil=True)
def _chain_start(faces, corners, start, stop, used):  # type: ignore[no-untyped-def]
    """An unused corner with an edge that no other unused corner shares, and whether it is its second edge.

    If all edges are shared, the first unused corner.
    """
    for side in (1, 2):
        for i in range(stop - start):
            if used[i]:
                continue
            face, corner = corners[start + i] // 3, corners[start + i] % 3
            end = faces[face, (corner + side) % 3]
            shared = False
            for j in range(stop - start):
                if j != i and not used[j]:
                    other, place = corners[start + j] // 3, corners[start + j] % 3
                    if end in (faces[other, (place + 1) % 3], faces[other, (place + 2) % 3]):
                        shared = True
                        break
            if not shared:
                return i, side == 2
    for i in range(stop - start):
        if not used[i]:
            return i, False
    return -1, False


@njit(cache=True, nogil=True)
def corner_angle(vertices, v, p, q):  # type: ignore[no-untyped-def]
    """The angle at v between its edges to p and q."""
    a, b = vertices[p] - vertices[v], vertices[q] - vertices[v]
    cross = np.empty(3)
    cross[0] = a[1] * b[2] - a[2] * b[1]
    cross[1] = a[2] * b[0] - a[0] * b[2]
    cross[2] = a[0] * b[1] - a[1] * b[0]
    return np.arctan2(np.sqrt(np.dot(cross, cross)), np.dot(a, b))
