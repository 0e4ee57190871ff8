"""Plots of learned weightings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.pipeline import Pipeline
from torch import Tensor

from gcgp.plot.signals import LINE_COLOR, save_figure
from gcgp.weighting import Weighting

CONTOUR_POINTS_PER_SIDE = 241


def plot_learning(model: Any, path: str | Path | None = None) -> Figure:
    """Plot the bins of each scale before and after learning, and the objective of each iteration.

    A bin is drawn as the contour at half of its largest weight, on a plane with the vertex at the center.

    Args:
        model: An estimator that was fitted with `learn`, or a `Pipeline` that ends in one.
        path: A file to write, in the format of its ending.
    """
    estimator = model[-1] if isinstance(model, Pipeline) else model
    if not hasattr(estimator, "start_weightings_"):
        raise ValueError("the model has learned no parameters: fit it with learn=True or learn=[names]")
    learned = estimator.weightings_
    figure = Figure(figsize=(10.5, 3.5 * len(learned)), layout="constrained")
    axes = figure.subplots(len(learned), 3, squeeze=False)
    for row, before, after in zip(axes, estimator.start_weightings_, learned, strict=True):
        reach = max(before.reach, after.reach)
        for panel, name, weighting in ((row[0], "before learning", before), (row[1], "learned", after)):
            draw_bins(panel, weighting, reach)
            panel.set_title(name, loc="left")
    for unused in axes[1:, 2]:
        unused.set_visible(False)
    objective = axes[0, 2]
    for stage in dict.fromkeys(step.stage for step in estimator.history_):
        steps = [step for step in estimator.history_ if step.stage == stage]
        objective.plot([s.iteration for s in steps], [s.value for s in steps], marker=".", label=stage)
    objective.set(xlabel="iteration", ylabel="objective, nats per signal")
    objective.legend(frameon=False)
    objective.spines[["top", "right"]].set_visible(False)
    return save_figure(figure, path)


def draw_bins(axes: Axes, weighting: Weighting, reach: float) -> None:
    """Draw each bin of a weighting on a plane, as the contour at half of its largest weight."""
    line = np.linspace(-reach, reach, CONTOUR_POINTS_PER_SIDE)
    x, y = np.meshgrid(line, line)
    with torch.no_grad():
        weights = weighting(*plane_coordinates(weighting, x.ravel(), y.ravel())).numpy()
    totals = np.maximum(weights.sum(axis=0), 1e-300)
    radii = (weights * np.hypot(x, y).reshape(-1, 1)).sum(axis=0) / totals
    colors = colormaps["viridis"](radii / max(radii.max(), 1e-12) * 0.85)
    for weight, color in zip(weights.T, colors, strict=True):
        if weight.max() > 0:
            axes.contour(x, y, weight.reshape(x.shape) / weight.max(), levels=[0.5], colors=[color])
    axes.plot(0, 0, "+", color=LINE_COLOR)
    axes.set_aspect("equal")
    axes.spines[["top", "right"]].set_visible(False)


def plane_coordinates(
    weighting: Weighting, x: Float[np.ndarray, "n"], y: Float[np.ndarray, "n"]
) -> list[Float[Tensor, "n ..."]]:
    """The chart coordinates that a weighting uses, for points of a plane with the vertex at the origin."""
    rho, theta = np.hypot(x, y), np.arctan2(y, x)

    def coordinate(name: str) -> np.ndarray:
        if name.startswith("rays:"):
            count = int(name.split(":")[1])
            angles = theta[:, None] - 2 * np.pi * np.arange(count) / count
            return np.where(np.cos(angles) > 0, rho[:, None] * np.abs(np.sin(angles)), rho[:, None])
        known = {"rho": rho, "theta": theta, "offset": np.stack([x, y], axis=1)}
        if name not in known:
            raise ValueError(f"the coordinate {name!r} of {weighting!r} is not defined on a plane")
        return known[name]

    dtype = next((p.dtype for p in weighting.parameters()), torch.float64)
    return [torch.as_tensor(coordinate(name), dtype=dtype) for name in weighting.coordinates]
