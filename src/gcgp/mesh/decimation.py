"""Mesh simplification: edges collapse in the order of their quadric error."""

from __future__ import annotations

import warnings
from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from gcgp._runtime.cache import cached
from gcgp._runtime.cache_file import check_layout, check_range
from gcgp._runtime.errors import check_integer
from gcgp.mesh.mesh import Mesh

DECIMATION_VERSION = 1
"""To be raised when the result for the same mesh changes."""
VERTEX_WEIGHT = 1e-2
"""Weight of the squared distance to the vertices relative to that to the planes of the faces.

It makes the optimal point unique where the surface is flat, and the triangles even.
"""


def decimate(mesh: Mesh, vertices: int, *, cache: bool = False) -> Mesh:
    """The mesh with `vertices` vertices, by quadric edge collapse (Garland & Heckbert 1997).

    Isolated vertices, duplicate faces and faces that name a vertex twice are removed. A mesh with at most
    `vertices` vertices is returned unchanged. Collapses that would change the topology, fold the surface or
    create a duplicate face are not made (the link condition of Dey et al. 1999), so a manifold stays one; if
    no other collapse is left, a warning states the number of vertices reached.

    The result is deterministic. With `cache`, it is stored on disk.
    """
    check_integer("vertices", vertices)
    if len(mesh.vertices) <= vertices:
        return mesh
    faces = mesh.distinct_faces
    if len(faces) == 0:
        raise ValueError(f"{mesh.title}: it has no faces of three vertices, nothing to decimate")
    compute = partial(_decimated, mesh.vertices, faces, vertices)
    parts = ("decimation", DECIMATION_VERSION, mesh.vertices, faces, vertices)
    result = cached(parts, compute, lambda arrays: _check(arrays, mesh)) if cache else compute()
    if len(result["vertices"]) > vertices:
        warnings.warn(
            f"{mesh.title}: decimation ended at {len(result['vertices'])} vertices instead of {vertices}; "
            "any further collapse would change the topology or fold the surface",
            stacklevel=2,
        )
    return Mesh(result["vertices"], result["faces"], name=mesh.name)


def _check(arrays: dict[str, np.ndarray], mesh: Mesh) -> None:
    """Raise ValueError unless cached arrays can be those of the mesh with fewer vertices."""
    vertices, faces = (np.size(arrays.get(name, ())) // 3 for name in ("vertices", "faces"))
    check_layout(arrays, {"vertices": (np.float64, (vertices, 3)), "faces": (np.int64, (faces, 3))})
    if vertices > len(mesh.vertices) or faces > len(mesh.faces):
        raise ValueError(f"it has {vertices} vertices and {faces} faces, more than the mesh")
    largest = float(np.finfo(np.float64).max)
    check_range("vertices", arrays["vertices"], -largest, largest)
    check_range("faces", arrays["faces"], 0, vertices - 1)


def _decimated(
    vertices: Float[np.ndarray, "V 3"], faces: Int[np.ndarray, "F 3"], count: int
) -> dict[str, np.ndarray]:
    """Vertices and faces of the smaller mesh."""
    used, faces = _renumbered(faces)
    center = vertices[used].mean(axis=0)
    size = np.ptp(vertices[used], axis=0).max() or 1.0
    points = (vertices[used] - center) / size
    _collapse(points, faces, _quadrics(points, faces), count)
    used, faces = _renumbered(faces[faces[:, 0] >= 0])
    return {"vertices": points[used] * size + center, "faces": faces}


def _renumbered(faces: Int[np.ndarray, "F 3"]) -> tuple[Int[np.ndarray, "used"], Int[np.ndarray, "F 3"]]:
    """The vertices of the faces, and the faces as indices into these."""
    used, indices = np.unique(faces, return_inverse=True)
    return used, indices.reshape(-1, 3)


def _quadrics(points: Float[np.ndarray, "V 3"], faces: Int[np.ndarray, "F 3"]) -> Float[np.ndarray, "V 4 4"]:
    """For each vertex the matrix of x ↦ Σ weight · (squared distance of x), over planes and the vertex.

    The planes are those of its faces, weighted by area, and those perpendicular to its boundary edges.
    """
    a, b, c = (points[faces[:, i]] for i in range(3))
    normals, doubled_areas = _unit(np.cross(b - a, c - a))
    quadrics = np.zeros((len(points), 4, 4))
    planes = _plane_quadrics(normals, a, doubled_areas)
    for i in range(3):
        np.add.at(quadrics, faces[:, i], planes)

    tails, heads = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    keys = np.minimum(tails, heads) * len(points) + np.maximum(tails, heads)
    _, edge, uses = np.unique(keys, return_inverse=True, return_counts=True)
    boundary = np.flatnonzero(uses[edge] == 1)
    tails, heads = tails[boundary], heads[boundary]
    walls, lengths = _unit(np.cross(points[heads] - points[tails], normals[boundary // 3]))
    planes = _plane_quadrics(walls, points[tails], lengths**2)
    np.add.at(quadrics, tails, planes)
    np.add.at(quadrics, heads, planes)

    # A vertex whose faces have no area needs some weight too; otherwise its optimal point is undefined.
    areas = np.bincount(faces.ravel(), np.repeat(doubled_areas, 3), minlength=len(points))
    weights = VERTEX_WEIGHT * (areas + 1e-6 * (areas.mean() or 1.0))
    quadrics[:, [0, 1, 2], [0, 1, 2]] += weights[:, None]
    quadrics[:, :3, 3] -= weights[:, None] * points
    quadrics[:, 3, :3] -= weights[:, None] * points
    quadrics[:, 3, 3] += weights * (points**2).sum(axis=1)
    return quadrics


def _unit(vectors: Float[np.ndarray, "N 3"]) -> tuple[Float[np.ndarray, "N 3"], Float[np.ndarray, "N"]]:
    """Unit vectors, and the lengths; vectors of length 0 stay 0."""
    lengths = np.linalg.norm(vectors, axis=1)
    return vectors / np.where(lengths > 0, lengths, 1)[:, None], lengths


def _plane_quadrics(
    normals: Float[np.ndarray, "N 3"], points: Float[np.ndarray, "N 3"], weights: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N 4 4"]:
    planes = np.column_stack([normals, -(normals * points).sum(axis=1)])
    return weights[:, None, None] * planes[:, :, None] * planes[:, None, :]


@njit(cache=True, nogil=True)
def _collapse(points, faces, quadrics, target):  # type: ignore[no-untyped-def]
    """Collapse edges, in place, until `target` vertices are left; removed faces start with −1."""
    V, F = len(points), len(faces)
    # The corners (3 f + i) at each vertex form a linked list, so that merging vertices joins their lists.
    first = np.full(V, -1)
    last = np.full(V, -1)
    following = np.full(3 * F, -1)
    for corner in range(3 * F):
        v = faces[corner // 3, corner % 3]
        if first[v] < 0:
            first[v] = corner
        else:
            following[last[v]] = corner
        last[v] = corner
    remaining = (first >= 0).sum()
    # How often each vertex has moved, −1 once it is removed: older entries of the queue are outdated.
    changes = np.zeros(V, dtype=np.int64)
    seen_from_u = np.zeros(V, dtype=np.int64)
    seen_from_v = np.zeros(V, dtype=np.int64)
    point = np.empty(3)

    progress = True
    while progress and remaining > target:
        progress = False
        queue = [(0.0, 0, 0, 0) for _ in range(0)]
        for f in range(F):
            if faces[f, 0] >= 0:
                for i in range(3):
                    u, v = faces[f, i], faces[f, (i + 1) % 3]
                    queue.append((_optimal_point(quadrics, u, v, point), u, v, changes[u] + changes[v]))
        heapify(queue)
        while queue and remaining > target:
            _, u, v, queued_changes = heappop(queue)
            if changes[u] < 0 or changes[v] < 0 or changes[u] + changes[v] != queued_changes:
                continue
            if not _keeps_topology(u, v, faces, first, following, seen_from_u, seen_from_v):
                continue
            _optimal_point(quadrics, u, v, point)
            if _folds(u, v, point, points, faces, first, following) or _folds(
                v, u, point, points, faces, first, following
            ):
                continue
            points[u] = point
            quadrics[u] += quadrics[v]
            changes[u] += 1
            changes[v] = -1
            for corner in _corners_at(v, faces, first, following):
                if _contains(faces, corner // 3, u):
                    faces[corner // 3, 0] = -1
                else:
                    faces[corner // 3, corner % 3] = u
            following[last[u]] = first[v]
            last[u] = last[v]
            remaining -= 1
            progress = True
            for corner in _corners_at(u, faces, first, following):
                for step in range(1, 3):
                    w = faces[corner // 3, (corner + step) % 3]
                    heappush(queue, (_optimal_point(quadrics, u, w, point), u, w, changes[u] + changes[w]))


@njit(nogil=True)  # Numba cannot compile a call of a generator that it has loaded from its cache
def _corners_at(v, faces, first, following):  # type: ignore[no-untyped-def]
    """The corners at a vertex of the faces that are left."""
    corner = first[v]
    while corner >= 0:
        if faces[corner // 3, 0] >= 0:
            yield corner
        corner = following[corner]


@njit(cache=True, nogil=True)
def _contains(faces, f, v):  # type: ignore[no-untyped-def]
    return faces[f, 0] == v or faces[f, 1] == v or faces[f, 2] == v


@njit(cache=True, nogil=True)
def _optimal_point(quadrics, u, v, point):  # type: ignore[no-untyped-def]
    """Write the minimizer of the sum of two quadrics (Cramer's rule) to `point`; return the minimum."""
    A, B = quadrics[u], quadrics[v]
    a, b, c = A[0, 0] + B[0, 0], A[0, 1] + B[0, 1], A[0, 2] + B[0, 2]
    d, e, f = A[1, 1] + B[1, 1], A[1, 2] + B[1, 2], A[2, 2] + B[2, 2]
    x, y, z = -A[0, 3] - B[0, 3], -A[1, 3] - B[1, 3], -A[2, 3] - B[2, 3]
    p, q, r = d * f - e * e, c * e - b * f, b * e - c * d
    s, t, w = a * f - c * c, b * c - a * e, a * d - b * b
    determinant = a * p + b * q + c * r
    point[0] = (p * x + q * y + r * z) / determinant
    point[1] = (q * x + s * y + t * z) / determinant
    point[2] = (r * x + t * y + w * z) / determinant
    return A[3, 3] + B[3, 3] - (x * point[0] + y * point[1] + z * point[2])


@njit(cache=True, nogil=True)
def _keeps_topology(u, v, faces, first, following, from_u, from_v):  # type: ignore[no-untyped-def]
    """The link condition, with the boundary closed by one more vertex; `from_u`, `from_v` are zeros.

    Edges of one or of more than two faces are the boundary.
    """
    # Number of faces on the edge from u, and from v, to each neighbor.
    for w, counts in ((u, from_u), (v, from_v)):
        for corner in _corners_at(w, faces, first, following):
            counts[faces[corner // 3, (corner + 1) % 3]] += 1
            counts[faces[corner // 3, (corner + 2) % 3]] += 1
    shared = from_u[v]
    common, opposite_boundary = 0, 0
    boundary_u, boundary_v, duplicate = False, False, False
    for corner in _corners_at(u, faces, first, following):
        a, b = faces[corner // 3, (corner + 1) % 3], faces[corner // 3, (corner + 2) % 3]
        boundary_u |= from_u[a] != 2 or from_u[b] != 2
        if a == v or b == v:
            w = b if a == v else a
            opposite_boundary += from_u[w] != 2 and from_v[w] != 2
        elif from_v[a] > 0 and from_v[b] > 0:
            for other in _corners_at(v, faces, first, following):
                duplicate |= _contains(faces, other // 3, a) and _contains(faces, other // 3, b)
    for corner in _corners_at(v, faces, first, following):
        for step in range(1, 3):
            w = faces[corner // 3, (corner + step) % 3]
            boundary_v |= from_v[w] != 2
            if w != u and from_u[w] > 0:
                common += 1
                from_u[w] = -from_u[w]
    for w, counts in ((u, from_u), (v, from_v)):
        for corner in _corners_at(w, faces, first, following):
            for i in range(3):
                counts[faces[corner // 3, i]] = 0
    return (
        common == shared
        and not duplicate
        and opposite_boundary == 0
        and not (boundary_u and boundary_v and shared == 2)
    )


@njit(cache=True, nogil=True)
def _folds(u, v, point, points, faces, first, following):  # type: ignore[no-untyped-def]
    """Whether moving u to `point` turns a face, other than those at v, by more than about 80 degrees."""
    for corner in _corners_at(u, faces, first, following):
        f = corner // 3
        if not _contains(faces, f, v):
            a, b = points[faces[f, (corner + 1) % 3]], points[faces[f, (corner + 2) % 3]]
            before, after = _normal(points[u], a, b), _normal(point, a, b)
            squared = _dot(before, before)
            if squared > 0 and _dot(before, after) <= 0.2 * np.sqrt(squared * _dot(after, after)):
                return True
    return False


@njit(cache=True, nogil=True)
def _normal(a, b, c):  # type: ignore[no-untyped-def]
    x, y, z = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    p, q, r = c[0] - a[0], c[1] - a[1], c[2] - a[2]
    return y * r - z * q, z * p - x * r, x * q - y * p


@njit(cache=True, nogil=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
