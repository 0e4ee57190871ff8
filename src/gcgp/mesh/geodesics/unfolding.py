"""Triangles laid out in the plane, and chains of triangles unfolded into it; compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

MIN_CORNER_SINE = 1e-9
"""Triangles with a smaller height, relative to their longest side, count as having no area."""
RIGHT_ANGLE_FACTOR = 1 - 1e-9
"""Right angles count as obtuse in spite of rounding."""
MAX_UNFOLDED_FACES = 64
"""Faces that are unfolded beyond one obtuse corner."""


@njit(cache=True, nogil=True, inline="always")
def length_between(vertices, a, b):  # type: ignore[no-untyped-def]
    """Straight-line distance between two vertices."""
    x = vertices[a, 0] - vertices[b, 0]
    y = vertices[a, 1] - vertices[b, 1]
    z = vertices[a, 2] - vertices[b, 2]
    return np.sqrt(x * x + y * y + z * z)


@njit(cache=True, nogil=True, inline="always")
def apex(base, left, right):  # type: ignore[no-untyped-def]
    """The point (x, y), y ≥ 0, at distance `left` from (0, 0) and `right` from (base, 0).

    This is the third corner of a triangle and, mirrored at the base, the virtual source of a front that has
    reached the ends of the base (Novotni & Klein 2002).
    """
    x = (left * left - right * right + base * base) / (2 * base)
    return x, np.sqrt(max(0.0, left * left - x * x))


@njit(cache=True, nogil=True, inline="always")
def unfolded(px, py, qx, qy, to_p, to_q):  # type: ignore[no-untyped-def]
    """The point to the right of the line from p to q with these distances from them."""
    side = np.hypot(qx - px, qy - py)
    along, height = apex(side, to_p, to_q)
    ux, uy = (qx - px) / side, (qy - py) / side
    return px + along * ux + height * uy, py + along * uy - height * ux


@njit(cache=True, nogil=True)
def opposite_corner(faces, face, a, b):  # type: ignore[no-untyped-def]
    """The corner of a face that is neither vertex `a` nor `b`; −1 if there is none."""
    for i in range(3):
        if faces[face, i] != a and faces[face, i] != b:
            return i
    return -1


@njit(cache=True, nogil=True)
def corner_angle(vertices, v, p, q):  # type: ignore[no-untyped-def]
    """The angle at v between its edges to p and q."""
    a, b = vertices[p] - vertices[v], vertices[q] - vertices[v]
    cross = np.empty(3)
    cross[0] = a[1] * b[2] - a[2] * b[1]
    cross[1] = a[2] * b[0] - a[0] * b[2]
    cross[2] = a[0] * b[1] - a[1] * b[0]
    return np.arctan2(np.sqrt(np.dot(cross, cross)), np.dot(a, b))


@njit(cache=True, nogil=True)
def obtuse_shortcuts(vertices, faces, across, manifold):  # type: ignore[no-untyped-def]
    """Shortcuts that split obtuse corners, and the unfolded triangles on both sides of each.

    A front may reach an obtuse corner before both ends of the opposite edge. So the faces beyond that
    edge are unfolded until a vertex splits the obtuse angle into two acute ones (Kimmel & Sethian 1998).

    Returns the shortcuts (from, to) with their lengths, and the triangles (v, p, q), where q is the obtuse
    corner, with their layout: v at (0, 0), p at (a, 0) and q at (b, c).
    """
    shortcuts, lengths = [(0, 0)], [0.0]
    triangles, layouts = [(0, 0, 0)], [(0.0, 0.0, 0.0)]
    for face in range(len(faces)):
        for corner in range(3):
            c, a, b = faces[face, corner], faces[face, (corner + 1) % 3], faces[face, (corner + 2) % 3]
            base = length_between(vertices, a, b)
            ca, cb = length_between(vertices, c, a), length_between(vertices, c, b)
            if base == 0 or ca == 0 or cb == 0:
                continue
            x, y = apex(base, ca, cb)
            if y <= MIN_CORNER_SINE * max(base, ca, cb):
                continue
            if x * (base - x) <= y * y * RIGHT_ANGLE_FACTOR or not manifold[face, corner]:
                continue
            d, dx, dy, left, lx, ly, right, rx, ry = _splitting_vertex(
                vertices, faces, across, manifold, face, corner, base, x, y
            )
            if d < 0 or d == c:
                continue
            shortcuts.append((d, c))
            lengths.append(np.hypot(dx, dy))
            for end, ex, ey in ((left, lx, ly), (right, rx, ry)):
                side = np.hypot(ex - dx, ey - dy)
                if end in (d, c) or side == 0:
                    continue
                px, py = apex(side, np.hypot(ex, ey), np.hypot(dx, dy))
                if py <= MIN_CORNER_SINE * side:
                    continue
                triangles.append((end, d, c))
                layouts.append((side, px, py))
                triangles.append((d, end, c))
                layouts.append((side, side - px, py))
    return np.array(shortcuts)[1:], np.array(lengths)[1:], np.array(triangles)[1:], np.array(layouts)[1:]


@njit(cache=True, nogil=True)
def _splitting_vertex(vertices, faces, across, manifold, face, corner, base, x, y):  # type: ignore[no-untyped-def]
    """The vertex that splits an obtuse corner and the two ends of the funnel; −1 if there is none.

    In the plane the corner is (0, 0), and the other corners of its face are (−x, −y) and (base − x, −y). The
    line to the vertex must stay within the unfolded faces: the funnel is bounded by the vertices that narrow
    it most on the left and on the right.
    """
    left, lx, ly = faces[face, (corner + 1) % 3], -x, -y
    right, rx, ry = faces[face, (corner + 2) % 3], base - x, -y
    # p and q are the ends of the edge that is crossed next.
    p, px, py = left, lx, ly
    q, qx, qy = right, rx, ry
    none = (-1, 0.0, 0.0, left, lx, ly, right, rx, ry)
    for _ in range(MAX_UNFOLDED_FACES):
        if corner < 0 or not manifold[face, corner]:
            return none
        face = across[face, corner]
        beyond = opposite_corner(faces, face, p, q)
        if beyond < 0 or (px == qx and py == qy):
            return none
        d = faces[face, beyond]
        dx, dy = unfolded(px, py, qx, qy, length_between(vertices, d, p), length_between(vertices, d, q))
        square = dx * dx + dy * dy
        acute_left = -dx * x - dy * y > (RIGHT_ANGLE_FACTOR - 1) * square
        acute_right = dx * (base - x) - dy * y > (RIGHT_ANGLE_FACTOR - 1) * square
        inside = lx * dy - ly * dx > 0 and dx * ry - dy * rx > 0
        if acute_left and acute_right:
            return (d, dx, dy, left, lx, ly, right, rx, ry) if inside else none
        if acute_left:  # d is too far left: directions that split the angle pass on its right
            if inside:
                left, lx, ly = d, dx, dy
            corner = opposite_corner(faces, face, d, q)
            p, px, py = d, dx, dy
        else:
            if inside:
                right, rx, ry = d, dx, dy
            corner = opposite_corner(faces, face, d, p)
            q, qx, qy = d, dx, dy
    return none
