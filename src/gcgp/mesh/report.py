"""Defects of a mesh: counted, never repaired."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gcgp.mesh.mesh import Mesh

MIN_RELATIVE_HEIGHT = 1e-12
"""Height of a triangle over its longest edge, below which its corners are collinear up to rounding."""
MAX_LISTED_FACES = 5
"""Number of duplicate faces whose indices are printed."""


@dataclass(frozen=True)
class MeshReport:
    """Counts of a mesh. Its string form names only defects.

    Duplicate faces (the same three vertices in any order) count once for edges and fans; faces that name a
    vertex twice do not count there.

    >>> print(Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [9, 9, 9]], [[0, 1, 2]]).report())
    4 vertices, 1 faces, 3 edges: manifold with boundary, Euler characteristic 1
      boundary: 3 edges in 1 loops
      isolated vertices: 1
    """

    vertices: int
    faces: int
    edges: int
    components: int  # connected parts, not counting isolated vertices
    isolated_vertices: int  # vertices of no face
    degenerate_faces: int  # that name a vertex twice, or whose area is zero up to rounding
    duplicate_faces: int  # with the same three vertices as an earlier face, in any order
    boundary_edges: int  # of one face
    boundary_loops: int  # connected parts of the boundary
    non_manifold_edges: int  # of three or more faces
    non_manifold_vertices: int  # whose faces form more than one fan (bow-ties)
    misoriented_edges: int  # that both of their faces traverse in the same direction
    euler_characteristic: int  # without isolated vertices and duplicate or degenerate faces
    duplicate_face_indices: tuple[int, ...] = field(default=(), repr=False)

    @property
    def clean(self) -> bool:
        """An oriented manifold, closed or with boundary, without isolated, degenerate or duplicate parts."""
        return not any(self._defects().values())

    def __str__(self) -> str:
        if self.faces == 0:
            kind = "no surface"
        elif self.non_manifold_edges or self.non_manifold_vertices:
            kind = "not manifold"
        else:
            kind = "manifold with boundary" if self.boundary_edges else "closed manifold"
        lines = [
            f"{self.vertices} vertices, {self.faces} faces, {self.edges} edges: "
            f"{kind}, Euler characteristic {self.euler_characteristic}"
        ]
        if self.components > 1:
            lines.append(f"components: {self.components}")
        if self.boundary_edges:
            lines.append(f"boundary: {self.boundary_edges} edges in {self.boundary_loops} loops")
        indices = [str(index) for index in self.duplicate_face_indices[:MAX_LISTED_FACES]]
        more = ["..."] if len(self.duplicate_face_indices) > MAX_LISTED_FACES else []
        listed = {"duplicate faces": f" ({', '.join(indices + more)})"}
        lines += [f"{name}: {n}{listed.get(name, '')}" for name, n in self._defects().items() if n]
        return "\n  ".join(lines)

    def _defects(self) -> dict[str, int]:
        return {
            "isolated vertices": self.isolated_vertices,
            "degenerate faces": self.degenerate_faces,
            "duplicate faces": self.duplicate_faces,
            "non-manifold edges (three or more faces)": self.non_manifold_edges,
            "non-manifold vertices (more than one fan)": self.non_manifold_vertices,
            "misoriented edges (inconsistent faces)": self.misoriented_edges,
        }


def report(mesh: Mesh) -> MeshReport:
    """Count the parts and the defects of a mesh."""
    count = len(mesh.vertices)
    distinct, duplicates = mesh.distinct_faces, mesh.duplicate_faces
    tails, heads = distinct.ravel(), np.roll(distinct, -1, axis=1).ravel()
    keys = mesh.edges[:, 0] * count + mesh.edges[:, 1]
    sides = np.searchsorted(keys, np.minimum(tails, heads) * count + np.maximum(tails, heads))
    uses = np.bincount(sides, minlength=len(keys))
    directions = np.bincount(sides, np.where(tails < heads, 1, -1), minlength=len(keys))
    boundary = mesh.edges[uses == 1]
    isolated = count - len(np.unique(mesh.faces))
    return MeshReport(
        vertices=count,
        faces=len(mesh.faces),
        edges=len(mesh.edges),
        components=components(mesh.edges, count)[0] - isolated,
        isolated_vertices=isolated,
        degenerate_faces=int((mesh.has_repeated_vertex | _collinear(mesh)).sum()),
        duplicate_faces=len(duplicates),
        boundary_edges=len(boundary),
        boundary_loops=components(boundary, count)[0] - (count - len(np.unique(boundary))),
        non_manifold_edges=int((uses > 2).sum()),
        non_manifold_vertices=int((_fan_counts(mesh, sides.reshape(-1, 3)) > 1).sum()),
        misoriented_edges=int(((uses == 2) & (directions != 0)).sum()),
        euler_characteristic=count - isolated - len(mesh.edges) + len(distinct),
        duplicate_face_indices=tuple(duplicates.tolist()),
    )


def _collinear(mesh: Mesh) -> Bool[np.ndarray, "F"]:
    corners = mesh.vertices[mesh.faces]
    lengths = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
    return 2 * mesh.face_areas <= MIN_RELATIVE_HEIGHT * lengths.max(axis=1, initial=0) ** 2


def components(pairs: Int[np.ndarray, "E 2"], count: int) -> tuple[int, Int[np.ndarray, "count"]]:
    """The number of connected components of a graph with these edges, and the component of each vertex."""
    graph = coo_array((np.ones(len(pairs), dtype=bool), tuple(pairs.T)), shape=(count, count))
    return connected_components(graph, directed=False)


def _fan_counts(mesh: Mesh, sides: Int[np.ndarray, "F 3"]) -> Int[np.ndarray, "V"]:
    """Number of fans around each vertex; `sides[f, i]` is the edge from corner i of face f to the next.

    A graph connects each corner with the ends, at its vertex, of the two edges that meet there. Its
    components are the fans.
    """
    faces = mesh.distinct_faces
    edges = np.stack([sides, np.roll(sides, 1, axis=1)])
    ends = (2 * edges + (mesh.edges[edges, 1] == faces)).ravel()
    pairs = np.stack([np.tile(np.arange(faces.size), 2), faces.size + ends], axis=1)
    _, labels = components(pairs, faces.size + 2 * len(mesh.edges))
    _, first = np.unique(labels[: faces.size], return_index=True)
    return np.bincount(faces.ravel()[first], minlength=len(mesh.vertices))
