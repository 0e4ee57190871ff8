"""Fewer vertices, nearly the same surface: edges collapse in the order of their quadric error."""

from __future__ import annotations

import warnings
from heapq import heapify, heappop, heappush

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from gcgp._runtime.cache import cached
from gcgp._runtime.cache_file import check_layout, check_range
from gcgp.mesh.mesh import Mesh

# Weight of the squared distance to the vertices themselves, beside that to the planes of the faces. It
# makes the best place unique where the surface is flat, and the triangles even.
TOWARDS_VERTICES = 1e-2


VERSION = 1
"""To be raised when the same mesh gives other numbers than before."""


def decimate(mesh: Mesh, vertices: int, *, keep: bool = False) -> Mesh:
    """The mesh with `vertices` vertices, by quadric edge collapse (Garland and Heckbert 1997).

    Vertices of no face, duplicate faces and faces that name a vertex twice are dropped. A mesh that has
    at most `vertices` vertices is returned as it is. A collapse that would change the topology, fold the
    surface over or leave a duplicate face is not made (the link condition of Dey et al. 1999), so
    that a manifold stays one. Where no other collapse is left, a warning tells the number that was reached.

    The result is the same each time. With `keep` it is kept in the cache, as charts are.
    """
    if vertices < 1:
        raise ValueError(f"vertices={vertices!r}: expected a positive number")
    if len(mesh.vertices) <= vertices:
        return mesh
    proper = mesh.distinct_faces
    if len(proper) == 0:
        raise ValueError(f"mesh {mesh.name!r}: it has no faces of three vertices, nothing to decimate")

    def compute() -> dict[str, np.ndarray]:
        return _decimated(mesh.vertices, proper, vertices)

    parts = ("decimation", VERSION, mesh.vertices, proper, vertices)
    found = cached(parts, compute, lambda arrays: _check(arrays, mesh)) if keep else compute()
    if len(found["vertices"]) > vertices:
        warnings.warn(
            f"mesh {mesh.name!r}: decimation ended at {len(found['vertices'])} vertices, {vertices} were "
            "asked for; any further collapse would change the topology or fold the surface",
            stacklevel=2,
        )
    return Mesh(found["vertices"], found["faces"], name=mesh.name)


def _check(arrays: dict[str, np.ndarray], mesh: Mesh) -> None:
    """Raise ValueError unless the arrays can be those of the mesh with fewer vertices."""
    vertices, faces = (np.size(arrays.get(name, ())) // 3 for name in ("vertices", "faces"))
    check_layout(arrays, {"vertices": (np.float64, (vertices, 3)), "faces": (np.int64, (faces, 3))})
    if vertices > len(mesh.vertices) or faces > len(mesh.faces):
        raise ValueError(f"it has {vertices} vertices and {faces} faces, more than the mesh")
    largest = float(np.finfo(np.float64).max)
    check_range("vertices", arrays["vertices"], -largest, largest)
    check_range("faces", arrays["faces"], 0, vertices - 1)


def _decimated(
    vertices: Float[np.ndarray, "V 3"], proper: Int[np.ndarray, "F 3"], count: int
) -> dict[str, np.ndarray]:
    """Vertices and faces of the smaller mesh."""
    used, faces = np.unique(proper, return_inverse=True)
    faces = faces.reshape(-1, 3)
    center = vertices[used].mean(axis=0)
    size = np.ptp(vertices[used], axis=0).max() or 1.0
    places = (vertices[used] - center) / size
    _collapse(places, faces, _quadrics(places, faces), count)
    faces = faces[faces[:, 0] >= 0]
    kept, faces = np.unique(faces, return_inverse=True)
    return {"vertices": places[kept] * size + center, "faces": faces.reshape(-1, 3)}


def _quadrics(places: Float[np.ndarray, "V 3"], faces: Int[np.ndarray, "F 3"]) -> Float[np.ndarray, "V 4 4"]:
    """For each vertex the matrix of x ↦ Σ weight · (squared distance of x), over planes and the vertex.

    The planes are those of its faces, weighted by area, and at a boundary the ones that stand on it.
    """
    a, b, c = (places[faces[:, i]] for i in range(3))
    normals = np.cross(b - a, c - a)
    doubled = np.linalg.norm(normals, axis=1)
    normals /= np.where(doubled > 0, doubled, 1)[:, None]
    quadrics = np.zeros((len(places), 4, 4))
    planes = _plane(normals, a, doubled)
    for i in range(3):
        np.add.at(quadrics, faces[:, i], planes)

    tails, heads = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    keys = np.minimum(tails, heads) * len(places) + np.maximum(tails, heads)
    _, edge, uses = np.unique(keys, return_inverse=True, return_counts=True)
    boundary = np.flatnonzero(uses[edge] == 1)
    tails, heads = tails[boundary], heads[boundary]
    along = places[heads] - places[tails]
    standing = np.cross(along, normals[boundary // 3])
    lengths = np.linalg.norm(standing, axis=1)
    standing /= np.where(lengths > 0, lengths, 1)[:, None]
    planes = _plane(standing, places[tails], lengths**2)
    np.add.at(quadrics, tails, planes)
    np.add.at(quadrics, heads, planes)

    # A vertex whose faces have no area needs some weight too, or its place would be undefined.
    areas = np.bincount(faces.ravel(), np.repeat(doubled, 3), minlength=len(places))
    weights = TOWARDS_VERTICES * (areas + 1e-6 * (areas.mean() or 1.0))
    quadrics[:, [0, 1, 2], [0, 1, 2]] += weights[:, None]
    quadrics[:, :3, 3] -= weights[:, None] * places
    quadrics[:, 3, :3] -= weights[:, None] * places
    quadrics[:, 3, 3] += weights * (places**2).sum(axis=1)
    return quadrics


def _plane(
    normals: Float[np.ndarray, "N 3"], points: Float[np.ndarray, "N 3"], weights: Float[np.ndarray, "N"]
) -> Float[np.ndarray, "N 4 4"]:
    planes = np.column_stack([normals, -(normals * points).sum(axis=1)])
    return weights[:, None, None] * planes[:, :, None] * planes[:, None, :]


@njit(cache=True, nogil=True)
def _collapse(places, faces, quadrics, target):  # type: ignore[no-untyped-def]
    """Collapse edges, in place, until `target` vertices are left; removed faces start with -1."""
    V, F = len(places), len(faces)
    # The corners (3 f + i) at each vertex are a chain, so that two vertices join by joining their chains.
    first = np.full(V, -1)
    last = np.full(V, -1)
    following = np.full(3 * F, -1)
    for f in range(F):
        for i in range(3):
            v = faces[f, i]
            if first[v] < 0:
                first[v] = 3 * f + i
            else:
                following[last[v]] = 3 * f + i
            last[v] = 3 * f + i
    left = 0
    for v in range(V):
        left += first[v] >= 0
    # How often each vertex has moved, -1 once it is gone: an older entry of the queue is out of date.
    changes = np.zeros(V, dtype=np.int64)
    seen_from_u = np.zeros(V, dtype=np.int64)
    seen_from_v = np.zeros(V, dtype=np.int64)
    point = np.empty(3)

    progress = True
    while progress and left > target:
        progress = False
        queue = [(0.0, 0, 0, 0) for _ in range(0)]
        for f in range(F):
            if faces[f, 0] >= 0:
                for i in range(3):
                    u, v = faces[f, i], faces[f, (i + 1) % 3]
                    cost = _best_place(quadrics, u, v, point)
                    queue.append((cost, u, v, changes[u] + changes[v]))
        heapify(queue)
        while queue and left > target:
            _, u, v, then = heappop(queue)
            if changes[u] < 0 or changes[v] < 0 or changes[u] + changes[v] != then:
                continue
            if not _keeps_topology(u, v, faces, first, following, seen_from_u, seen_from_v):
                continue
            _best_place(quadrics, u, v, point)
            if _folds(u, v, point, places, faces, first, following) or _folds(
                v, u, point, places, faces, first, following
            ):
                continue
            for i in range(3):
                places[u, i] = point[i]
            for i in range(4):
                for j in range(4):
                    quadrics[u, i, j] += quadrics[v, i, j]
            changes[u] += 1
            changes[v] = -1
            corner = first[v]
            while corner >= 0:
                f = corner // 3
                if faces[f, 0] >= 0:
                    if _names(faces, f, u):
                        faces[f, 0] = -1
                    else:
                        faces[f, corner % 3] = u
                corner = following[corner]
            following[last[u]] = first[v]
            last[u] = last[v]
            left -= 1
            progress = True
            corner = first[u]
            while corner >= 0:
                f = corner // 3
                if faces[f, 0] >= 0:
                    for step in range(1, 3):
                        w = faces[f, (corner + step) % 3]
                        cost = _best_place(quadrics, u, w, point)
                        heappush(queue, (cost, u, w, changes[u] + changes[w]))
                corner = following[corner]


@njit(cache=True, nogil=True)
def _best_place(quadrics, u, v, point):  # type: ignore[no-untyped-def]
    """Write to `point` where the sum of two quadrics is least (Cramer's rule); the value there."""
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
def _count_neighbors(v, faces, first, following, counts):  # type: ignore[no-untyped-def]
    """Add to `counts[w]` the number of faces on the edge from v to w, for all w."""
    corner = first[v]
    while corner >= 0:
        f = corner // 3
        if faces[f, 0] >= 0:
            counts[faces[f, (corner + 1) % 3]] += 1
            counts[faces[f, (corner + 2) % 3]] += 1
        corner = following[corner]


@njit(cache=True, nogil=True)
def _clear_neighbors(v, faces, first, following, counts):  # type: ignore[no-untyped-def]
    corner = first[v]
    while corner >= 0:
        if faces[corner // 3, 0] >= 0:
            for i in range(3):
                counts[faces[corner // 3, i]] = 0
        corner = following[corner]


@njit(cache=True, nogil=True)
def _keeps_topology(u, v, faces, first, following, from_u, from_v):  # type: ignore[no-untyped-def]
    """The link condition, with the boundary closed by one more vertex; `from_u`, `from_v` are zeros.

    Edges of one or of more than two faces are the boundary.
    """
    _count_neighbors(u, faces, first, following, from_u)
    _count_neighbors(v, faces, first, following, from_v)
    shared = from_u[v]
    common, opposite_boundary = 0, 0
    boundary_u, boundary_v, duplicate = False, False, False
    corner = first[u]
    while corner >= 0:
        f = corner // 3
        if faces[f, 0] >= 0:
            a, b = faces[f, (corner + 1) % 3], faces[f, (corner + 2) % 3]
            boundary_u |= from_u[a] != 2 or from_u[b] != 2
            if a == v or b == v:
                other = b if a == v else a
                opposite_boundary += from_u[other] != 2 and from_v[other] != 2
            elif from_v[a] > 0 and from_v[b] > 0:
                duplicate |= _has_face(v, a, b, faces, first, following)
        corner = following[corner]
    corner = first[v]
    while corner >= 0:
        f = corner // 3
        if faces[f, 0] >= 0:
            for step in range(1, 3):
                w = faces[f, (corner + step) % 3]
                boundary_v |= from_v[w] != 2
                if w != u and from_u[w] > 0:
                    common += 1
                    from_u[w] = -from_u[w]
        corner = following[corner]
    _clear_neighbors(u, faces, first, following, from_u)
    _clear_neighbors(v, faces, first, following, from_v)
    return (
        common == shared
        and not duplicate
        and opposite_boundary == 0
        and not (boundary_u and boundary_v and shared == 2)
    )


@njit(cache=True, nogil=True)
def _has_face(v, a, b, faces, first, following):  # type: ignore[no-untyped-def]
    corner = first[v]
    while corner >= 0:
        f = corner // 3
        if faces[f, 0] >= 0 and _names(faces, f, a) and _names(faces, f, b):
            return True
        corner = following[corner]
    return False


@njit(cache=True, nogil=True)
def _names(faces, f, v):  # type: ignore[no-untyped-def]
    return faces[f, 0] == v or faces[f, 1] == v or faces[f, 2] == v


@njit(cache=True, nogil=True)
def _folds(u, v, point, places, faces, first, following):  # type: ignore[no-untyped-def]
    """Whether moving u to `point` turns a face, other than those at v, by more than about 80 degrees."""
    corner = first[u]
    while corner >= 0:
        f = corner // 3
        if faces[f, 0] >= 0 and not _names(faces, f, v):
            a, b = places[faces[f, (corner + 1) % 3]], places[faces[f, (corner + 2) % 3]]
            before, after = _normal(places[u], a, b), _normal(point, a, b)
            size = _dot(before, before)
            if size > 0 and _dot(before, after) <= 0.2 * np.sqrt(size * _dot(after, after)):
                return True
        corner = following[corner]
    return False


@njit(cache=True, nogil=True)
def _normal(a, b, c):  # type: ignore[no-untyped-def]
    x, y, z = b[0] - a[0], b[1] - a[1], b[2] - a[2]
    p, q, r = c[0] - a[0], c[1] - a[1], c[2] - a[2]
    return y * r - z * q, z * p - x * r, x * q - y * p


@njit(cache=True, nogil=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
