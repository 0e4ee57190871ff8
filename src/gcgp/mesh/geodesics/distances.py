"""Geodesic distances on a mesh by fast marching, and straight lines on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.errors import unknown_option
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
    """Geodesic distance from the nearest source; infinite where none can be reached or beyond `radius`.

    `starts` are the distances at the sources themselves, 0 unless given. The front passes over a triangle as
    if it came from a point, which is more exact for distances from single vertices, or from a line
    (Kimmel & Sethian 1998), for sources that together are a line.

    >>> square = Mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]])
    >>> distances(square, [1]).round(3).tolist()
    [1.0, 0.0, 1.0, 1.414]
    """
    from gcgp.mesh.geodesics.marching import LINE, POINT, march_whole

    if front not in FRONTS:
        raise unknown_option("front", front, FRONTS)
    chosen = _checked_sources(sources, len(mesh.vertices))
    values = np.zeros(len(chosen)) if starts is None else np.asarray(starts, dtype=np.float64)
    if values.shape != chosen.shape:
        raise ValueError(f"starts: {values.size} values for {len(chosen)} sources")
    if not (np.isfinite(values).all() and (values >= 0).all()):
        place = int(np.argmin(np.isfinite(values) & (values >= 0)))
        raise ValueError(f"starts[{place}] is {values[place]}; it must be finite and not negative")
    if not radius >= 0:
        raise ValueError(f"radius={radius!r} must not be negative")
    kind = POINT if front == "point" else LINE
    found = march_whole(mesh.surface, chosen, values, kind, float(radius))
    if len(chosen) == 1:
        # A front over unfolded triangles can be shorter than the chord where the surface is rough.
        chords = np.linalg.norm(mesh.vertices - mesh.vertices[chosen[0]], axis=1)
        found = np.maximum(found, values[0] + chords)
        found[found > radius] = np.inf
    return found


def ray(
    mesh: Mesh,
    vertex: int,
    fraction: float,
    *,
    length: float = np.inf,
    frame: str = "edge",
) -> Int[np.ndarray, "steps"]:
    """The vertices nearest to a straight line that leaves `vertex`, one for each edge that it crosses.

    It leaves at `fraction` of the vertex's total angle, counted from the longest edge (`frame="edge"`) or
    from a principal direction of curvature, and runs on over unfolded triangles until `length`, the boundary,
    or a face that it has crossed before. The vertex itself comes first.
    """
    from gcgp.mesh.geodesics.rays import first_directions, trace

    (v,) = _checked_sources([vertex], len(mesh.vertices))
    if frame not in FRAMES:
        raise unknown_option("frame", frame, FRAMES)
    if not np.isfinite(fraction) or not length >= 0:
        raise ValueError(f"fraction={fraction!r} must be finite, and length={length!r} not negative")
    surface = mesh.surface
    total = surface.fan_totals[v]
    direction = first_directions(surface, frame == "curvature")[v] + total * (fraction % 1.0)
    path = np.empty(len(surface.faces) + 2, dtype=np.int64)
    seen = np.zeros(len(surface.faces), dtype=np.int64)
    steps = trace(
        surface, v, direction - total if direction > total > 0 else direction, length, seen, 1, path
    )
    return path[:steps]


def _checked_sources(sources: Sequence[int] | np.ndarray, count: int) -> Int[np.ndarray, "sources"]:
    chosen = np.atleast_1d(np.asarray(sources))
    if chosen.size == 0 or chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        raise ValueError(f"sources={sources!r}: expected numbers of vertices, one at least")
    outside = (chosen < 0) | (chosen >= count)
    if outside.any():
        place = int(np.argmax(outside))
        raise ValueError(f"sources[{place}] is {chosen[place]}, but the vertices are 0 to {count - 1}")
    return chosen.astype(np.int64)
