"""Small valid data on which cases are based."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fuzz.draws import Draw
from gcgp import Dirichlet, Gaussian, GCGPClassifier, GCGPRegressor, Mesh, Signals

FIXED: dict[str, Any] = {
    "kernel__lengthscale": 1.0,
    "kernel__variance": 1.0,
    "patch__position": False,
    "n_inducing": 5,
    "search": None,
    "runtime__progress": False,
}
"""Parameters with which a fit searches almost nothing and takes some milliseconds."""
OCTAHEDRON = np.concatenate([np.eye(3), -np.eye(3)])
FACES = np.array(
    [(0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2), (1, 0, 5), (3, 1, 5), (4, 3, 5), (0, 4, 5)], dtype=np.int64
)
SQUARE = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.0]])


class GraphArrays(NamedTuple):
    """Values `[V, d]`, edges `[E, 2]`, lengths `[E]` and coordinates `[V, 2]` of one graph."""

    values: Any
    edges: Any
    lengths: Any
    coordinates: Any


def images(rng: np.random.Generator, count: int = 6) -> np.ndarray:
    """Images `[N, 4, 4]`."""
    return rng.normal(size=(count, 4, 4))


def graph(rng: np.random.Generator, vertices: int, channels: int = 1) -> GraphArrays:
    """A path with some chords."""
    path = np.stack([np.arange(vertices - 1), np.arange(1, vertices)], axis=1)
    chords = rng.integers(0, vertices, (vertices // 2, 2))
    edges = np.concatenate([path, chords]).astype(np.int64)
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    lengths = rng.uniform(0.5, 2, len(edges))
    return GraphArrays(
        rng.normal(size=(vertices, channels)), edges, lengths, rng.uniform(0, 3, (vertices, 2))
    )


def graphs(rng: np.random.Generator, count: int = 6, channels: int = 1) -> list[GraphArrays]:
    """Graphs of 3 to 6 vertices."""
    return [graph(rng, 3 + n % 4, channels) for n in range(count)]


def graph_signals(items: list[GraphArrays], lengths: bool, coordinates: bool) -> Signals:
    """Signals on graphs, optionally with lengths and coordinates."""
    return Signals.from_graphs(
        [item.values for item in items],
        [item.edges for item in items],
        [item.lengths for item in items] if lengths else None,
        [item.coordinates for item in items] if coordinates else None,
    )


def octahedra(rng: np.random.Generator, count: int = 6) -> list[Mesh]:
    """Stretched octahedra of a few shapes, so that their charts are in the cache."""
    stretched = OCTAHEDRON * np.random.default_rng(1).uniform(0.5, 2, (8, 1, 3))
    return [Mesh(stretched[n], FACES) for n in rng.integers(0, 8, count)]


KINDS = ("images", "graphs", "graphs with lengths", "graphs with coordinates", "meshes")


def valid_signals(kind: str, rng: np.random.Generator, count: int = 6) -> Signals:
    """Signals of a kind of domain."""
    if kind == "images":
        return Signals.from_images(images(rng, count))
    if kind == "meshes":
        return Signals.on_meshes(rng.normal(size=(count, 6)), octahedra(rng, count))
    return graph_signals(graphs(rng, count), kind.endswith("lengths"), kind.endswith("coordinates"))


@cache
def fitted(kind: str, regression: bool) -> Any:
    """A fitted model of one kind of signals; the same in every process."""
    rng = np.random.default_rng(2)
    signals = valid_signals(kind, rng, 8)
    labels: Any = rng.normal(size=8) if regression else ["a", "b"] * 4
    return estimator(regression, likelihood=fixed_likelihood(regression, 0.1 if regression else 0.01)).fit(
        signals, labels
    )


def fixed_likelihood(regression: bool, value: Any = 0.01) -> Gaussian | Dirichlet:
    """A likelihood with a fixed parameter."""
    return Gaussian(noise=value) if regression else Dirichlet(alpha=value)


def estimator(regression: bool, **parameters: Any) -> Any:
    """An estimator with the fixed parameters, except those that are given."""
    return (GCGPRegressor() if regression else GCGPClassifier()).set_params(**FIXED | parameters)


def any_signals(draw: Draw, count: int = 6) -> Signals:
    """Valid signals of any kind."""
    return valid_signals(draw.value("kind", KINDS), draw.rng, count)
