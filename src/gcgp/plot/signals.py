"""Pictures of signals, probabilities and evidence, drawn without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from gcgp.domain import Graphs, Grids, Signals
from gcgp.estimators.base import ConvolutionalGP, VertexEvidence
from gcgp.weighting import Weighting

DOTS = 110
"""An inch, in a PNG."""
BIN_PIXELS = 241
INK = "#22313f"
FAINT = "#c9d1d9"


def draw_evidence(
    signals: Signals,
    probabilities: Float[np.ndarray, "N C"],
    evidence: VertexEvidence,
    classes: Sequence[Any],
    truth: Sequence[Any],
    path: str | Path | None = None,
) -> Figure:
    """A picture with a row for each signal: the signal, its probabilities, and the evidence of each vertex.

    The evidence shown is that for the two most probable classes, each over the mean of the others: red
    speaks for the class, blue against it. `path` is a file to write it to, by its ending a PNG or an SVG.
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
    return written(figure, path)


def written(figure: Figure, path: str | Path | None) -> Figure:
    """The figure, written to a file if there is one to write to."""
    if path is not None:
        figure.savefig(path, dpi=DOTS)
    return figure


def draw_learning(model: ConvolutionalGP, path: str | Path | None = None) -> Figure:
    """A picture of what was learned: for each scale its bins before and after, and how the objective rose.

    A bin is drawn by the line along which its weight is half of its largest, on a plane with the vertex in
    the middle. The model must have been fitted with `learn`. `path` as in `draw_evidence`.
    """
    if not hasattr(model, "start_weightings_"):
        raise ValueError("the model has learned nothing: fit it with learn=True, or with names to learn")
    found = [term.convolution.weighting for term in model.features_.terms]
    rows = len(found)
    figure = Figure(figsize=(10.5, 3.5 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False)
    for row, (before, after) in enumerate(zip(model.start_weightings_, found, strict=True)):
        reach = max(before.reach, after.reach)
        for column, (name, weighting) in enumerate((("at the start", before), ("learned", after))):
            draw_bins(axes[row, column], weighting, reach)
            axes[row, column].set_title(name, loc="left")
        axes[row, 2].set_visible(row == 0)
    chart = axes[0, 2]
    for stage in dict.fromkeys(step.stage for step in model.history_):
        steps = [step for step in model.history_ if step.stage == stage]
        chart.plot(
            [step.iteration for step in steps], [step.value for step in steps], marker=".", label=stage
        )
    chart.set_xlabel("iteration")
    chart.set_ylabel("objective, nats a signal")
    chart.legend(frameon=False)
    chart.spines[["top", "right"]].set_visible(False)
    return written(figure, path)


def draw_bins(axes: Axes, weighting: Weighting, reach: float) -> None:
    """The bins of a weighting on a plane, each by the line where its weight is half of its largest."""
    line = np.linspace(-reach, reach, BIN_PIXELS)
    x, y = np.meshgrid(line, line)
    with torch.no_grad():
        weights = weighting(*plane_coordinates(weighting, x.ravel(), y.ravel())).numpy()
    top = weights.max(axis=0)
    place = (weights * np.hypot(x, y).reshape(-1, 1)).sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
    colors = colormaps["viridis"](place / max(place.max(), 1e-12) * 0.85)
    for weight, largest, color in zip(weights.T, top, colors, strict=True):
        if largest > 0:
            axes.contour(x, y, weight.reshape(x.shape) / largest, levels=[0.5], colors=[color])
    axes.plot(0, 0, "+", color=INK)
    axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)


def plane_coordinates(
    weighting: Weighting, x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]
) -> list[Float[Tensor, "n ..."]]:
    """What a weighting reads of points (x, y) of a plane whose vertex is in the middle."""
    rho, theta = np.hypot(x, y), np.arctan2(y, x)

    def of(name: str) -> np.ndarray:
        if name.startswith("rays:"):
            count = int(name.split(":")[1])
            turn = theta[:, None] - 2 * np.pi * np.arange(count) / count
            return np.where(np.cos(turn) > 0, rho[:, None] * np.abs(np.sin(turn)), rho[:, None])
        known = {"rho": rho, "theta": theta, "offset": np.stack([x, y], axis=1)}
        if name not in known:
            raise ValueError(f"the coordinate {name!r} of {weighting!r} has no place on a plane")
        return known[name]

    dtype = next((p.dtype for p in weighting.parameters()), torch.float64)
    return [torch.as_tensor(of(name), dtype=dtype) for name in weighting.coordinates]


def against_the_rest(mean: Float[np.ndarray, "V C"], column: int) -> Float[np.ndarray, "V"]:
    """Evidence for one class over the mean of that for the others."""
    rest = np.delete(mean, column, axis=1).mean(axis=1)
    return mean[:, column] - rest


def draw_probabilities(axes: Axes, probabilities: np.ndarray, classes: Sequence[Any], truth: Any) -> None:
    """Bars, the true class in a darker color."""
    colors = ["#2e86ab" if label == truth else "#a3bccc" for label in classes]
    axes.bar(range(len(classes)), probabilities, color=colors)
    axes.set_xticks(range(len(classes)), [str(label) for label in classes])
    axes.set_ylim(0, 1)
    axes.set_title(f"{classes[int(probabilities.argmax())]} with {probabilities.max():.0%}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def draw_signal(
    axes: Axes,
    signal: Signals,
    shade: Float[np.ndarray, "V"],
    colors: str,
    *,
    symmetric: bool = False,
) -> None:
    """One signal, its vertices colored by `shade`: an image, or a graph at its coordinates."""
    top = max(float(np.abs(shade).max()), 1e-12)
    limits: dict[str, Any] = {
        "cmap": colors,
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
