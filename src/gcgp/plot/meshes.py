"""Drawing of meshes, without a display."""

from __future__ import annotations

import matplotlib
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, ListedColormap
from scipy.spatial.transform import Rotation

from gcgp.mesh import Mesh
from gcgp.plot.signals import EDGE_COLOR, LINE_COLOR

MESH_COLOR = ListedColormap([EDGE_COLOR])
VIEW_DEGREES = (20.0, 10.0)
"""Azimuth and elevation of the viewer: y points up, and at azimuth 0 the z axis points to the viewer."""
LIGHT_DIRECTION = np.array([-0.35, 0.55, 0.76])
"""Unit vector to the light, over the viewer's left shoulder."""
AMBIENT_LIGHT = 0.45
"""Share of a color that remains where no light falls."""
MAX_POLYGONS = 20_000
"""Faces are subdivided up to this number, for smooth shades on a coarse mesh."""


def draw_mesh(
    axes: Axes,
    mesh: Mesh,
    shade: Float[np.ndarray, "V"],
    colors: str | Colormap,
    symmetric: bool = False,
    view: tuple[float, float] = VIEW_DEGREES,
    wire: bool = False,
) -> None:
    """Draw a mesh in orthographic projection, lit from above, with its vertices colored by `shade`.

    `view` is the viewer's azimuth (around the y axis, from z towards x) and elevation, in degrees. The
    strongest 2 % of the shades share the end of the color map, so that outliers do not dominate. `wire` draws
    the edges of the faces, which are otherwise subdivided for smooth shades.
    """
    if shade.shape != (len(mesh.vertices),):
        raise ValueError(f"shade must have shape [{len(mesh.vertices)}], got {list(shade.shape)}")
    azimuth, elevation = view
    rotation = Rotation.from_euler("YX", [azimuth, -elevation], degrees=True).as_matrix()
    faces, columns = mesh.faces, np.column_stack([mesh.vertices @ rotation, _normals(mesh) @ rotation, shade])
    while len(faces) and 4 * len(faces) <= MAX_POLYGONS and not wire:
        faces, columns = _subdivide(faces, columns)
    corners = columns[faces]
    corners = corners[np.argsort(corners[:, :, 2].mean(axis=1))]
    normals, shades = corners[:, :, 3:6].mean(axis=1), corners[:, :, 6].mean(axis=1)

    top = max(float(np.quantile(np.abs(shade), 0.98)), 1e-12)
    bottom = -top if symmetric else min(0.0, float(np.quantile(shade, 0.02)))
    paint = matplotlib.colormaps.get_cmap(colors)((shades - bottom) / (top - bottom))
    # The orientation of faces is arbitrary: the visible side is lit.
    normals *= np.where(normals[:, 2:] < 0, -1, 1)
    lengths = np.maximum(np.linalg.norm(normals, axis=1), 1e-12)
    diffuse = np.clip(normals @ LIGHT_DIRECTION / lengths, 0, 1)[:, None]
    paint[:, :3] *= AMBIENT_LIGHT + (1 - AMBIENT_LIGHT) * diffuse
    # Rasterized, because an SVG file would otherwise contain every face.
    polygons = PolyCollection(
        corners[:, :, :2],
        facecolors=paint,
        edgecolors=LINE_COLOR if wire else "face",
        linewidths=0.2,
        rasterized=True,
    )
    axes.add_collection(polygons)
    axes.autoscale_view()
    axes.set_aspect("equal")
    axes.set_axis_off()


def _normals(mesh: Mesh) -> Float[np.ndarray, "V 3"]:
    """Unit normals of the vertices: sums of the normals of their faces, weighted by area."""
    faces = mesh.distinct_faces
    a, b, c = (mesh.vertices[faces[:, i]] for i in range(3))
    normals = np.repeat(np.cross(b - a, c - a), 3, axis=0)
    sums = [np.bincount(faces.ravel(), axis, minlength=len(mesh.vertices)) for axis in normals.T]
    lengths = np.linalg.norm(sums, axis=0)
    return np.column_stack(sums) / np.where(lengths > 0, lengths, 1)[:, None]


def _subdivide(
    faces: Int[np.ndarray, "F 3"], columns: Float[np.ndarray, "V K"]
) -> tuple[Int[np.ndarray, "4*F 3"], Float[np.ndarray, "W K"]]:
    """Each face split into four at the midpoints of its edges, with interpolated columns."""
    pairs = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    _, first, edge = np.unique(pairs @ [len(columns), 1], return_index=True, return_inverse=True)
    midpoints = columns[pairs[first]].mean(axis=1)
    a, b, c = faces.T
    ab, bc, ca = (len(columns) + edge.reshape(-1, 3)).T
    quarters = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    return np.concatenate([np.column_stack(q) for q in quarters]), np.concatenate([columns, midpoints])
