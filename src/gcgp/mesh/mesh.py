"""One triangle mesh: checked once, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from gcgp._runtime.arrays import as_array

if TYPE_CHECKING:
    from gcgp.mesh.geodesics.tables import Surface
    from gcgp.mesh.report import MeshReport


MAX_COORDINATE = 1e37
"""Largest magnitude of a coordinate; beyond it, distances overflow in single precision."""


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh. Any triangles are accepted; `report()` lists defects.

    Faces that repeat the three vertices of an earlier face, in any order, stay in `faces` but count once in
    areas, spectra and charts.

    Vertices become float64 and faces int64. A mesh without vertices, a face that names a vertex that is
    not there, and a coordinate that is not finite or beyond ±1e37 are errors.

    >>> square = Mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    >>> square
    Mesh(4 vertices, 2 faces)
    >>> square.area
    1.0
    """

    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        item = f"mesh {self.name!r}" if self.name else "mesh"
        vertices = _array(self.vertices, f"{item}: vertices", "fiu", np.float64)
        faces = _array(self.faces, f"{item}: faces", "iu", np.int64)
        if len(vertices) == 0:
            raise ValueError(f"{item}: it has no vertices")
        if not np.isfinite(vertices).all():
            v, axis = np.argwhere(~np.isfinite(vertices))[0]
            raise ValueError(f"{item}: vertices[{v}, {axis}] is {vertices[v, axis]}; it must be finite")
        if np.abs(vertices).max() > MAX_COORDINATE:
            v, axis = np.argwhere(np.abs(vertices) > MAX_COORDINATE)[0]
            raise ValueError(
                f"{item}: vertices[{v}, {axis}] is {vertices[v, axis]}; it must be within "
                f"±{MAX_COORDINATE:g}, as distances are stored in single precision"
            )
        outside = (faces < 0) | (faces >= len(vertices))
        if outside.any():
            f = int(np.argmax(outside.any(axis=1)))
            raise ValueError(
                f"{item}: faces[{f}] is {faces[f].tolist()}, but its vertices are 0 to {len(vertices) - 1}"
            )
        object.__setattr__(self, "vertices", vertices)
        object.__setattr__(self, "faces", faces)

    def __repr__(self) -> str:
        name = f"{self.name!r}, " if self.name else ""
        return f"Mesh({name}{len(self.vertices)} vertices, {len(self.faces)} faces)"

    @cached_property
    def face_areas(self) -> Float[np.ndarray, "F"]:
        """Area of each face, duplicates included."""
        a, b, c = (self.vertices[self.faces[:, i]] for i in range(3))
        return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)

    @cached_property
    def duplicate_faces(self) -> Int[np.ndarray, "duplicates"]:
        """Indices of the faces with the same three vertices as an earlier face, in any order.

        Faces that name a vertex twice have no area and are not counted.
        """
        proper = np.flatnonzero(_proper(self.faces))
        corners = np.sort(self.faces[proper], axis=1)
        order = np.lexsort(corners.T)  # stable: equal faces stay in the order of their indices
        same = (np.diff(corners[order], axis=0) == 0).all(axis=1)
        return np.sort(proper[order[1:][same]])

    @cached_property
    def distinct_faces(self) -> Int[np.ndarray, "distinct 3"]:
        """Faces with three different vertices, each set of vertices once, in the order of `faces`."""
        mask = _proper(self.faces)
        mask[self.duplicate_faces] = False
        return np.ascontiguousarray(self.faces[mask])

    @property
    def area(self) -> float:
        """Area of the surface; duplicate faces count once."""
        return float(np.delete(self.face_areas, self.duplicate_faces).sum())

    @cached_property
    def vertex_areas(self) -> Float[np.ndarray, "V"]:
        """A third of the area of the distinct faces at each vertex; 0 where there are none.

        With these weights a sum over vertices is the integral of the function that is linear on each face.
        They are used for patches, and need no Delaunay triangulation: on decimated bodies of 300 to 1,000
        vertices, integrals are 0.4 to 1.6 % from those of the original mesh, and 0.35 to 1.4 % with the mass
        matrix of robust-laplacian, which is an optional dependency and used for spectra.
        """
        areas = np.zeros(len(self.vertices))
        faces = np.delete(self.faces, self.duplicate_faces, axis=0)
        np.add.at(areas, faces, np.delete(self.face_areas, self.duplicate_faces)[:, None] / 3)
        return areas

    @cached_property
    def edges(self) -> Int[np.ndarray, "E 2"]:
        """Each pair of vertices that some face joins, once, the lower number first."""
        pairs = np.sort(self.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
        return np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)

    @cached_property
    def surface(self) -> Surface:
        """Tables for walking on the mesh, made when first needed."""
        from gcgp.mesh.geodesics.tables import surface_of

        return surface_of(self)

    def scaled(self, factor: float) -> Mesh:
        """The mesh with all lengths times `factor`."""
        return replace(self, vertices=self.vertices * factor)

    def report(self) -> MeshReport:
        """What is unusual about the mesh: boundaries, duplicate faces, bow-ties and the like."""
        from gcgp.mesh.report import report

        return report(self)


def _proper(faces: Int[np.ndarray, "F 3"]) -> Bool[np.ndarray, "F"]:
    """Whether each face has three different vertices."""
    return (faces != np.roll(faces, 1, axis=1)).all(axis=1)


def _array(values: Any, item: str, kinds: str, dtype: type) -> np.ndarray:
    name, _, field = item.rpartition(": ")
    array = as_array(values, name, field)
    if array.size == 0:
        return np.zeros((0, 3), dtype=dtype)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError(f"{item} must have shape [*, 3], got {list(array.shape)}")
    if array.dtype.kind not in kinds:
        raise ValueError(f"{item} have the wrong type: dtype {array.dtype}")
    array = np.array(array, dtype=dtype, order="C")
    array.flags.writeable = False
    return array
