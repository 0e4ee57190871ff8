"""The paper's figures and those of our results, drawn without a display: each as PNG and as SVG."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.pipeline import Pipeline, make_pipeline

from experiments.models import START, STRICT
from experiments.reporting import Line, contents, lines
from experiments.runs import Settings
from experiments.sets import Split, digits
from experiments.tables import VERTICES
from gcgp._runtime.atomic import atomic_write
from gcgp.datasets.bodies import Bodies, articulated_bodies
from gcgp.descriptors.spectral import GeometryVectors
from gcgp.domain import Graphs, Signals
from gcgp.estimators.estimators import GCGPClassifier
from gcgp.mesh.decimation import decimate
from gcgp.patches import Convolution
from gcgp.plot.meshes import CLAY, draw_mesh, draw_mesh_evidence
from gcgp.plot.signals import (
    DOTS,
    INK,
    draw_bins,
    draw_evidence,
    draw_learning,
    draw_signal,
    plane_coordinates,
)
from gcgp.weighting import Polar, Radial, Weighting
from gcgp.weighting.polar import angular_weights

GRID = 29
"""Pixels across, and a pixel is a unit."""
PER_CLASS = 100
"""Digits to learn from, for the pictures that need a model."""
FEW_INDUCING = 300
PERSONS, POSES, BODY_VERTICES = 6, 5, 500
FINEST = 6890
"""Vertices of a body before it is decimated, as in FAUST."""


class Missing(Exception):
    """A figure is drawn from results that are not there."""


def weightings(settings: Settings, results: Path) -> Figure:
    """The weights of neighbors on a grid of pixels: radial bins, angular bins, and their products."""
    radial, polar = Radial([1.0, 4.0, 8.0], 1.5), Polar([1.0, 4.0, 8.0], 8, 1.5)
    line = np.arange(GRID) - GRID // 2
    x, y = (part.ravel().astype(float) for part in np.meshgrid(line, line))
    with torch.no_grad():
        angular = angular_weights(
            torch.from_numpy(np.arctan2(y, x)), polar.angles.double(), polar.angular_width.double()
        )
        maps = [_on_plane(radial, x, y), angular.numpy(), *np.split(_on_plane(polar, x, y), 3, axis=1)]
    names = ["radial", "angular", *(f"polar, ρ = {radius:g}" for radius in polar.radii.tolist())]
    figure = Figure(figsize=(10.5, 7), layout="constrained")
    axes = figure.subplots(len(maps), maps[1].shape[1], squeeze=False)
    for row, (name, weights) in enumerate(zip(names, maps, strict=True)):
        for column, panel in enumerate(axes[row]):
            _bare(panel)
            if column < weights.shape[1]:
                panel.imshow(weights[:, column].reshape(GRID, GRID), cmap="viridis", vmin=0, vmax=1)
        axes[row, 0].set_title(name, loc="left", fontsize=9)
    return figure


def _on_plane(weighting: Weighting, x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "n bins"]:
    weights: np.ndarray = weighting(*plane_coordinates(weighting, x, y)).numpy()
    return weights


def construction(settings: Settings, results: Path) -> Figure:
    """How Z is made: a digit's graph, the bins at one vertex, that vertex's patch, and the patches of all."""
    weighting = Polar([2.0, 5.0, 8.0], 8, 1.2)
    graph = _some_digits(settings).test[0]
    assert isinstance(graph.domains, Graphs)
    assert graph.domains.coordinates is not None
    place = graph.domains.coordinates
    vertex = int(np.argmin(np.linalg.norm(place - place[graph.values[:, 0] > 0.5].mean(axis=0), axis=1)))
    patches = Convolution(weighting).patches(graph).values.detach().numpy()
    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    shown, binned, own, every = figure.subplots(1, 4, width_ratios=[1, 1, 0.8, 1])
    draw_signal(shown, graph, graph.values[:, 0], "Greys")
    shown.set_title("a signal ψ and a vertex v", loc="left")
    moved = Signals.on_graph(
        graph.values.T, graph.domains.edges, coordinates=place - place[vertex]
    )  # v in the middle
    draw_signal(binned, moved[0], graph.values[:, 0], "Greys")
    draw_bins(binned, weighting, weighting.reach)
    binned.set_title("the bins at v", loc="left")
    shown.plot(*place[vertex], "o", mfc="none", mec="#c0392b", ms=9, mew=1.8)
    own.imshow(patches[vertex].reshape(len(weighting.radii), -1), cmap="Greys", vmin=0, vmax=1)
    own.set_title("z(v): mean of ψ in each", loc="left")
    own.set(xlabel="direction", ylabel="radius", xticks=[], yticks=[])
    every.imshow(patches, cmap="Greys", aspect="auto", vmin=0, vmax=1, interpolation="none")
    every.axhline(vertex, color="#c0392b", lw=1)
    every.set(xlabel="bin", ylabel="vertex", xticks=[], yticks=[])
    every.set_title("Z: the patches of all vertices", loc="left")
    return figure


def resolutions(settings: Settings, results: Path) -> Figure:
    """A body at each of the paper's numbers of vertices; a generated one, as FAUST may not be passed on."""
    (whole,) = articulated_bodies(1, 1, FINEST).meshes
    figure = Figure(figsize=(10.5, 4.5), layout="constrained")
    for axes, count in zip(figure.subplots(1, len(VERTICES)), VERTICES, strict=True):
        mesh = decimate(whole, count)
        draw_mesh(axes, mesh, np.zeros(len(mesh.vertices)), CLAY, wire=True)
        axes.set_title(f"{len(mesh.vertices)} vertices", loc="left")
    return figure


def learned(settings: Settings, results: Path) -> Figure:
    """The bins of the paper's start, and where learning from superpixel graphs moves them."""
    return draw_learning(_learned_digits(settings))


def digit_evidence(settings: Settings, results: Path) -> Figure:
    """What each superpixel says about which digit it is, for the surest and the least sure ones."""
    model, split = _learned_digits(settings), _some_digits(settings)
    probabilities = model.predict_proba(split.test)
    order = np.argsort(probabilities.max(axis=1))
    rows = [*order[::-1][:2], *order[:2]]
    chosen = split.test[rows]
    return draw_evidence(
        chosen, probabilities[rows], model.evidence(chosen), list(model.classes_), list(split.truth[rows])
    )


def body_evidence(settings: Settings, results: Path) -> Figure:
    """What each part of a body's surface says about who it is."""
    model, bodies = _learned_bodies(settings)
    rows = [n for n in range(len(bodies)) if bodies.poses[n] == POSES - 1][:3]
    meshes = [bodies.meshes[n] for n in rows]
    signals = model[:-1].transform(meshes)
    return draw_mesh_evidence(
        meshes,
        model.predict_proba(meshes),
        model[-1].evidence(signals),
        list(model.classes_),
        list(bodies.persons[rows]),
    )


def reliability(settings: Settings, results: Path) -> Figure:
    """How often models are right, by how sure they are, from the results of `uncertainty`."""
    found = _lines(results, "uncertainty")
    figure = Figure(figsize=(3.5 * len(found), 3.6), layout="constrained")
    for axes, line in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
        draw_reliability(axes, np.sum([run["calibration"] for run in line.runs], axis=0))
        axes.set_title(f"{line.title}: ECE {line.mean('ece'):.3f}", loc="left", fontsize=10)
    return figure


def draw_reliability(axes: Axes, bins: Float[np.ndarray, "3 bins"]) -> None:
    """Accuracy against confidence; the size of a point tells how many signals it stands for."""
    count, sure, right = bins
    full = count > 0
    axes.plot([0, 1], [0, 1], color="#a3bccc", lw=1)
    sizes = 15 + 140 * np.sqrt(count[full] / count.sum())
    axes.scatter(sure[full] / count[full], right[full] / count[full], s=sizes, color="#2e86ab", alpha=0.8)
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.03), ylim=(0, 1.03), aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)


def training_size(settings: Settings, results: Path) -> Figure:
    """Error against the number of training digits, from the results of `ablation`."""
    found = _lines(results, "ablation")
    figure = Figure(figsize=(5.5, 4), layout="constrained")
    axes = figure.subplots()
    for title in dict.fromkeys(line.title for line in found):
        own = [line for line in found if line.title == title]
        sizes = [int(line.condition.split()[0]) for line in own]
        errors, intervals = [line.mean("error") for line in own], [line.interval for line in own]
        axes.errorbar(sizes, errors, intervals, marker="o", capsize=3, label=title)
        paper = [(size, line.paper) for size, line in zip(sizes, own, strict=True) if line.paper is not None]
        if paper:
            axes.plot(*zip(*paper, strict=True), "x--", color=INK, label=f"{title}, the paper")
    axes.set(xscale="log", xlabel="training digits of each class", ylabel="error")
    every = sorted({int(line.condition.split()[0]) for line in found})
    axes.set_xticks(every, [f"{size:,}" for size in every])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


Draw = Callable[[Settings, Path], Figure]
"""From settings and the folder of results."""
FIGURES: dict[str, Draw] = {
    "weightings": weightings,
    "construction": construction,
    "resolutions": resolutions,
    "learned-weighting": learned,
    "evidence-digits": digit_evidence,
    "evidence-bodies": body_evidence,
    "reliability": reliability,
    "training-size": training_size,
}


def draw_all(chosen: Sequence[str], settings: Settings, results: Path) -> list[Path]:
    """Draw the chosen figures, or all, into the subfolder `figures` of the folder of results."""
    for name in chosen:
        if name not in FIGURES:
            raise ValueError(f"figure {name!r} is unknown; there are {', '.join(FIGURES)}")
    folder = results / "figures"
    folder.mkdir(exist_ok=True)
    paths = []
    for name in chosen or FIGURES:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            figure = FIGURES[name](settings, results)
        except Missing as missing:
            print(f"  left out: {missing}", file=sys.stderr)
            continue
        for ending in (".png", ".svg"):
            with atomic_write(folder / (name + ending)) as part:
                figure.savefig(part, dpi=DOTS, format=ending[1:])
        paths.append(folder / f"{name}.png")
    return paths


@cache
def _some_digits(settings: Settings) -> Split:
    few = digits(settings, min(settings.per_class or PER_CLASS, PER_CLASS), seed=0)
    shown = Split(few.train, few.labels, few.test[:200], few.truth[:200])
    return shown.as_graphs(seed=0)


@cache
def _learned_digits(settings: Settings) -> GCGPClassifier:
    split = _some_digits(settings)
    model = GCGPClassifier(
        Polar(*START), n_inducing=settings.inducing or FEW_INDUCING, learn=True, random_state=0, **STRICT
    )
    return model.fit(split.train, split.labels)


def _learned_bodies(settings: Settings) -> tuple[Pipeline, Bodies]:
    bodies = articulated_bodies(PERSONS, POSES, settings.vertices or BODY_VERTICES)
    rows = np.flatnonzero(bodies.poses < POSES - 1)
    classifier = GCGPClassifier(n_inducing=settings.inducing or FEW_INDUCING, random_state=0)
    model = make_pipeline(GeometryVectors(), classifier)
    return model.fit([bodies.meshes[n] for n in rows], bodies.persons[rows]), bodies


def _lines(results: Path, table: str) -> list[Line]:
    found = [line for content in contents(results).get(table, []) for line in lines(content)]
    if not found:
        raise Missing(f"no results of `gcgp reproduce {table}` in {results}")
    return found


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
