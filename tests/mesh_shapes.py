"""Meshes for tests of geodesics, clean ones first. Each function returns a `Mesh`."""

from __future__ import annotations

import numpy as np
import trimesh
from scipy.spatial import Delaunay

from gcgp.mesh.mesh import Mesh


def as_mesh(shape: trimesh.Trimesh) -> Mesh:
    return Mesh(shape.vertices, shape.faces)


def icosphere(subdivisions: int) -> Mesh:
    """A unit sphere: 162, 642 or 2,562 vertices for 2, 3 or 4 subdivisions."""
    return as_mesh(trimesh.creation.icosphere(subdivisions=subdivisions))


def bumpy_sphere(subdivisions: int, seed: int = 0, height: float = 0.15) -> Mesh:
    """A sphere with smooth bumps, without symmetry."""
    rng = np.random.default_rng(seed)
    vertices = icosphere(subdivisions).vertices
    heights = 1 + height * np.sin(3 * vertices @ rng.normal(size=(3, 4)) + rng.normal(size=4)).mean(axis=1)
    return Mesh(vertices * heights[:, None], icosphere(subdivisions).faces)


def grid_faces(rows: int, columns: int, round_rows: bool = False, round_columns: bool = False) -> np.ndarray:
    """Two triangles per square of a grid of vertices, which may be periodic in either direction."""
    faces = []
    for i in range(rows if round_rows else rows - 1):
        for j in range(columns if round_columns else columns - 1):
            a, b = i * columns + j, ((i + 1) % rows) * columns + j
            c, d = ((i + 1) % rows) * columns + (j + 1) % columns, i * columns + (j + 1) % columns
            faces += [[a, b, c], [a, c, d]]
    return np.array(faces)


def plane(side: int, jitter: float = 0.0, stretch: float = 1.0, seed: int = 0) -> Mesh:
    """The unit square as a grid of `side`² vertices, those inside moved by up to `jitter` of the spacing.

    `stretch` is the length of the first direction.
    """
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    inside = (x > 0) & (x < side - 1) & (y > 0) & (y < side - 1)
    places = np.stack([x, y], axis=-1) + inside[..., None] * rng.uniform(-jitter, jitter, (side, side, 2))
    places = places.reshape(-1, 2) / (side - 1) * [stretch, 1]
    return Mesh(np.column_stack([places, np.zeros(side**2)]), grid_faces(side, side))


def sheared_plane(side: int, shear: float = 1.7) -> Mesh:
    """A parallelogram of equal triangles, all of them obtuse. It is convex."""
    flat = plane(side).vertices.copy()
    flat[:, 0] -= shear * flat[:, 1]
    return Mesh(flat, grid_faces(side, side))


def scattered_plane(count: int, stretch: float = 1.0, seed: int = 0) -> Mesh:
    """The unit square with its corners and `count` random vertices, triangulated after stretching.

    The more it is stretched, the more triangles are obtuse; it is convex.
    """
    rng = np.random.default_rng(seed)
    places = np.concatenate([[[0, 0], [1, 0], [0, 1], [1, 1]], rng.uniform(0.02, 0.98, (count, 2))])
    triangles = Delaunay(places * [stretch, 1]).simplices
    a, b, c = (places[triangles[:, i]] for i in range(3))
    turned = (b - a)[:, 0] * (c - a)[:, 1] < (b - a)[:, 1] * (c - a)[:, 0]
    triangles = np.where(turned[:, None], triangles[:, ::-1], triangles)
    return Mesh(np.column_stack([places, np.zeros(len(places))]), triangles)


def torus(rows: int = 40, columns: int = 24, large: float = 1.0, small: float = 0.4) -> Mesh:
    u = 2 * np.pi * np.arange(rows)[:, None] / rows
    v = 2 * np.pi * np.arange(columns) / columns
    away = large + small * np.cos(v)
    vertices = np.stack([away * np.cos(u), away * np.sin(u), small * np.sin(v) + 0 * u], axis=-1)
    return Mesh(vertices.reshape(-1, 3), grid_faces(rows, columns, True, True))


def cylinder(rows: int = 15, columns: int = 24, height: float = 3.0) -> Mesh:
    """The side of a cylinder of radius 1 around the third axis, open at both ends, row 0 at the bottom.

    Every other row is turned by half a step, so that no triangle is obtuse.
    """
    i, j = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    angle = 2 * np.pi * (j + 0.5 * (i % 2)) / columns
    vertices = np.stack([np.cos(angle), np.sin(angle), height * (i / (rows - 1) - 0.5)], axis=-1)
    faces = []
    for a in range(rows - 1):
        for b in range(columns):
            here, there = a * columns + b, (a + 1) * columns + b
            right, beyond = a * columns + (b + 1) % columns, (a + 1) * columns + (b + 1) % columns
            faces += (
                [[here, right, beyond], [here, beyond, there]]
                if a % 2
                else [[here, right, there], [right, beyond, there]]
            )
    return Mesh(vertices.reshape(-1, 3), faces)


def cone(rows: int = 12, columns: int = 18, slope: float = 1.0) -> Mesh:
    """The side of a cone without its base: vertex 0 is the tip, at which less than a full turn meets."""
    i, j = np.meshgrid(np.arange(1, rows + 1), np.arange(columns), indexing="ij")
    angle = 2 * np.pi * j / columns
    ring = np.stack([i * np.cos(angle), i * np.sin(angle), -slope * i], axis=-1).reshape(-1, 3) / rows
    tip = [[0, 1 + b, 1 + (b + 1) % columns] for b in range(columns)]
    side = 1 + grid_faces(rows, columns, round_columns=True)
    return Mesh(np.concatenate([[[0, 0, 0]], ring]), np.concatenate([tip, side]))


def moebius(count: int = 24, width: float = 0.3) -> Mesh:
    """A strip with half a twist: it cannot be oriented, so one edge is traversed twice in one direction."""
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)
    middle = np.column_stack([np.cos(angle), np.sin(angle), 0 * angle])
    across = np.column_stack(
        [np.cos(angle / 2) * np.cos(angle), np.cos(angle / 2) * np.sin(angle), np.sin(angle / 2)]
    )
    vertices = np.stack([middle - width * across, middle, middle + width * across], axis=1).reshape(-1, 3)
    faces = []
    for i in range(count):
        here = [3 * i, 3 * i + 1, 3 * i + 2]
        there = [2, 1, 0] if i == count - 1 else [3 * i + 3, 3 * i + 4, 3 * i + 5]
        for k in range(2):
            faces += [[here[k], here[k + 1], there[k]], [here[k + 1], there[k + 1], there[k]]]
    return Mesh(vertices, faces)


def three_pages(side: int = 6) -> Mesh:
    """Three half planes that meet in one line: its edges have three faces each. The first two are flat."""
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    spine = np.column_stack([0 * np.arange(side), np.arange(side), 0 * np.arange(side)])
    vertices, faces = [spine], []
    for k, towards in enumerate([[1, 0, 0], [-1, 0, 0], [0, 0, 1]]):
        page = x[1:].reshape(-1, 1) * np.array(towards) + y[1:].reshape(-1, 1) * [0, 1, 0]
        number = np.concatenate(
            [np.arange(side), side + k * side * (side - 1) + np.arange(side * (side - 1))]
        )
        vertices.append(page)
        faces.append(number[grid_faces(side, side)])
    return Mesh(np.concatenate(vertices) / (side - 1), np.concatenate(faces))


def side_by_side(*meshes: Mesh) -> Mesh:
    """One mesh with these meshes as components; in space they may touch."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate([mesh.faces + start for mesh, start in zip(meshes, starts[:-1], strict=True)]),
    )


def renumbered(mesh: Mesh, order: np.ndarray) -> Mesh:
    """The mesh whose vertex `i` is vertex `order[i]` of the given one."""
    return Mesh(mesh.vertices[order], np.argsort(order)[mesh.faces])


def moved(mesh: Mesh, seed: int = 0) -> Mesh:
    """The mesh after a random rotation and translation."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return Mesh(mesh.vertices @ (turn * np.linalg.det(turn)).T + rng.normal(size=3), mesh.faces)


def boundary(mesh: Mesh) -> np.ndarray:
    """Indices of the vertices of edges with one face."""
    sides = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    edges, uses = np.unique(sides, axis=0, return_counts=True)
    return np.unique(edges[uses == 1])


def edge_graph(mesh: Mesh):
    """The edges with their lengths as a sparse matrix for scipy; edges of length zero are included."""
    from scipy.sparse import coo_array

    ends = mesh.vertices[mesh.edges]
    lengths = np.maximum(np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1), 1e-300)
    count = len(mesh.vertices)
    return coo_array((lengths, (mesh.edges[:, 0], mesh.edges[:, 1])), shape=(count, count)).tocsr()
