"""OBJ files: vertices and faces; normals, textures, groups and materials are ignored."""

from __future__ import annotations

import re

import numpy as np

from gcgp.mesh.files.parsing import MAX_POLYGON_CORNERS, Polygons, check_corners, decoded, integer, point


def read_obj(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and polygons of an OBJ file."""
    points: list[list[float]] = []
    polygons: list[list[int]] = []
    for line in re.sub(r"\\\r?\n", " ", decoded(content)).splitlines():
        words = line.partition("#")[0].split(None, MAX_POLYGON_CORNERS + 1)
        if words[:1] == ["v"]:
            points.append(point(words[1:4], len(points)))
        elif words[:1] == ["f"]:
            face = len(polygons)
            check_corners(len(words) - 1, face)
            polygons.append([])
            for word in words[1:]:
                index = integer(word.partition("/")[0], f"face {face}")
                # Indices start at 1; negative ones count back from the latest vertex.
                polygons[face].append(index - 1 if index > 0 else len(points) + index)
                if index == 0 or polygons[face][-1] < 0:
                    raise _out_of_range(face, index, len(points))
    for face, polygon in enumerate(polygons):
        if max(polygon) >= len(points):
            raise _out_of_range(face, max(polygon) + 1, len(points))
    return np.array(points).reshape(-1, 3), polygons


def _out_of_range(face: int, index: int, vertices: int) -> ValueError:
    return ValueError(f"face {face} names vertex {index}, but the vertices are 1 to {vertices}")
