"""Drawing of images and of graphs in the plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from gcgp.domain import Signals

DOTS_PER_INCH = 110
LINE_COLOR = "#22313f"
EDGE_COLOR = "#c9d1d9"


def save_figure(figure: Figure, path: str | Path | None) -> Figure:
    """Write a figure to a file, if one is given, and return it."""
    if path is not None:
        figure.savefig(path, dpi=DOTS_PER_INCH)
    return figure


def draw_signal(
    axes: Axes, signal: Signals, shade: Float[np.ndarray, "V"], colors: str, *, symmetric: bool = False
) -> None:
    """Draw one signal with its vertices colored by `shade`: an image, or a graph at its coordinates."""
    domain = signal.domains
    top = max(float(np.abs(shade).max()), 1e-12)
    bottom = -top if symmetric else min(0.0, float(shade.min()))
    limits: dict[str, Any] = {"cmap": colors, "vmin": bottom, "vmax": top}
    shape, positions = domain.vertex_shape(0), domain.positions
    if len(shape) == 2:
        axes.imshow(shade.reshape(shape), **limits)
    elif positions is None or positions.shape[1] != 2:
        raise ValueError(
            f"X: {type(domain).__name__.lower()} without two-dimensional coordinates cannot be plotted "
            "(plot_mesh_evidence plots meshes)"
        )
    else:
        edges = domain.edge_pairs()
        if edges is not None:
            lines = LineCollection(positions[edges], colors=EDGE_COLOR, linewidths=0.6, zorder=1)
            axes.add_collection(lines)
        style: dict[str, Any] = {"s": 26, "edgecolors": LINE_COLOR, "linewidths": 0.3, "zorder": 2}
        axes.scatter(positions[:, 0], positions[:, 1], c=shade, **style, **limits)
        axes.invert_yaxis()
        axes.set_aspect("equal")
    hide_frame(axes)


def hide_frame(axes: Axes) -> None:
    """Remove ticks and frame."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
