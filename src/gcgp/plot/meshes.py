"""Pictures of meshes and of the evidence on their surfaces, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from scipy.spatial.transform import Rotation

from gcgp.estimators.base import VertexEvidence
from gcgp.mesh import Mesh
from gcgp.plot.signals import INK, against_the_rest, draw_probabilities, written

CLAY = ListedColormap(["#c9d1d9"])

FRONT = (20.0, 10.0)
"""Azimuth and elevation of the viewer in degrees: y is up, and at 0 the z axis points to the viewer."""

LIGHT = np.array([-0.35, 0.55, 0.76])
"""Direction to the lamp: over the viewer's left shoulder, of length 1."""

DARKEST = 0.45
"""What is left of a color where no light falls."""

POLYGONS = 20_000
"""Faces are divided while there are no more than these: smooth shades on a coarse mesh."""


def draw_mesh_evidence(
    meshes: Sequence[Mesh],
    probabilities: Float[np.ndarray, "N C"],
    evidence: VertexEvidence,
    classes: Sequence[Any],
    truth: Sequence[Any],
    path: str | Path | None = None,
) -> Figure:
    """A picture with a row for each mesh: the mesh, its probabilities, and the evidence of each vertex.

    The evidence shown is that for the two most probable classes, each over the mean of the others: red
    speaks for the class, blue against it. `path` is a file to write it to, by its ending a PNG or an SVG.
    """
    if len(evidence) != len(meshes):
        raise ValueError(f"{len(meshes)} meshes but evidence for {len(evidence)}")
    rows = len(meshes)
    figure = Figure(figsize=(10.5, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, 4, squeeze=False, width_ratios=[1, 1.25, 1, 1])
    for n, mesh in enumerate(meshes):
        mean, _ = evidence[n]
        if len(mean) != len(mesh.vertices):
            raise ValueError(f"mesh {n} has {len(mesh.vertices)} vertices but evidence for {len(mean)}")
        shown, chart, *surfaces = axes[n]
        draw_mesh(shown, mesh, np.zeros(len(mean)), CLAY)
        shown.set_title(f"true class {truth[n]}", loc="left")
        draw_probabilities(chart, probabilities[n], classes, truth[n])
        ranked = np.argsort(probabilities[n])[::-1]
        for surface, column in zip(surfaces, ranked, strict=False):
            draw_mesh(surface, mesh, against_the_rest(mean, int(column)), "RdBu_r", symmetric=True)
            surface.set_title(f"evidence for {classes[column]}", loc="left")
    figure.supxlabel("evidence of each vertex: red speaks for the class, blue against it", fontsize=10)
    return written(figure, path)


def draw_mesh(
    axes: Axes,
    mesh: Mesh,
    shade: Float[np.ndarray, "V"],
    colors: str | Colormap,
    symmetric: bool = False,
    view: tuple[float, float] = FRONT,
    wire: bool = False,
) -> None:
    """One mesh, seen from afar and lit from above, its vertices colored by `shade`.

    `view` is the viewer's azimuth (around the y axis, from z towards x) and elevation, in degrees. The
    strongest 2 % of the shades share the end of the color map, so that no single vertex pales the others.
    `wire` shows the faces, which are else divided for smooth shades.
    """
    if shade.shape != (len(mesh.vertices),):
        raise ValueError(f"shade must have shape [{len(mesh.vertices)}], got {list(shade.shape)}")
    azimuth, elevation = view
    turn = Rotation.from_euler("YX", [azimuth, -elevation], degrees=True).as_matrix()
    faces, columns = mesh.faces, np.column_stack([mesh.vertices @ turn, _normals(mesh) @ turn, shade])
    while len(faces) and 4 * len(faces) <= POLYGONS and not wire:
        faces, columns = _divided(faces, columns)
    corners = columns[faces]
    corners = corners[np.argsort(corners[:, :, 2].mean(axis=1))]
    normals, shades = corners[:, :, 3:6].mean(axis=1), corners[:, :, 6].mean(axis=1)

    top = max(float(np.quantile(np.abs(shade), 0.98)), 1e-12)
    bottom = -top if symmetric else min(0.0, float(np.quantile(shade, 0.02)))
    paint = matplotlib.colormaps.get_cmap(colors)((shades - bottom) / (top - bottom))
    # Faces may be turned either way: the side that is seen is lit.
    normals *= np.where(normals[:, 2:] < 0, -1, 1)
    lengths = np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    paint[:, :3] *= (DARKEST + (1 - DARKEST) * np.clip(normals @ LIGHT / lengths, 0, 1))[:, None]
    lines: dict[str, Any] = {"edgecolors": INK if wire else "face", "linewidths": 0.2}
    # As pixels even in an SVG, which would else hold each of these faces.
    axes.add_collection(PolyCollection(corners[:, :, :2], facecolors=paint, rasterized=True, **lines))
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_axis_off()


def _normals(mesh: Mesh) -> Float[np.ndarray, "V 3"]:
    """Of the vertices: the sum of those of their faces, weighted by area."""
    faces = mesh.distinct_faces
    a, b, c = (mesh.vertices[faces[:, i]] for i in range(3))
    normals = np.repeat(np.cross(b - a, c - a), 3, axis=0)
    sums = [np.bincount(faces.ravel(), axis, minlength=len(mesh.vertices)) for axis in normals.T]
    lengths = np.linalg.norm(sums, axis=0)
    return np.column_stack(sums) / np.where(lengths > 0, lengths, 1)[:, None]


def _divided(
    faces: Int[np.ndarray, "F 3"], columns: Float[np.ndarray, "V K"]
) -> tuple[Int[np.ndarray, "4*F 3"], Float[np.ndarray, "W K"]]:
    """Each face cut into four at the middles of its edges, the columns interpolated."""
    pairs = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    _, first, edge = np.unique(pairs @ [len(columns), 1], return_index=True, return_inverse=True)
    middles = columns[pairs[first]].mean(axis=1)
    a, b, c = faces.T
    ab, bc, ca = (len(columns) + edge.reshape(-1, 3)).T
    quarters = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    return np.concatenate([np.column_stack(q) for q in quarters]), np.concatenate([columns, middles])
