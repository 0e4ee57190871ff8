"""Pictures of signals, probabilities and evidence, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from gcgp.domain import Graphs, Grids, Signals
from gcgp.surface.convolutional_gp import VertexEvidence

INK = "#22313f"
FAINT = "#c9d1d9"


def draw_evidence(
    signals: Signals,
    probabilities: Float[np.ndarray, "N C"],
    evidence: VertexEvidence,
    classes: Sequence[Any],
    truth: Sequence[Any],
    path: str | Path,
) -> None:
    """A PNG with a row for each signal: the signal, its probabilities, and the evidence of each vertex.

    The evidence shown is that for the most probable class over the mean of the others: red speaks for
    the class, blue against it.
    """
    rows = len(signals)
    figure = Figure(figsize=(10.5, 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, 4, squeeze=False, width_ratios=[1, 1.25, 1, 1])
    for n, signal in enumerate(signals):
        mean, _ = evidence[n]
        best, second = np.argsort(probabilities[n])[::-1][:2]
        shown, chart, first, against = axes[n]
        draw_signal(shown, signal, signal.values.mean(axis=1), "Greys")
        shown.set_title(f"true class {truth[n]}", loc="left")
        draw_probabilities(chart, probabilities[n], classes, truth[n])
        shares = against_the_rest(mean, int(best))
        draw_signal(first, signal, shares, "RdBu_r", symmetric=True)
        first.set_title(f"evidence for {classes[best]}", loc="left")
        shares = against_the_rest(mean, int(second))
        draw_signal(against, signal, shares, "RdBu_r", symmetric=True)
        against.set_title(f"evidence for {classes[second]}", loc="left")
    figure.supxlabel("evidence of each vertex: red speaks for the class, blue against it", fontsize=10)
    figure.savefig(path, dpi=110)


def against_the_rest(mean: Float[np.ndarray, "V C"], column: int) -> Float[np.ndarray, "V"]:
    """Evidence for one class over the mean of that for the others."""
    rest = np.delete(mean, column, axis=1).mean(axis=1)
    return mean[:, column] - rest


def draw_probabilities(axes: Axes, probabilities: np.ndarray, classes: Sequence[Any], truth: Any) -> None:
    """Bars, the true class in a darker colour."""
    colours = ["#2e86ab" if label == truth else "#a3bccc" for label in classes]
    axes.bar(range(len(classes)), probabilities, color=colours)
    axes.set_xticks(range(len(classes)), [str(label) for label in classes])
    axes.set_ylim(0, 1)
    axes.set_title(f"{classes[int(probabilities.argmax())]} with {probabilities.max():.0%}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def draw_signal(
    axes: Axes,
    signal: Signals,
    shade: Float[np.ndarray, "V"],
    colours: str,
    *,
    symmetric: bool = False,
) -> None:
    """One signal, its vertices coloured by `shade`: an image, or a graph at its coordinates."""
    top = max(float(np.abs(shade).max()), 1e-12)
    limits: dict[str, Any] = {
        "cmap": colours,
        "vmin": -top if symmetric else min(0.0, float(shade.min())),
        "vmax": top,
    }
    if isinstance(signal.domains, Grids):
        axes.imshow(shade.reshape(signal.domains.shapes[0]), **limits)
    else:
        graph = signal.domains
        if not isinstance(graph, Graphs) or graph.coordinates is None or graph.coordinates.shape[1] != 2:
            raise ValueError("a picture of a signal needs an image or a graph with 2-D coordinates")
        place = graph.coordinates
        axes.add_collection(LineCollection(place[graph.edges], colors=FAINT, linewidths=0.6, zorder=1))
        axes.scatter(
            place[:, 0], place[:, 1], c=shade, s=26, edgecolors=INK, linewidths=0.3, zorder=2, **limits
        )
        axes.invert_yaxis()
        axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
