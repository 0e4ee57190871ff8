"""The chart of one mesh: polar coordinates round each vertex, computed once and kept on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from gcgp._runtime.cache import Part, cached, is_cached
from gcgp._runtime.cache_file import check_layout, check_range
from gcgp._runtime.errors import unknown_option
from gcgp.domain.base import Chart, pairs_of
from gcgp.mesh.geodesics.distances import FRAMES
from gcgp.mesh.mesh import Mesh

if TYPE_CHECKING:
    from gcgp.mesh.geodesics.polar import Block

Arrays = dict[str, np.ndarray]
LARGEST = float(np.finfo(np.float32).max)
KINDS = ("geodesic", "logmap")
STEPS_PER_OCTAVE = 8
"""Reaches for which charts are computed; larger steps would fit more models, and take longer."""
VERSION = 6
"""To be raised when the same mesh and parameters give other numbers than before."""


def mesh_chart(
    mesh: Mesh,
    coordinates: Sequence[str],
    reach: float,
    kind: str = "geodesic",
    rows: Int[np.ndarray, "chosen"] | None = None,
) -> Chart:
    """The chart of one mesh, cut off at `reach` (infinite: the whole mesh, V² pairs).

    Known coordinates: `rho`, the geodesic distance; `theta`, the angle from a principal direction of
    curvature; `rays:J`, the distances `[pairs, J]` from J rays that leave at equal fractions of the total
    angle, the first along that direction (`rays:J:edge`: θ and the first ray along the longest edge).

    `kind="geodesic"` finds ρ by fast marching and carries θ along; `"logmap"` takes both from the logarithmic
    map of potpourri3d, where that is installed and the mesh is a manifold, which takes longer. Which pairs
    there are is decided by fast marching in either case. Vertices that are not among `rows` see nothing.
    """
    arrays = cached(*_recipe(mesh, coordinates, reach, kind))
    if rounded_up(mesh, float(reach)) > reach or rows is not None:
        arrays = _cut(arrays, float(reach), rows)
    columns = {name: arrays[name.partition(":")[0]] for name in coordinates}
    return Chart(arrays["row_offsets"], arrays["neighbors"], columns)


def chart_in_cache(mesh: Mesh, coordinates: Sequence[str], reach: float, kind: str = "geodesic") -> None:
    """See to it that the cache has what `mesh_chart` will ask for."""
    parts, compute, check = _recipe(mesh, coordinates, reach, kind)
    if not is_cached(parts):
        cached(parts, compute, check)


def _recipe(
    mesh: Mesh, coordinates: Sequence[str], reach: float, kind: str
) -> tuple[tuple[Part, ...], Callable[[], Arrays], Callable[[Arrays], None]]:
    """What the arrays of a chart depend on, how they are computed, and how they are checked."""
    if not reach >= 0:
        raise ValueError(f"chart of a mesh: reach={reach!r} must not be negative")
    if kind not in KINDS:
        raise unknown_option("chart of a mesh: kind", kind, ("auto", *KINDS))
    rays, frame = 0, FRAMES[0]
    for name in coordinates:
        if name.startswith("rays:"):
            if rays:
                raise ValueError(f"coordinates of a mesh: {list(coordinates)!r} name rays twice")
            rays, frame = _rays(name)
        elif name not in ("rho", "theta"):
            raise unknown_option("coordinate of a mesh", name, ("rho", "theta", "rays:J"))
    turning = "theta" in coordinates or kind == "logmap"
    far = rounded_up(mesh, float(reach))
    parts = (VERSION, mesh.vertices, mesh.faces, far, rays, frame, turning, kind)
    return (
        parts,
        lambda: _compute(mesh, far, rays, frame, turning, kind),
        lambda arrays: _check(arrays, len(mesh.vertices), rays, turning, kind),
    )


def _check(arrays: Arrays, vertices: int, rays: int, turning: bool, kind: str) -> None:
    """Raise ValueError unless the arrays can be those of a chart: compiled loops trust its indices."""
    pairs = np.size(arrays.get("neighbors", ()))
    layout: dict[str, tuple[type, tuple[int, ...]]] = {
        "row_offsets": (np.int64, (vertices + 1,)),
        "neighbors": (np.int32, (pairs,)),
        "rho": (np.float32, (pairs,)),
    }
    if turning:
        layout["theta"] = (np.float32, (pairs,))
    if rays:
        layout["rays"] = (np.float32, (pairs, rays))
    if kind == "logmap":
        layout["marched"] = (np.float32, (pairs,))
    check_layout(arrays, layout)
    offsets = arrays["row_offsets"]
    if offsets[0] != 0 or offsets[-1] != pairs or (np.diff(offsets) < 0).any():
        raise ValueError(f"row_offsets do not rise from 0 to {pairs}")
    check_range("neighbors", arrays["neighbors"], 0, vertices - 1)
    for name in ("rho", "rays", "marched"):
        if name in arrays:
            check_range(name, arrays[name], 0, LARGEST)
    if turning and (np.abs(arrays["theta"]) > np.float32(np.pi)).any():  # NaN: no direction
        raise ValueError("theta has values outside -π to π")


def rounded_up(mesh: Mesh, reach: float) -> float:
    """The next of a few reaches, so that the cache serves models whose reaches differ a little.

    Those of cross-validation do: a reach follows from the training meshes.
    """
    unit = math.sqrt(mesh.area)
    if not (0 < reach < math.inf and unit > 0):
        return reach
    # A reach that is one of the few up to rounding stays what it is.
    steps = math.ceil(STEPS_PER_OCTAVE * math.log2(reach / unit) - 1e-9)
    return max(reach, unit * 2.0 ** (steps / STEPS_PER_OCTAVE))


def _cut(
    arrays: dict[str, np.ndarray], reach: float, rows: Int[np.ndarray, "chosen"] | None
) -> dict[str, np.ndarray]:
    """A chart without the pairs beyond the reach, and those of other rows."""
    kept = arrays.get("marched", arrays["rho"]) <= reach
    if rows is not None:
        kept &= pairs_of(rows, arrays["row_offsets"])
    within = np.flatnonzero(kept)
    offsets = np.searchsorted(within, arrays["row_offsets"])
    pairs = {name: array[within] for name, array in arrays.items() if name != "row_offsets"}
    return {"row_offsets": offsets, **pairs}


def _rays(name: str) -> tuple[int, str]:
    """The number of rays and the frame, from `rays:J` or `rays:J:frame`."""
    _, count, *rest = name.split(":")
    frame = rest[0] if rest else FRAMES[0]
    if not count.isdigit() or int(count) < 1 or frame not in FRAMES or len(rest) > 1:
        raise ValueError(f"coordinate of a mesh {name!r}: expected 'rays:J' or 'rays:J:edge', J ≥ 1")
    return int(count), frame


def _compute(
    mesh: Mesh, reach: float, rays: int, frame: str, turning: bool, kind: str
) -> dict[str, np.ndarray]:
    from gcgp.mesh.geodesics.polar import blocks
    from gcgp.mesh.geodesics.rays import first_directions

    surface = mesh.surface
    first = first_directions(surface, frame == "curvature")
    parts = blocks(surface, range(len(mesh.vertices)), reach, rays, turning, first)
    counts, neighbors, rho, theta, distances = _side_by_side(parts)
    arrays = {
        "row_offsets": np.concatenate([[0], np.cumsum(counts)]),
        "neighbors": neighbors,
        "rho": rho,
    }
    if turning:
        arrays["theta"] = theta
    if rays:
        arrays["rays"] = distances
    if kind == "logmap":
        arrays |= {"marched": rho, **_logarithmic(mesh, arrays)}
    return arrays


def _side_by_side(blocks: Iterator[Block]) -> list[np.ndarray]:
    """The arrays of all blocks, one after the other; they grow in place, as together they may be large."""
    wholes = [np.array(part) for part in next(blocks)]
    for block in blocks:
        for whole, part in zip(wholes, block, strict=True):
            stop = len(whole)
            whole.resize((stop + len(part), *part.shape[1:]), refcheck=False)
            whole[stop:] = part
    return wholes


def _logarithmic(mesh: Mesh, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ρ and θ by the logarithmic map of potpourri3d; nothing where it is missing or refuses the mesh.

    Its angles are turned so that, on average over the neighbors of a vertex, they are those of `own`.
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
    rho, theta = own["rho"].copy(), own["theta"].copy()
    for v in range(len(mesh.vertices)):
        row = slice(own["row_offsets"][v], own["row_offsets"][v + 1])
        neighbors = own["neighbors"][row]
        try:
            plane = np.asarray(solver.compute_log_map(v, strategy="AffineLocal"))[neighbors]
        except RuntimeError:  # its equations overflow, as with sides of very different lengths
            return {}
        if not np.isfinite(plane).all():
            continue
        angle = np.arctan2(plane[:, 1], plane[:, 0])
        ring = tables.corner_ends[slice(*tables.corner_offsets[v : v + 2])]
        turn = (theta[row] - angle)[np.isin(neighbors, ring)]
        angle += np.angle(np.exp(1j * turn[np.isfinite(turn)]).sum())
        rho[row] = np.linalg.norm(plane, axis=1)
        theta[row] = np.remainder(angle + np.pi, 2 * np.pi) - np.pi
        itself = row.start + np.flatnonzero(neighbors == v)
        rho[itself], theta[itself] = 0.0, np.nan
    return {"rho": rho, "theta": theta}
