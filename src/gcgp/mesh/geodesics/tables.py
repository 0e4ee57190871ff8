"""Tables of a mesh that compiled geodesic code reads: adjacency, and the layout of triangles in the plane.

Any set of triangles has these tables. Triangles without area contribute only their edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from gcgp.mesh.geodesics.unfolding import (
    MIN_CORNER_SINE,
    apex,
    corner_angle,
    length_between,
    obtuse_shortcuts,
)
from gcgp.mesh.mesh import Mesh

BUCKETS_PER_EDGE = 16.0
"""Buckets of distances in a mean edge length."""
MAX_BUCKETS = 1024.0


class Tables(NamedTuple):
    """What marching fronts read. The range `*_offsets[v]:*_offsets[v + 1]` belongs to vertex `v`.

    Indices are unsigned, so that Numba does not check for negative ones.
    """

    line_offsets: np.ndarray
    line_ends: np.ndarray  # of edges, and of shortcuts over unfolded obtuse triangles
    line_lengths: np.ndarray  # negative for shortcuts
    longest_lines: np.ndarray  # [V]: length of the longest line out of each vertex; 0 if there are none
    corner_offsets: np.ndarray
    corner_ends: np.ndarray  # [corners, 2]: the other two vertices, p and q, of each face at the vertex
    corner_layouts: np.ndarray  # [corners, 4]: lengths of vp and vq, cosine and sine of the angle between
    unfolded_offsets: np.ndarray
    unfolded_ends: np.ndarray  # [triangles, 2]: p and q of unfolded triangles; q is an obtuse corner
    unfolded_layouts: np.ndarray  # [triangles, 3]: v at (0, 0) and p at (a, 0), then q at (b, c), c > 0


class Surface(NamedTuple):
    """All tables of a mesh. The range `fan_offsets[v]:fan_offsets[v + 1]` belongs to vertex `v`."""

    vertices: np.ndarray  # [V, 3]
    faces: np.ndarray  # [F, 3]
    across: np.ndarray  # [F, 3]: the face beyond the edge opposite corner i, or −1
    tables: Tables
    fan_offsets: np.ndarray
    fan_faces: np.ndarray  # [corners]: the faces around each vertex in order
    fan_ends: np.ndarray  # [corners, 2]: their two other vertices in that order
    fan_starts: np.ndarray  # [corners]: the angles at which they start
    fan_totals: np.ndarray  # [V]: total angle
    fan_closed: np.ndarray  # [V]: whether the last corner is next to the first
    step: float  # width of a bucket: vertices whose distances differ by less may be visited in any order
    buckets: int  # a power of two; together wider than the longest edge, unless that is very long
    max_updates: int  # upper bound of the number of updates in one visit of a vertex


def surface_of(mesh: Mesh) -> Surface:
    """The tables of the distinct faces of a mesh."""
    vertices, faces = mesh.vertices, mesh.distinct_faces
    across, manifold = _faces_across(vertices, faces)
    fan_offsets, corners = _grouped(faces.ravel(), len(vertices))
    ends = faces[:, [1, 2, 2, 0, 0, 1]].reshape(-1, 2)[corners]
    corner_layouts = _corner_layouts(vertices, fan_offsets, ends)
    with_area = corner_layouts[:, 3] > 0
    shortcuts, shortcut_lengths, triangles, layouts = obtuse_shortcuts(vertices, faces, across, manifold)
    edges = np.concatenate([mesh.edges, mesh.edges[:, ::-1]])
    edge_lengths = np.linalg.norm(vertices[edges[:, 0]] - vertices[edges[:, 1]], axis=1)
    lines = np.concatenate([edges, shortcuts])
    line_offsets, line_order = _grouped(lines[:, 0], len(vertices))
    line_lengths = np.concatenate([edge_lengths, -shortcut_lengths])[line_order]
    longest = np.zeros(len(vertices))
    np.maximum.at(longest, lines[line_order, 0], np.abs(line_lengths))
    unfolded_offsets, unfolded_order = _grouped(triangles[:, 0], len(vertices))
    tables = Tables(
        line_offsets.astype(np.uint32),
        lines[line_order, 1].astype(np.uint32),
        line_lengths,
        longest,
        np.concatenate([[0], np.cumsum(with_area)])[fan_offsets].astype(np.uint32),
        ends[with_area].astype(np.uint32),
        corner_layouts[with_area],
        unfolded_offsets.astype(np.uint32),
        triangles[unfolded_order, 1:].astype(np.uint32),
        np.ascontiguousarray(layouts[unfolded_order]),
    )
    step, buckets = _bucket_layout(np.abs(line_lengths))
    updates = int(np.max(2 * np.diff(fan_offsets) + np.diff(unfolded_offsets) + np.diff(line_offsets))) + 1
    order, is_reversed, *fans = _fans(vertices, fan_offsets, ends)
    fan_ends = np.where(is_reversed[:, None], ends[order, ::-1], ends[order])
    fans = (fan_offsets, corners[order] // 3, fan_ends, *fans)
    return Surface._make((vertices, faces, across, tables, *fans, step, buckets, updates))


def _bucket_layout(lengths: np.ndarray) -> tuple[float, int]:
    """Width and number of the buckets of distances."""
    step = float(np.mean(lengths)) / BUCKETS_PER_EDGE if len(lengths) else 0.0
    if step == 0:
        return 1.0, 2
    count = min(MAX_BUCKETS, float(lengths.max()) / step + 2)
    return step, 1 << int(np.ceil(np.log2(count)))


def _grouped(keys: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets of the groups with keys 0 to count − 1, and the order that sorts items into them."""
    order = np.argsort(keys, kind="stable")
    return np.searchsorted(keys[order], np.arange(count + 1)), order


def _faces_across(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each face and corner the face beyond the opposite edge (or −1), and whether it is the only one."""
    ends = np.sort(faces[:, [1, 2, 2, 0, 0, 1]].reshape(-1, 2), axis=1)
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    changes = np.any(np.diff(ends[order], axis=0) != 0, axis=1)
    groups = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(order)]])
    return _match_across(vertices, faces, order, groups)


@njit(cache=True, nogil=True)
def _match_across(vertices, faces, order, groups):  # type: ignore[no-untyped-def]
    """At an edge of three or more faces, the face across is the one that bends least."""
    across = np.full(faces.shape, -1, dtype=np.int64)
    manifold = np.zeros(faces.shape, dtype=np.bool_)
    for g in range(len(groups) - 1):
        for i in range(groups[g], groups[g + 1]):
            face, corner = order[i] // 3, order[i] % 3
            a = vertices[faces[face, (corner + 1) % 3]]
            edge = vertices[faces[face, (corner + 2) % 3]] - a
            towards = _perpendicular(vertices[faces[face, corner]] - a, edge)
            flattest = np.inf
            for j in range(groups[g], groups[g + 1]):
                if j == i:
                    continue
                other, other_corner = order[j] // 3, order[j] % 3
                bend = np.dot(towards, _perpendicular(vertices[faces[other, other_corner]] - a, edge))
                if bend < flattest:
                    flattest = bend
                    across[face, corner] = other
            manifold[face, corner] = groups[g + 1] - groups[g] == 2
    return across, manifold


@njit(cache=True, nogil=True)
def _perpendicular(offset, edge):  # type: ignore[no-untyped-def]
    """Unit vector of the part of `offset` that is perpendicular to an edge; zero if there is none."""
    squared = np.dot(edge, edge)
    if squared > 0:
        offset = offset - edge * (np.dot(offset, edge) / squared)
    length = np.sqrt(np.dot(offset, offset))
    return offset / length if length > 0 else offset * 0.0


@njit(cache=True, nogil=True)
def _corner_layouts(vertices, offsets, ends):  # type: ignore[no-untyped-def]
    """See `Tables.corner_layouts`; all zero where the triangle has no area."""
    layouts = np.zeros((len(ends), 4))
    for v in range(len(vertices)):
        for i in range(offsets[v], offsets[v + 1]):
            p, q = ends[i, 0], ends[i, 1]
            vp, vq = length_between(vertices, v, p), length_between(vertices, v, q)
            pq = length_between(vertices, p, q)
            if vp == 0 or vq == 0 or pq == 0:
                continue
            x, y = apex(vp, vq, pq)
            if y > MIN_CORNER_SINE * max(vp, vq, pq):
                layouts[i] = vp, vq, x / vq, y / vq
    return layouts


@njit(cache=True, nogil=True)
def _fans(vertices, offsets, ends):  # type: ignore[no-untyped-def]
    """Order the corners around each vertex across shared edges; where a chain ends, start another one.

    Returns the order, whether each corner is passed from its second end to its first, the angle at which it
    starts, and the total angle of each vertex and whether its fan is closed.
    """
    order = np.empty(len(ends), dtype=np.int64)
    is_reversed = np.zeros(len(ends), dtype=np.bool_)
    starts = np.zeros(len(ends))
    totals = np.zeros(len(vertices))
    closed = np.zeros(len(vertices), dtype=np.bool_)
    used = np.zeros(len(ends), dtype=np.bool_)
    for v in range(len(vertices)):
        corners = range(offsets[v], offsets[v + 1])
        first = last = -1
        chains = 0
        for position in corners:
            chosen, backwards = -1, False
            for i in corners:
                if last >= 0 and not used[i]:
                    if ends[i, 0] == last:
                        chosen, backwards = i, False
                        break
                    if chosen < 0 and ends[i, 1] == last:
                        chosen, backwards = i, True
            if chosen < 0:
                chosen, backwards = _chain_start(ends, corners, used)
                chains += 1
                first = ends[chosen, 1 if backwards else 0]
            used[chosen] = True
            order[position], is_reversed[position], starts[position] = chosen, backwards, totals[v]
            totals[v] += corner_angle(vertices, v, ends[chosen, 0], ends[chosen, 1])
            last = ends[chosen, 0 if backwards else 1]
        closed[v] = chains == 1 and last == first and len(corners) > 2
    return order, is_reversed, starts, totals, closed


@njit(cache=True, nogil=True)
def _chain_start(ends, corners, used):  # type: ignore[no-untyped-def]
    """An unused corner with an edge that no other unused corner shares, and whether that is its second edge.

    If all edges are shared, the first unused corner.
    """
    for side in range(2):
        for i in corners:
            shared = used[i]
            for j in corners:
                if shared:
                    break
                shared = j != i and not used[j] and ends[i, side] in (ends[j, 0], ends[j, 1])
            if not shared:
                return i, side == 1
    for i in corners:
        if not used[i]:
            return i, False
    return -1, False
