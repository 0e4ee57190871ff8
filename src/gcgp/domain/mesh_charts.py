"""The chart of one mesh: geodesic polar coordinates around each vertex, cached on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gcgp._numerics.segments import offsets_from_counts
from gcgp._runtime.cache import Arrays, Part, cached, is_cached
from gcgp._runtime.cache_file import check_layout, check_range
from gcgp._runtime.errors import unknown_option
from gcgp.domain.base import Chart, Rows, pairs_of
from gcgp.mesh.geodesics.distances import FRAMES
from gcgp.mesh.mesh import Mesh

if TYPE_CHECKING:
    from gcgp.mesh.geodesics.polar import Block

MESH_CHART_KINDS = ("geodesic", "logmap")
REACHES_PER_OCTAVE = 8
"""Reaches for which charts are computed; fewer would serve more models, but charts would take longer."""
MESH_CHART_VERSION = 6
"""To be raised when the result for the same mesh and parameters changes."""


def mesh_chart(
    mesh: Mesh, coordinates: Sequence[str], reach: float, kind: str = "geodesic", rows: Rows = None
) -> Chart:
    """The chart of one mesh, cut off at `reach` (infinite: the whole mesh, V² pairs).

    Coordinates: `rho`, the geodesic distance; `theta`, the angle from a principal direction of curvature;
    `rays:J`, the distances `[pairs, J]` from J rays that leave at equal fractions of the total angle, the
    first in that direction (`rays:J:edge`: θ and the first ray start at the longest edge).

    `kind="geodesic"` computes ρ and θ by fast marching; `"logmap"` takes both from the logarithmic map of
    potpourri3d, which is slower, if it is installed and the mesh is a manifold. Fast marching decides in
    either case which pairs exist. Vertices that are not in `rows` have no pairs. The chart of a scaled copy
    is computed from that of the original, so that the cache serves both.
    """
    if mesh.unscaled is not None:
        original, factor = mesh.unscaled
        return _scaled(mesh_chart(original, coordinates, reach / factor, kind, rows), factor)
    arrays = cached(*_recipe(mesh, coordinates, reach, kind))
    if rounded_up(mesh, float(reach)) > reach or rows is not None:
        arrays = _cut(arrays, float(reach), rows)
    columns = {name: arrays[name.partition(":")[0]] for name in coordinates}
    return Chart(arrays["row_offsets"], arrays["neighbors"], columns)


def _scaled(chart: Chart, factor: float) -> Chart:
    """The chart of a mesh whose lengths are multiplied by `factor`; angles stay."""
    scaled = {
        name: values if name == "theta" else (values * np.float64(factor)).astype(values.dtype)
        for name, values in chart.coordinates.items()
    }
    return Chart(chart.row_offsets, chart.neighbors, scaled)


def cache_mesh_chart(mesh: Mesh, coordinates: Sequence[str], reach: float, kind: str = "geodesic") -> None:
    """Compute what `mesh_chart` will need, unless the cache has it."""
    if mesh.unscaled is not None:
        original, factor = mesh.unscaled
        return cache_mesh_chart(original, coordinates, reach / factor, kind)
    parts, compute, check = _recipe(mesh, coordinates, reach, kind)
    if not is_cached(parts):
        cached(parts, compute, check)


def rounded_up(mesh: Mesh, reach: float) -> float:
    """The next larger of a few reaches, so that the cache serves models whose reaches differ a little.

    In cross-validation they do, because reaches are derived from the training meshes.
    """
    unit = math.sqrt(mesh.area)
    if not (0 < reach < math.inf and unit > 0):
        return reach
    # The tolerance keeps a reach that was rounded before.
    steps = math.ceil(REACHES_PER_OCTAVE * math.log2(reach / unit) - 1e-9)
    return max(reach, unit * 2.0 ** (steps / REACHES_PER_OCTAVE))


def _recipe(
    mesh: Mesh, coordinates: Sequence[str], reach: float, kind: str
) -> tuple[tuple[Part, ...], Callable[[], Arrays], Callable[[Arrays], None]]:
    """The inputs of a chart's arrays, the function that computes them, and the one that checks them."""
    if not reach >= 0:
        raise ValueError(f"chart of a mesh: reach={reach!r} must not be negative")
    if kind not in MESH_CHART_KINDS:
        raise unknown_option("chart of a mesh: kind", kind, ("auto", *MESH_CHART_KINDS))
    rays, frame = 0, FRAMES[0]
    for name in coordinates:
        if name.startswith("rays:"):
            if rays:
                raise ValueError(f"coordinates of a mesh: {list(coordinates)!r} name rays twice")
            rays, frame = _rays(name)
        elif name not in ("rho", "theta"):
            raise unknown_option("coordinate of a mesh", name, ("rho", "theta", "rays:J"))
    with_theta = "theta" in coordinates or kind == "logmap"
    far = rounded_up(mesh, float(reach))
    return (
        (MESH_CHART_VERSION, mesh.vertices, mesh.faces, far, rays, frame, with_theta, kind),
        lambda: _compute(mesh, far, rays, frame, with_theta, kind),
        lambda arrays: _check(arrays, len(mesh.vertices), rays, with_theta, kind),
    )


def _rays(name: str) -> tuple[int, str]:
    """The number of rays and the frame, from `rays:J` or `rays:J:frame`."""
    _, count, *rest = name.split(":")
    frame = rest[0] if rest else FRAMES[0]
    if not count.isdigit() or int(count) < 1 or frame not in FRAMES or len(rest) > 1:
        raise ValueError(f"coordinate of a mesh {name!r}: expected 'rays:J' or 'rays:J:edge', J ≥ 1")
    return int(count), frame


def _check(arrays: Arrays, vertices: int, rays: int, with_theta: bool, kind: str) -> None:
    """Raise ValueError unless cached arrays can be those of a chart: compiled loops rely on its indices."""
    pairs = np.size(arrays.get("neighbors", ()))
    layout: dict[str, tuple[type, tuple[int, ...]]] = {
        "row_offsets": (np.int64, (vertices + 1,)),
        "neighbors": (np.int32, (pairs,)),
        "rho": (np.float32, (pairs,)),
    }
    if with_theta:
        layout["theta"] = (np.float32, (pairs,))
    if rays:
        layout["rays"] = (np.float32, (pairs, rays))
    if kind == "logmap":
        layout["marched"] = (np.float32, (pairs,))
    check_layout(arrays, layout)
    offsets = arrays["row_offsets"]
    if offsets[0] != 0 or offsets[-1] != pairs or (np.diff(offsets) < 0).any():
        raise ValueError(f"row_offsets do not ascend from 0 to {pairs}")
    check_range("neighbors", arrays["neighbors"], 0, vertices - 1)
    for name in ("rho", "rays", "marched"):
        if name in arrays:
            check_range(name, arrays[name], 0, float(np.finfo(np.float32).max))
    if with_theta and (np.abs(arrays["theta"]) > np.float32(np.pi)).any():  # NaN: no direction
        raise ValueError("theta has values outside -π to π")


def _cut(arrays: Arrays, reach: float, rows: Rows) -> Arrays:
    """A chart without the pairs beyond the reach, and without those of other rows."""
    mask = arrays.get("marched", arrays["rho"]) <= reach
    if rows is not None:
        mask &= pairs_of(rows, arrays["row_offsets"])
    within = np.flatnonzero(mask)
    pairs = {name: array[within] for name, array in arrays.items() if name != "row_offsets"}
    return {"row_offsets": np.searchsorted(within, arrays["row_offsets"]), **pairs}


def _compute(mesh: Mesh, reach: float, rays: int, frame: str, with_theta: bool, kind: str) -> Arrays:
    from gcgp.mesh.geodesics.polar import blocks
    from gcgp.mesh.geodesics.rays import first_directions

    first = first_directions(mesh.surface, frame == "curvature")
    parts = blocks(mesh.surface, range(len(mesh.vertices)), reach, rays, with_theta, first)
    counts, neighbors, rho, theta, distances = _concatenated(parts)
    arrays = {"row_offsets": offsets_from_counts(counts), "neighbors": neighbors, "rho": rho}
    if with_theta:
        arrays["theta"] = theta
    if rays:
        arrays["rays"] = distances
    return arrays | {"marched": rho, **_log_map(mesh, arrays)} if kind == "logmap" else arrays


def _concatenated(blocks: Iterator[Block]) -> list[np.ndarray]:
    """The arrays of all blocks; they grow in place to limit the peak of memory."""
    wholes = [np.array(part) for part in next(blocks)]
    for block in blocks:
        for whole, part in zip(wholes, block, strict=True):
            stop = len(whole)
            whole.resize((stop + len(part), *part.shape[1:]), refcheck=False)
            whole[stop:] = part
    return wholes


def _log_map(mesh: Mesh, marched: Arrays) -> Arrays:
    """ρ and θ by the logarithmic map of potpourri3d; empty if it is not installed or rejects the mesh.

    Its angles are rotated to agree with the marched ones on average over the neighbors of each vertex.
    """
    report = mesh.report()
    if report.components > 1 or report.isolated_vertices or report.degenerate_faces:
        return {}
    try:
        import potpourri3d

        solver = potpourri3d.MeshVectorHeatSolver(mesh.vertices, mesh.distinct_faces.astype(np.int32))
    except (ImportError, RuntimeError, ValueError):
        return {}
    tables = mesh.surface.tables
    rho, theta = marched["rho"].copy(), marched["theta"].copy()
    for v in range(len(mesh.vertices)):
        row = slice(marched["row_offsets"][v], marched["row_offsets"][v + 1])
        neighbors = marched["neighbors"][row]
        try:
            plane = np.asarray(solver.compute_log_map(v, strategy="AffineLocal"))[neighbors]
        except RuntimeError:  # its equations overflow, for example if edges have very different lengths
            return {}
        if not np.isfinite(plane).all():
            continue
        angle = np.arctan2(plane[:, 1], plane[:, 0])
        ring = tables.corner_ends[slice(*tables.corner_offsets[v : v + 2])]
        turn = (theta[row] - angle)[np.isin(neighbors, ring)]
        angle += np.angle(np.exp(1j * turn[np.isfinite(turn)]).sum())
        rho[row] = np.linalg.norm(plane, axis=1)
        theta[row] = np.remainder(angle + np.pi, 2 * np.pi) - np.pi
        center = row.start + np.flatnonzero(neighbors == v)
        rho[center], theta[center] = 0.0, np.nan
    return {"rho": rho, "theta": theta}
