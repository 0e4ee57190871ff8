"""Geodesic distances by fast marching, and rays, with checked arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.arrays import check_vertex_indices
from gcgp._runtime.errors import check_choice
from gcgp.mesh.mesh import Mesh

FRONTS = ("point", "line")
FRAMES = ("curvature", "edge")


def distances(
    mesh: Mesh,
    sources: Sequence[int] | Int[np.ndarray, "sources"],
    *,
    starts: Sequence[float] | Float[np.ndarray, "sources"] | None = None,
    radius: float = np.inf,
    front: str = "point",
) -> Float[np.ndarray, "V"]:
    """Geodesic distance from the nearest source; infinite if it cannot be reached or exceeds `radius`.

    `starts` are the distances at the sources (default 0). Fronts pass over triangles as if they came from a
    point, which is more accurate for single sources, or from a line (Kimmel & Sethian 1998), for sources that
    together form a line.

    >>> square = Mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    >>> distances(square, [1]).round(3).tolist()
    [1.0, 0.0, 1.0, 1.414]
    """
    from gcgp.mesh.geodesics.marching import LINE, POINT, march, new_workspace

    check_choice("front", front, FRONTS)
    indices = _checked_indices("sources", sources, mesh)
    values = np.zeros(len(indices)) if starts is None else np.asarray(starts, dtype=np.float64)
    if values.shape != indices.shape:
        raise ValueError(f"starts: {values.size} values for {len(indices)} sources")
    valid = np.isfinite(values) & (values >= 0)
    if not valid.all():
        i = int(np.argmin(valid))
        raise ValueError(f"starts[{i}] is {values[i]}; it must be finite and not negative")
    if not radius >= 0:
        raise ValueError(f"radius={radius!r} must not be negative")
    surface, kind = mesh.surface, POINT if front == "point" else LINE
    result = np.full(len(mesh.vertices), np.inf)
    np.minimum.at(result, indices, values)
    distinct = list(dict.fromkeys(indices.tolist()))
    count = len(distinct)
    reached = np.zeros(len(result), dtype=np.uint32)
    reached[:count] = distinct
    space = new_workspace(surface)
    march(surface.tables, surface.step, kind, float(radius), result, np.empty(0), space, reached, count)
    if len(indices) == 1:
        # A front over unfolded triangles can be shorter than the chord on rough surfaces.
        chords = np.linalg.norm(mesh.vertices - mesh.vertices[indices[0]], axis=1)
        result = np.maximum(result, values[0] + chords)
    result[result > radius] = np.inf
    return result


def ray(
    mesh: Mesh, vertex: int, fraction: float, *, length: float = np.inf, frame: str = "edge"
) -> Int[np.ndarray, "steps"]:
    """The vertices nearest to a ray that leaves `vertex`: first the vertex, then one per crossed edge.

    The ray leaves at `fraction` of the total angle of the vertex, measured from the longest edge
    (`frame="edge"`) or from a principal direction of curvature. It ends after `length`, at the boundary, or
    at a face that it crossed before.
    """
    from gcgp.mesh.geodesics.rays import first_directions, trace

    (v,) = _checked_indices("vertex", [vertex], mesh)
    check_choice("frame", frame, FRAMES)
    if not np.isfinite(fraction) or not length >= 0:
        raise ValueError(f"fraction={fraction!r} must be finite, and length={length!r} not negative")
    surface = mesh.surface
    direction = first_directions(surface, frame == "curvature")[v] + surface.fan_totals[v] * (fraction % 1.0)
    path = np.empty(len(surface.faces) + 2, dtype=np.int64)
    seen = np.zeros(len(surface.faces), dtype=np.int64)
    return path[: trace(surface, v, direction, length, seen, 1, path)]


def _checked_indices(name: str, given: Sequence[int] | np.ndarray, mesh: Mesh) -> Int[np.ndarray, "indices"]:
    indices = np.atleast_1d(np.asarray(given))
    if indices.size == 0 or indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(f"{name}={given!r}: expected one or more indices of vertices")
    check_vertex_indices(indices, len(mesh.vertices), mesh.title, name)
    return indices.astype(np.int64)
