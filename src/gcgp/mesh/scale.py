"""Meshes scaled to unit size, independent of the units of their files."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gcgp._runtime.errors import check_choice
from gcgp.mesh.geodesics.distances import distances
from gcgp.mesh.mesh import Mesh


def normalized(mesh: Mesh, by: Literal["area", "diameter"] = "area") -> Mesh:
    """The mesh scaled to area 1, or to geodesic diameter 1.

    The diameter is a lower bound: from the vertex farthest from the centroid to the geodesically farthest
    vertex, repeated while the distance grows, at most ten times. If the mesh has several components, it is
    that of the component where this starts.
    """
    check_choice("by", by, ("area", "diameter"))
    size = mesh.area**0.5 if by == "area" else _diameter(mesh)
    if not size > 0:
        raise ValueError(f"{mesh.title}: its {by} is {size}; it cannot be scaled to 1")
    return mesh.scaled(1 / size)


def _diameter(mesh: Mesh) -> float:
    if not mesh.area > 0:
        return 0.0
    centroid = mesh.vertex_areas @ mesh.vertices / mesh.area
    offsets = np.linalg.norm(mesh.vertices - centroid, axis=1)
    start = int(np.argmax(np.where(mesh.vertex_areas > 0, offsets, -1)))
    diameter = 0.0
    for _ in range(10):
        reached = distances(mesh, [start])
        reached = np.where(np.isfinite(reached), reached, 0)
        start = int(np.argmax(reached))
        if reached[start] <= diameter:
            break
        diameter = float(reached[start])
    return diameter
