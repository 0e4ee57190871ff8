"""Cases: `fit` and `predict` with hostile values, labels, targets and options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from benchmarks.fuzz import bases
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.inputs import hostile_graph
from benchmarks.fuzz.predictions import check_predictions
from benchmarks.fuzz.values import INF, LABELS, NAN, SCALES, SPECIAL, hostile, scaled_only
from gcgp import (
    SVGP,
    Anchored,
    Anisotropic,
    Box,
    GaussianMixture,
    GCGPClassifier,
    GCGPRegressor,
    GeodesicPolar,
    GeometryVectors,
    Learn,
    Mesh,
    NaturalGradient,
    Polar,
    Radial,
    Runtime,
    Signals,
)

Run = Callable[[], None]
TARGETS: dict[str, Callable[[Draw, int], Any]] = {
    "normal": lambda draw, count: draw.rng.normal(size=count),
    "constant": lambda draw, count: np.full(count, draw.value("target", (0.0, 1.0, 1e10, 1e-300, -1e200))),
    "scaled": lambda draw, count: draw.rng.normal(size=count) * draw.value("factor", SCALES),
    "one extreme": lambda draw, count: np.r_[draw.value("target", SPECIAL), draw.rng.normal(size=count - 1)],
    "far from zero": lambda draw, count: (
        draw.rng.normal(size=count) + draw.value("shift", (1e6, 1e15, 1e200))
    ),
    "integers": lambda draw, count: draw.rng.integers(-5, 5, count),
    "booleans": lambda draw, count: np.arange(count) % 2 == 0,
    "anything": lambda draw, count: hostile(draw, "targets", draw.rng.normal(size=count), 1.0),
    "labels": lambda draw, count: draw.named("labels", LABELS)(draw, count),
}
NUMBERS: tuple[Any, ...] = (
    *("auto", 1.0, 1e-3, 1e3, 1e-30, 1e30, 1e-300, 1e300, 0, -1),
    *(NAN, INF, None, "x", True, [1.0], 10**400),
)
WEIGHTINGS: dict[str, Callable[[], Any]] = {
    **{repr(name): partial(str, name) for name in ("auto", "polar", "radial", "mixture", "anisotropic")},
    "box": lambda: Box(3),
    "wide box": lambda: Box(9, inside=False),
    "polar": lambda: Polar([1.0, 2.0], 4),
    "zero radius": lambda: Polar([0.0], 1),
    "tiny radius": lambda: Radial([1e-6]),
    "huge radius": lambda: Radial([1e4]),
    "infinite radius": lambda: Radial([INF]),
    "no radius": lambda: Radial([]),
    "geodesic": lambda: GeodesicPolar([0.5, 1.0], 4),
    "degrees": lambda: GaussianMixture([[0.5, 0.5]], on=["degree"]),
    "unknown coordinate": lambda: GaussianMixture([[0.5, 0.5]], on=["nothing"]),
    "mixture": lambda: GaussianMixture([[0.0, 0.0], [1.0, 0.0]], on=["offset"]),
    "anisotropic": lambda: Anisotropic([1.0]),
    "several": lambda: ["polar", Radial([1.0])],
    "none": lambda: [],
    "a number": lambda: 3,
    "class": lambda: Polar,
}
KERNELS: dict[str, Callable[[], Any]] = {
    **{repr(name): partial(str, name) for name in ("rbf", "matern12", "matern32", "matern52", "x")},
    "none": lambda: None,
    "a number": lambda: 3,
    "scaled": lambda: ScaleKernel(RBFKernel()),
    "sum": lambda: RBFKernel() + MaternKernel(),
    "product": lambda: RBFKernel() * RQKernel(),
    "linear": lambda: LinearKernel(),
    "periodic": lambda: PeriodicKernel(),
    "wrong columns": lambda: RBFKernel(ard_num_dims=100),
    "active columns": lambda: RBFKernel(active_dims=[0, 1000]),
    "class": lambda: RBFKernel,
}


def _with_values(option: type, field: str, values: tuple[Any, ...], **fixed: Any) -> list[Any]:
    return [option(**{field: value}, **fixed) for value in values]


PARAMETERS: dict[str, tuple[Any, ...]] = {
    "chart": ("auto", "path", "euclidean", "geodesic", "logmap", "x", None, 3),
    "patch": ("auto", "x", None, 3),
    "patch__position": (*NUMBERS, False),
    "patch__bin_counts": (True, False, "auto", 1, "x", None, [1]),
    "patch__area_weighted": (True, False, "auto", "x", 0.5),
    "kernel__lengthscale": NUMBERS,
    "kernel__variance": NUMBERS,
    "kernel__rotation_average": (True, False, "auto", "x", np.zeros(2)),
    "aggregate": ("mean", "sum", "x", None, [], np.zeros(3)),
    "aggregate__vertex_weights": (
        *(None, [1.0] * 16, np.zeros(16), [NAN] * 16, [-1.0] * 16, [1e300] * 16, "x", [1.0], 3),
    ),
    "n_inducing": (1, 5, 100, 10**6, 0, -1, 2.5, "x", None, True, 10**30),
    "inducing": ("k-means++", "random", "greedy", "x", None),
    "search": ("fast", "thorough", None, "x", 3, True, []),
    "descriptor": ("auto", GeometryVectors(), [], "x", None, 3),
    "learn": (
        *(True, "lengthscale", ["lengthscale", "variance"], "x", 3, None, ["inducing"], [], {"a": 1}),
        *_with_values(Learn, "max_iter", (1, 3, 0, -1, 1.5, None, "x", 10**30)),
        *_with_values(Learn, "objective", ("leave-one-out", "bound", "x", None), max_iter=2),
        *_with_values(Learn, "optimizer", ("adam", "x", None), max_iter=2),
    ),
    "inference": (
        *("closed-form", "refined", "natural-gradient", SVGP(epochs=3), "x", None),
        *_with_values(NaturalGradient, "objective", ("bound", "x", None)),
        *_with_values(SVGP, "batch_size", (1, 3, 0, 10**9, None), epochs=3),
        *_with_values(SVGP, "learning_rate", (1e3, 0, NAN, "auto", None, 1e300), epochs=3),
        *_with_values(SVGP, "epochs", (1, 0, -1, 1.5, None, "x")),
    ),
    "inference__batch_size": (1, None),
    "runtime": (None, Runtime(), "x", 3),
    "runtime__dtype": ("float32", "float64", "auto", "float16", None, np.float32, []),
    "runtime__memory_limit": (
        *(1, 1000, "1 KB", "10 GB", "x", 0, -1, None, NAN, 1e9, "1e400 GB", [], 10**30),
    ),
    "runtime__device": ("cpu", "cuda", "x", None, 3, "meta"),
    "runtime__checkpoint": (None, "/dev/null/x", 3, b"\xff", "\0"),
    "random_state": (0, None, 1, -1, "x", 2**32, np.random.RandomState(0), 1.5),
}


def choose_parameters(draw: Draw, regression: bool, count: int) -> dict[str, Any]:
    """The fixed parameters, some of which are changed."""
    parameters: dict[str, Any] = dict(bases.FIXED)
    likelihood = partial(bases.fixed_likelihood, regression)
    parameters["likelihood"] = likelihood()
    choices = PARAMETERS | {
        "likelihood": ("auto", *map(likelihood, NUMBERS), "softmax", "robust-max", Anchored(), "x", None)
    }
    for _ in range(count):
        name = draw.one_of([*choices, "weighting", "kernel", "weighting", "kernel"])
        if name in CONSTRUCTED:
            parameters[name] = draw.named(name, CONSTRUCTED[name])
        else:
            parameters[name] = draw.value(name, choices[name])
    if "inference" in parameters and draw.chance(0.7):
        parameters["likelihood"] = "auto"
    if parameters.get("learn") is True:
        parameters["learn"] = Learn(max_iter=2)
    return parameters


CONSTRUCTED = {"weighting": WEIGHTINGS, "kernel": KERNELS}


def build(parameters: dict[str, Any], regression: bool) -> Any:
    """The estimator; weightings and kernels are built here, because their constructors validate too."""
    ready = {
        name: value() if name in CONSTRUCTED and callable(value) else value
        for name, value in parameters.items()
    }
    return (GCGPRegressor() if regression else GCGPClassifier()).set_params(**ready)


def changed_values(draw: Draw, signals: Signals, probability: float) -> Signals:
    """Signals with hostile but finite values."""
    values = scaled_only(draw, "values", signals.values, probability)
    if np.isfinite(values).all():
        return replace(signals, values=np.ascontiguousarray(values, dtype=signals.values.dtype))
    return signals


def _data(draw: Draw, kind: str, count: int) -> Any:
    """X of a fit: signals with hostile values, hostile images, or a function that builds signals."""
    if kind == "images":
        return hostile(draw, "images", bases.images(draw.rng, count), 0.7)
    if kind == "meshes" and draw.chance(0.4):
        stretch = scaled_only(draw, "vertices", bases.OCTAHEDRON + draw.rng.normal(size=(6, 3)) / 5, 0.9)
        return lambda: Signals.on_meshes(
            draw.rng.normal(size=(count, 6)), [Mesh(stretch, bases.FACES)] * count
        )
    if kind.startswith("graphs") and draw.chance(0.4):
        items = bases.graphs(draw.rng, count)
        items[-1] = hostile_graph(draw, items[-1])
        return lambda: bases.graph_signals(items, kind.endswith("lengths"), kind.endswith("coordinates"))
    return changed_values(draw, bases.valid_signals(kind, draw.rng, count), 0.7)


def _fit_case(draw: Draw, folder: Path, parameters: dict[str, Any] | None, changes: int) -> Run:
    regression = draw.chance(0.4)
    kind = draw.value("kind", bases.KINDS)
    count = draw.value("signals", (6, 6, 6, 2, 3, 1))
    draw.note("regression" if regression else "classification")
    plain = changes > 0 and draw.chance(0.7)
    data = bases.valid_signals(kind, draw.rng, count) if plain else _data(draw, kind, count)
    if plain or draw.chance(0.6):
        y: Any = draw.rng.normal(size=count) if regression else ["a", "b", "c"][:3] * count
        y = y[:count]
    else:
        y = draw.named("y", TARGETS if regression else LABELS)(draw, count)
    if parameters is None:
        parameters = choose_parameters(draw, regression, changes)
    save = draw.chance(0.2)

    def run() -> None:
        X = data() if callable(data) else data
        model = build(parameters, regression).fit(X, y)
        check_predictions(model, X, alone=True, saved_in=folder if save else None)

    return run


def fits(draw: Draw, folder: Path) -> Run:
    """Hostile data, fixed hyperparameters."""
    return _fit_case(draw, folder, None, draw.value("parameters changed", (0, 0, 1)))


def options(draw: Draw, folder: Path) -> Run:
    """Hostile parameters, mostly valid data."""
    return _fit_case(draw, folder, None, draw.value("parameters changed", (1, 1, 2, 3)))


def default_fits(draw: Draw, folder: Path) -> Run:
    """Hostile data, default parameters."""
    return _fit_case(draw, folder, {"runtime__progress": False}, 0)


def predictions(draw: Draw, folder: Path) -> Run:
    """A fitted model and hostile signals to predict."""
    kind = draw.value("model", bases.KINDS)
    model = bases.fitted(kind, draw.chance(0.4))
    other = draw.value("data", bases.KINDS) if draw.chance(0.15) else kind
    data = _data(draw, other, draw.value("signals", (1, 3, 5)))
    return lambda: check_predictions(model, data() if callable(data) else data)
