"""The figures of the paper and of results, each as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.pipeline import Pipeline, make_pipeline

from experiments.data import Split, digits
from experiments.demo import most_and_least_confident
from experiments.models import PAPER_POLAR, SIGNAL_ONLY
from experiments.reporting import Line, lines, read_results
from experiments.runs import Settings, print_progress
from experiments.tables import MESH_SIZES
from gcgp import (
    GCGPClassifier,
    GeometryVectors,
    Polar,
    Radial,
    Signals,
    Weighting,
    articulated_bodies,
    decimate,
    plot_evidence,
    plot_learning,
    plot_mesh_evidence,
)
from gcgp._runtime.atomic import atomic_write
from gcgp.datasets.bodies import Bodies
from gcgp.patches import Convolution
from gcgp.plot.learning import draw_bins, plane_coordinates
from gcgp.plot.meshes import MESH_COLOR, draw_mesh
from gcgp.plot.signals import DOTS_PER_INCH, LINE_COLOR, draw_signal, hide_frame
from gcgp.weighting.gaussian_bins import angular_weights

GRID_PIXELS = 29
"""Side of the grids of weights; a pixel is a unit of length."""
DIGITS_PER_CLASS = 100
"""Training digits of the models that are plotted."""
N_INDUCING = 300
PERSONS, POSES, BODY_VERTICES = 6, 5, 500
FULL_VERTICES = 6890
"""Vertices of a body before decimation, as in FAUST."""
HIGHLIGHT = "#c0392b"


class MissingResults(Exception):
    """The results that a figure shows are not available."""


def weightings(settings: Settings, results: Path) -> Figure:
    """The weights of neighbors on a grid of pixels: radial bins, angular bins, and their products."""
    radial, polar = Radial([1.0, 4.0, 8.0], 1.5), Polar([1.0, 4.0, 8.0], 8, 1.5)
    line = np.arange(GRID_PIXELS) - GRID_PIXELS // 2
    x, y = (part.ravel().astype(float) for part in np.meshgrid(line, line))
    with torch.no_grad():
        angular = angular_weights(
            torch.from_numpy(np.arctan2(y, x)), polar.angles.double(), polar.angular_width.double()
        )
        rows = [_on_plane(radial, x, y), angular.numpy(), *np.split(_on_plane(polar, x, y), 3, axis=1)]
    names = ["radial", "angular", *(f"polar, ρ = {radius:g}" for radius in polar.radii.tolist())]
    figure = Figure(figsize=(10.5, 7), layout="constrained")
    axes = figure.subplots(len(rows), rows[1].shape[1], squeeze=False)
    for panels, name, weights in zip(axes, names, rows, strict=True):
        for column, panel in enumerate(panels):
            hide_frame(panel)
            if column < weights.shape[1]:
                image = weights[:, column].reshape(GRID_PIXELS, GRID_PIXELS)
                panel.imshow(image, cmap="viridis", vmin=0, vmax=1)
        panels[0].set_title(name, loc="left", fontsize=9)
    return figure


def _on_plane(weighting: Weighting, x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "n bins"]:
    weights: np.ndarray = weighting(*plane_coordinates(weighting, x, y)).numpy()
    return weights


def construction(settings: Settings, results: Path) -> Figure:
    """The construction of Z: the graph of a digit, the bins at a vertex, its patch, and all patches."""
    weighting = Polar([2.0, 5.0, 8.0], 8, 1.2)
    signal = _digit_graphs(settings).test[0]
    positions, values = signal.domains.positions, signal.values[:, 0]
    distances = np.linalg.norm(positions - positions[values > 0.5].mean(axis=0), axis=1)
    vertex = int(np.argmin(distances))
    patches = Convolution(weighting).patches(signal).values.detach().numpy()
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    signal_panel, bins_panel, patch_panel, all_panel = figure.subplots(1, 4, width_ratios=[1, 1, 0.8, 1])
    draw_signal(signal_panel, signal, values, "Greys")
    signal_panel.plot(*positions[vertex], "o", mfc="none", mec=HIGHLIGHT, ms=9, mew=1.8)
    signal_panel.set_title("a signal ψ and a vertex v", loc="left")
    centered = Signals.on_graph(
        signal.values.T, signal.domains.edge_pairs(), coordinates=positions - positions[vertex]
    )
    draw_signal(bins_panel, centered[0], values, "Greys")
    draw_bins(bins_panel, weighting, weighting.reach)
    bins_panel.set_title("the bins at v", loc="left")
    patch_panel.imshow(patches[vertex].reshape(len(weighting.radii), -1), cmap="Greys", vmin=0, vmax=1)
    patch_panel.set_title("z(v): mean of ψ in each", loc="left")
    patch_panel.set(xlabel="direction", ylabel="radius", xticks=[], yticks=[])
    all_panel.imshow(patches, cmap="Greys", aspect="auto", vmin=0, vmax=1, interpolation="none")
    all_panel.axhline(vertex, color=HIGHLIGHT, lw=1)
    all_panel.set(xlabel="bin", ylabel="vertex", xticks=[], yticks=[])
    all_panel.set_title("Z: the patches of all vertices", loc="left")
    return figure


def resolutions(settings: Settings, results: Path) -> Figure:
    """A generated body at each of the paper's numbers of vertices; FAUST may not be redistributed."""
    (body,) = articulated_bodies(1, 1, FULL_VERTICES).meshes
    figure = Figure(figsize=(10.5, 4.5), layout="constrained")
    for axes, count in zip(figure.subplots(1, len(MESH_SIZES)), MESH_SIZES, strict=True):
        mesh = decimate(body, count)
        draw_mesh(axes, mesh, np.zeros(len(mesh.vertices)), MESH_COLOR, wire=True)
        axes.set_title(f"{len(mesh.vertices)} vertices", loc="left")
    return figure


def learned_weighting(settings: Settings, results: Path) -> Figure:
    """The bins at which the paper starts, and the bins learned from superpixel graphs."""
    return plot_learning(_fit_digits(settings))


def digit_evidence(settings: Settings, results: Path) -> Figure:
    """Evidence of superpixels, for digits with the largest and with the least confidence."""
    model, split = _fit_digits(settings), _digit_graphs(settings)
    rows = most_and_least_confident(model.predict_proba(split.test), 4)
    return plot_evidence(model, split.test[rows], split.truth[rows])


def body_evidence(settings: Settings, results: Path) -> Figure:
    """Evidence on the surfaces of bodies, for the identity of the person."""
    model, bodies = _fit_bodies(settings)
    rows = np.flatnonzero(bodies.poses == POSES - 1)[:3]
    return plot_mesh_evidence(model, [bodies.meshes[n] for n in rows], bodies.persons[rows])


def reliability(settings: Settings, results: Path) -> Figure:
    """Accuracy against confidence, from the results of `uncertainty`."""
    available = _result_lines(results, "uncertainty")
    figure = Figure(figsize=(3.5 * len(available), 3.6), layout="constrained")
    for axes, line in zip(figure.subplots(1, len(available), squeeze=False)[0], available, strict=True):
        draw_reliability(axes, np.sum([run["calibration"] for run in line.runs], axis=0))
        axes.set_title(f"{line.title}: ECE {line.mean('ece'):.3f}", loc="left", fontsize=10)
    return figure


def draw_reliability(axes: Axes, bins: Float[np.ndarray, "3 bins"]) -> None:
    """Accuracy against confidence; larger points represent more signals."""
    count, confidence, correct = bins[:, bins[0] > 0]
    axes.plot([0, 1], [0, 1], color="#a3bccc", lw=1)
    sizes = 15 + 140 * np.sqrt(count / count.sum())
    axes.scatter(confidence / count, correct / count, s=sizes, color="#2e86ab", alpha=0.8)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.03), ylim=(0, 1.03), aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)


def training_size(settings: Settings, results: Path) -> Figure:
    """Error against the number of training digits, from the results of `ablation`."""
    available = [(int(line.condition.split()[0]), line) for line in _result_lines(results, "ablation")]
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes = figure.subplots()
    for title in dict.fromkeys(line.title for _, line in available):
        series = [(size, line) for size, line in available if line.title == title]
        sizes = [size for size, _ in series]
        errors, intervals = zip(*((line.mean("error"), line.interval) for _, line in series), strict=True)
        axes.errorbar(sizes, errors, intervals, marker="o", capsize=3, label=title)
        paper = [(size, line.paper) for size, line in series if line.paper is not None]
        if paper:
            axes.plot(*zip(*paper, strict=True), "x--", color=LINE_COLOR, label=f"{title}, the paper")
    axes.set(xscale="log", xlabel="training digits per class", ylabel="error")
    ticks = sorted({size for size, _ in available})
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


FIGURES: dict[str, Callable[[Settings, Path], Figure]] = {
    "weightings": weightings,
    "construction": construction,
    "resolutions": resolutions,
    "learned-weighting": learned_weighting,
    "evidence-digits": digit_evidence,
    "evidence-bodies": body_evidence,
    "reliability": reliability,
    "training-size": training_size,
}
"""Functions from settings and the folder of results to a figure, by name."""


def draw_figures(chosen: Sequence[str], settings: Settings, results: Path) -> list[Path]:
    """Draw the chosen figures, or all, into the subfolder `figures` of the folder of results."""
    for name in chosen:
        if name not in FIGURES:
            raise ValueError(f"figure {name!r} is unknown; expected one of {', '.join(FIGURES)}")
    folder = results / "figures"
    folder.mkdir(exist_ok=True)
    paths = []
    for name in chosen or FIGURES:
        print_progress(f"{name} …")
        try:
            figure = FIGURES[name](settings, results)
        except MissingResults as missing:
            print_progress(f"  skipped: {missing}")
            continue
        for ending in (".png", ".svg"):
            with atomic_write(folder / (name + ending)) as part:
                figure.savefig(part, dpi=DOTS_PER_INCH, format=ending[1:])
        paths.append(folder / f"{name}.png")
    return paths


@cache
def _digit_graphs(settings: Settings) -> Split:
    split = digits(settings, min(settings.per_class or DIGITS_PER_CLASS, DIGITS_PER_CLASS), seed=0)
    return Split(split.train, split.labels, split.test[:200], split.truth[:200]).as_graphs(seed=0)


@cache
def _fit_digits(settings: Settings) -> GCGPClassifier:
    split = _digit_graphs(settings)
    model = GCGPClassifier(
        Polar(*PAPER_POLAR),
        patch=SIGNAL_ONLY,
        n_inducing=settings.inducing or N_INDUCING,
        search=None,
        learn=True,
    )
    return model.fit(split.train, split.labels)


def _fit_bodies(settings: Settings) -> tuple[Pipeline, Bodies]:
    bodies = articulated_bodies(PERSONS, POSES, settings.vertices or BODY_VERTICES)
    rows = np.flatnonzero(bodies.poses < POSES - 1)
    model = make_pipeline(
        GeometryVectors(), GCGPClassifier(n_inducing=settings.inducing or N_INDUCING, search=None)
    )
    return model.fit([bodies.meshes[n] for n in rows], bodies.persons[rows]), bodies


def _result_lines(results: Path, table: str) -> list[Line]:
    available = [line for content in read_results(results).get(table, []) for line in lines(content)]
    if not available:
        raise MissingResults(f"no results of `python -m experiments {table}` in {results}")
    return available
