"""Plots of signals with their predictions and the evidence of each vertex."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gcgp.domain import Signals, as_signals
from gcgp.estimators.explain import last_step
from gcgp.plot.meshes import MESH_COLOR, draw_mesh
from gcgp.plot.signals import draw_signal, save_figure

PANEL_INCHES = 2.5
CONTRIBUTION_COLORS = "RdBu_r"

Draw = Callable[[Axes, int, Float[np.ndarray, "V"] | None], None]
"""Draws a signal, given by its index: its values (None), or the contributions of its vertices."""


def plot_evidence(model: Any, X: Any, y: Any = None, path: str | Path | None = None) -> Figure:
    """Plot the evidence of each vertex of images, or of graphs with two-dimensional coordinates.

    A row of a classifier shows the signal, its class probabilities, and the evidence for the two most
    probable classes, each minus the mean evidence for the other classes. A row of a regressor shows the
    signal and its evidence. Red vertices support the class (or increase the prediction), blue ones oppose it.

    Args:
        model: A fitted estimator, or a `Pipeline` that ends in one.
        X: What `model.predict` accepts; one row per signal.
        y: True labels or targets, which are then shown.
        path: A file to write, in the format of its ending.
    """
    estimator, transformed = last_step(model, X)
    signals = as_signals(transformed)

    def draw(axes: Axes, n: int, contributions: Float[np.ndarray, "V"] | None) -> None:
        signal = signals[n]
        if contributions is None:
            draw_signal(axes, signal, signal.values.mean(axis=1), "Greys")
        else:
            draw_signal(axes, signal, contributions, CONTRIBUTION_COLORS, symmetric=True)

    return save_figure(_plot_rows(estimator, signals, y, draw, PANEL_INCHES), path)


def plot_mesh_evidence(model: Any, X: Any, y: Any = None, path: str | Path | None = None) -> Figure:
    """Plot the evidence of each vertex of meshes on their surfaces; see `plot_evidence`."""
    estimator, transformed = last_step(model, X)
    signals = as_signals(transformed)
    meshes = getattr(signals.domains, "meshes", None)
    if meshes is None:
        kind = type(signals.domains).__name__.lower()
        raise ValueError(f"X: plot_mesh_evidence needs signals on meshes, got {kind}; use plot_evidence")

    def draw(axes: Axes, n: int, contributions: Float[np.ndarray, "V"] | None) -> None:
        mesh = meshes[signals.domain_of[n]]
        if contributions is None:
            draw_mesh(axes, mesh, np.zeros(len(mesh.vertices)), MESH_COLOR)
        else:
            draw_mesh(axes, mesh, contributions, CONTRIBUTION_COLORS, symmetric=True)

    return save_figure(_plot_rows(estimator, signals, y, draw, 1.3 * PANEL_INCHES), path)


def _plot_rows(estimator: Any, signals: Signals, y: Any, draw: Draw, row_inches: float) -> Figure:
    """One row per signal."""
    truth = None if y is None else list(y)
    if truth is not None and len(truth) != len(signals):
        raise ValueError(f"y: {len(truth)} labels for {len(signals)} signals")
    classes = list(estimator.classes_) if hasattr(estimator, "classes_") else None
    ratios = [1.0, 1.0] if classes is None else [1.0, 1.25, 1.0, 1.0]
    figure = Figure(figsize=(PANEL_INCHES * sum(ratios), row_inches * len(signals)), layout="constrained")
    axes = figure.subplots(len(signals), len(ratios), squeeze=False, width_ratios=ratios)
    evidence = estimator.evidence(signals)
    if classes is None:
        predicted, std = estimator.predict(signals, return_std=True)
    else:
        probabilities = estimator.predict_proba(signals)
    for n in range(len(signals)):
        mean = evidence[n][0].reshape(-1, evidence.mean.shape[1])
        shown, *panels = axes[n]
        draw(shown, n, None)
        if truth is not None:
            shown.set_title(f"true {'target' if classes is None else 'class'} {truth[n]}", loc="left")
        if classes is None:
            draw(panels[0], n, mean[:, 0])
            panels[0].set_title(f"predicted {predicted[n]:.4g} ± {std[n]:.2g}", loc="left")
            continue
        _draw_probabilities(panels[0], probabilities[n], classes, None if truth is None else truth[n])
        most_probable = np.argsort(probabilities[n])[::-1]
        for panel, column in zip(panels[1:], most_probable, strict=False):
            draw(panel, n, _contrast(mean, int(column)))
            panel.set_title(f"evidence for {classes[column]}", loc="left")
    meaning = "increases, blue decreases it" if classes is None else "supports, blue opposes the class"
    figure.supxlabel(f"contribution of each vertex to the prediction: red {meaning}", fontsize=10)
    return figure


def _contrast(mean: Float[np.ndarray, "V C"], column: int) -> Float[np.ndarray, "V"]:
    """Evidence for one class minus the mean evidence for the other classes."""
    return mean[:, column] - np.delete(mean, column, axis=1).mean(axis=1)


def _draw_probabilities(
    axes: Axes, probabilities: Float[np.ndarray, "C"], classes: Sequence[Any], truth: Any
) -> None:
    """Bars, with the true class in a darker color."""
    colors = ["#2e86ab" if label == truth else "#a3bccc" for label in classes]
    axes.bar(range(len(classes)), probabilities, color=colors)
    axes.set_xticks(range(len(classes)), [str(label) for label in classes])
    axes.set_ylim(0, 1)
    axes.set_title(f"{classes[int(probabilities.argmax())]} with {probabilities.max():.0%}", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
