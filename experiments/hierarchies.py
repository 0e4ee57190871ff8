"""Graphs in several resolutions, for networks that pool: made once, since learning does not change them.

By hand because PyG's own matching (`graclus`) needs a compiled extension that has to be built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import prange
from scipy.sparse import coo_array
from scipy.spatial import KDTree
from torch import Tensor

from gcgp._runtime.fork import parallel_njit
from gcgp.domain import Graphs, Meshes, Signals

NEAREST = 15
"""Neighbors that a vertex of a graph gets by distance, which makes about as many edges as MoNet's own
graphs have (1,400 for 75 superpixels). Those of the GP's recipe leave a quarter of the vertices alone, which
costs a network dearly and a GP nothing, for it looks at distances."""
TOGETHER = 4_000
"""Graphs whose resolutions are made at a time: all 60,000 at once would take 10 GB."""
NEAR = 1.5
"""Vertices of a mesh that are joined are no farther apart than so many median edges."""


@dataclass(frozen=True)
class Level:
    """Many graphs of one resolution, one after the other; vertices are numbered within each graph."""

    vertex_offsets: Int[np.ndarray, "graphs_plus_1"]
    positions: Float[np.ndarray, "vertices 2"]
    edge_offsets: Int[np.ndarray, "graphs_plus_1"]
    edges: Int[np.ndarray, "edges 2"]
    """Both ways, from the vertex that is seen to the one that sees it, in the order of the latter."""
    pseudo: Float[np.ndarray, "edges 2"]
    """Length of each edge, and its direction as a part of a full turn."""
    parents: Int[np.ndarray, "vertices"]
    """The vertex of the next level that each vertex becomes part of."""

    @classmethod
    def of(cls, offsets: np.ndarray, positions: np.ndarray, pairs: np.ndarray) -> Level:
        """From edges in flat vertex numbers; edges of a vertex to itself are dropped, others kept once."""
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        there, size = np.ones(len(pairs), dtype=bool), (offsets[-1], offsets[-1])
        joined = coo_array((there, tuple(pairs.T)), shape=size).tocsr()
        pairs = np.stack((joined + joined.T).sorted_indices().nonzero(), axis=1).astype(np.int64)
        graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        edge_offsets = np.searchsorted(graph_of[pairs[:, 0]], np.arange(len(offsets)))
        starts = np.searchsorted(pairs[:, 0], np.arange(offsets[-1] + 1))
        parents = _matched(offsets, positions, starts, np.ascontiguousarray(pairs[:, 1]))
        local = (pairs - offsets[graph_of[pairs[:, 0]]][:, None])[:, ::-1].astype(np.int32)
        step = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        turn = np.arctan2(step[:, 1], step[:, 0]) / (2 * np.pi) % 1.0
        pseudo = np.stack([np.hypot(*step.T), turn], axis=1).astype(np.float32)
        return cls(offsets, positions, edge_offsets, local, pseudo, parents)

    @classmethod
    def of_meshes(cls, meshes: Meshes, near: float) -> Level:
        """Each vertex with those near it on the surface, which it sees in geodesic polar coordinates."""
        counts = meshes.vertex_counts
        offsets = _offsets(counts)
        chart = meshes.chart(("rho", "theta"), near)
        first = np.repeat(np.arange(offsets[-1]), np.diff(chart.row_offsets))
        start = np.repeat(offsets[:-1], counts)
        other = first != chart.neighbors + start[first]
        pairs = np.stack([chart.neighbors, first - start[first]], axis=1)[other]
        turn = np.nan_to_num(chart.coordinates["theta"]) / (2 * np.pi) % 1.0
        pseudo = np.stack([chart.coordinates["rho"], turn], axis=1)[other].astype(np.float32)
        edge_offsets = np.searchsorted(first[other], offsets)
        itself = np.arange(offsets[-1]) - start
        return cls(offsets, np.zeros((offsets[-1], 0)), edge_offsets, pairs.astype(np.int32), pseudo, itself)

    @classmethod
    def joined(cls, parts: Sequence[Level]) -> Level:
        """The graphs of several, one after the other."""
        return cls(
            _offsets(np.concatenate([np.diff(part.vertex_offsets) for part in parts])),
            np.concatenate([part.positions for part in parts]),
            _offsets(np.concatenate([np.diff(part.edge_offsets) for part in parts])),
            np.concatenate([part.edges for part in parts]),
            np.concatenate([part.pseudo for part in parts]),
            np.concatenate([part.parents for part in parts]),
        )

    def coarser(self) -> Level:
        """The graphs whose vertices are pairs of near vertices of these."""
        counts = np.diff(self.vertex_offsets)
        graph_of = np.repeat(np.arange(len(counts)), counts)
        sizes = np.maximum.reduceat(self.parents, self.vertex_offsets[:-1]) + 1
        offsets = _offsets(sizes)
        flat = offsets[graph_of] + self.parents
        members = np.bincount(flat, minlength=offsets[-1])
        sums = [np.bincount(flat, self.positions[:, k], minlength=offsets[-1]) for k in range(2)]
        first = np.repeat(self.vertex_offsets[:-1], np.diff(self.edge_offsets))
        pairs = flat[self.edges + first[:, None]]
        return Level.of(offsets, np.stack(sums, axis=1) / members[:, None], pairs)


@parallel_njit(cache=True)
def _matched(offsets, positions, starts, neighbors):  # type: ignore[no-untyped-def]
    """Each vertex in turn that is still alone joins the nearest neighbor that is; the number of its pair."""
    parents = np.full(offsets[-1], -1, dtype=np.int64)
    for graph in prange(len(offsets) - 1):
        count = 0
        for v in range(offsets[graph], offsets[graph + 1]):
            if parents[v] >= 0:
                continue
            nearest, least = -1, np.inf
            for edge in range(starts[v], starts[v + 1]):
                w = neighbors[edge]
                distance = (positions[v, 0] - positions[w, 0]) ** 2 + (positions[v, 1] - positions[w, 1]) ** 2
                if parents[w] < 0 and distance < least:
                    nearest, least = w, distance
            parents[v] = count
            if nearest >= 0:
                parents[nearest] = count
            count += 1
    return parents


@dataclass(frozen=True)
class BatchLevel:
    """One resolution of the graphs of a batch, as torch and PyG take them."""

    edges: Int[Tensor, "2 edges"]
    pseudo: Float[Tensor, "edges 2"]
    """ρ and θ of each edge, in [0, 1]."""
    parents: Int[Tensor, "vertices"] | None
    """Those that the vertices become part of; None: the next level is the same, or there is none."""
    graph_of: Int[Tensor, "vertices"]


@dataclass(frozen=True)
class Hierarchy:
    """Signals on graphs with coordinates in the plane, and their graphs in coarser resolutions."""

    values: Float[np.ndarray, "vertices channels"]
    levels: list[Level]
    reach: list[float]
    """The longest edge of each level, or that of the graphs which were learned from."""

    @classmethod
    def of(cls, signals: Signals, depth: int, reach: list[float] | None = None) -> Hierarchy:
        """So many resolutions of each graph; meshes stay as they are."""
        graphs = signals.domains.take(signals.domain_of)
        if isinstance(graphs, Meshes):
            reach = reach or [NEAR * graphs.spacing()] * depth
            return cls(signals.values, [Level.of_meshes(graphs, reach[0])] * depth, reach)
        assert isinstance(graphs, Graphs)
        parts = [
            _resolutions(graphs.take(np.arange(start, min(start + TOGETHER, len(signals)))), depth)
            for start in range(0, len(signals), TOGETHER)
        ]
        levels = [Level.joined(alike) for alike in zip(*parts, strict=True)]
        return cls(signals.values, levels, reach or [_longest(level) for level in levels])

    def __len__(self) -> int:
        return len(self.levels[0].vertex_offsets) - 1

    def batch(
        self, graphs: Int[np.ndarray, "b"]
    ) -> tuple[Float[Tensor, "vertices channels"], list[BatchLevel]]:
        """The values of some graphs and their resolutions."""
        rows, _ = _rows_of(self.levels[0].vertex_offsets, graphs)
        parts: list[BatchLevel] = []
        for level, reach, above in zip(self.levels, self.reach, [*self.levels[1:], None], strict=True):
            if parts and level is self.levels[0]:  # meshes are as they are on all levels
                parts.append(parts[0])
                continue
            vertices, starts = _rows_of(level.vertex_offsets, graphs)
            edges, _ = _rows_of(level.edge_offsets, graphs)
            counts = np.diff(level.edge_offsets)[graphs]
            pseudo = level.pseudo[edges] / np.array([reach, 1.0], dtype=np.float32)
            sizes = np.diff(level.vertex_offsets)[graphs]
            parents = None
            if above is not None and above is not level:
                _, firsts = _rows_of(above.vertex_offsets, graphs)
                parents = torch.from_numpy(level.parents[vertices] + np.repeat(firsts, sizes))
            parts.append(
                BatchLevel(
                    torch.from_numpy((level.edges[edges] + np.repeat(starts, counts)[:, None]).T),
                    torch.from_numpy(pseudo),
                    parents,
                    torch.from_numpy(np.repeat(np.arange(len(graphs)), sizes)),
                )
            )
        return torch.from_numpy(self.values[rows].astype(np.float32)), parts


def _resolutions(graphs: Graphs, depth: int) -> list[Level]:
    assert graphs.coordinates is not None
    coordinates = graphs.coordinates.astype(np.float64)
    pairs = _nearest(graphs.vertex_offsets, coordinates)
    levels = [Level.of(graphs.vertex_offsets, coordinates, pairs)]
    while len(levels) < depth:
        levels.append(levels[-1].coarser())
    return levels


def _nearest(
    offsets: Int[np.ndarray, "graphs_plus_1"], coordinates: Float[np.ndarray, "vertices 2"]
) -> Int[np.ndarray, "edges 2"]:
    """Each vertex with those nearest to it in its graph, in flat vertex numbers.

    Of those as near the first count, so that a graph is seen alike in whatever company it is.
    """
    graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    farthest = 1.0 + 2.0 * np.ptp(coordinates, axis=0).sum()  # farther than any two of a graph
    tree = KDTree(np.column_stack([coordinates, graph_of * farthest]))
    distance, found = tree.query(tree.data, min(2 * NEAREST + 1, len(coordinates)))
    order = np.lexsort((found, (distance / farthest).round(9)), axis=1)[:, : NEAREST + 1]
    found = np.take_along_axis(found, order, axis=1)
    pairs = np.stack([np.repeat(np.arange(len(found)), found.shape[1]), found.ravel()], axis=1)
    return pairs[graph_of[pairs[:, 0]] == graph_of[pairs[:, 1]]]


def _offsets(counts: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n_plus_1"]:
    return np.concatenate([[0], np.cumsum(counts)])


def _rows_of(offsets: np.ndarray, graphs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The flat rows of some graphs, one after the other, and where the rows of each then start."""
    counts = np.diff(offsets)[graphs]
    starts = np.cumsum(counts) - counts
    return np.repeat(offsets[graphs] - starts, counts) + np.arange(counts.sum()), starts


def _longest(level: Level) -> float:
    return float(level.pseudo[:, 0].max(initial=0.0)) or 1.0
