"""Small graphs for property tests: with isolated vertices, loops, parallel edges and several components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from gcgp.domain import Signals

small = settings(max_examples=25, deadline=None, derandomize=True)


@dataclass(frozen=True)
class RandomGraph:
    """Lengths, coordinates and values are integers, so that their sums are exact."""

    values: np.ndarray
    edges: np.ndarray
    lengths: np.ndarray
    coordinates: np.ndarray

    def signals(self, weighted: bool = True, located: bool = True) -> Signals:
        """One signal on this graph, with or without edge lengths and coordinates."""
        return Signals.from_graphs(
            [self.values],
            [self.edges],
            [self.lengths] if weighted else None,
            [self.coordinates] if located else None,
        )

    def permuted(self, order: np.ndarray) -> RandomGraph:
        """The same graph with vertex `order[i]` at index `i`."""
        edges = np.argsort(order)[self.edges]
        return RandomGraph(self.values[order], edges, self.lengths, self.coordinates[order])


@st.composite
def random_graphs(
    draw: st.DrawFn, max_vertices: int = 7, max_edges: int = 10, channels: int = 2
) -> RandomGraph:
    """Graphs with at least one vertex, possibly without edges, whose vertices may coincide."""
    vertices = draw(st.integers(1, max_vertices))
    vertex = st.integers(0, vertices - 1)
    edges = draw(st.lists(st.tuples(vertex, vertex), max_size=max_edges))
    lengths = draw(st.lists(st.integers(0, 4), min_size=len(edges), max_size=len(edges)))

    def integers(columns: int, largest: int) -> np.ndarray:
        row = st.tuples(*[st.integers(-largest, largest)] * columns)
        rows = draw(st.lists(row, min_size=vertices, max_size=vertices))
        return np.array(rows, dtype=np.float64).reshape(vertices, columns)

    return RandomGraph(
        integers(channels, 5),
        np.array(edges, dtype=np.int64).reshape(-1, 2),
        np.array(lengths, dtype=np.float64),
        integers(2, 2),
    )
