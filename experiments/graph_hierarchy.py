"""Graphs at several resolutions for networks with pooling, computed once before training.

Our own matching, because that of PyG (`graclus`) needs a compiled extension.
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

from gcgp import Domains, Signals
from gcgp._numerics.segments import join_offsets, offsets_from_counts, repeat_starts, take_segments
from gcgp._runtime.fork import parallel_njit
from gcgp.domain.base import Chart

NEAREST_NEIGHBORS = 15
"""Neighbors of a vertex, which gives about as many edges as the graphs of MoNet's authors have (1,400 for 75
superpixels). The paper's recipe leaves a quarter of the vertices isolated, which harms networks but not GPs,
which use distances."""
GRAPHS_PER_CHUNK = 4_000
"""Graphs whose hierarchies are computed together: all 60,000 at once would take 10 GB."""
MESH_REACH = 1.5
"""Largest distance between neighbors on a mesh, in median edge lengths."""


@dataclass(frozen=True)
class Level:
    """Many graphs at one resolution, one after the other; edges and parents index vertices within a graph."""

    vertex_offsets: Int[np.ndarray, "graphs_plus_1"]
    positions: Float[np.ndarray, "vertices 2"]
    edge_offsets: Int[np.ndarray, "graphs_plus_1"]
    edges: Int[np.ndarray, "edges 2"]
    """Both directions, from neighbor to center vertex, sorted by center vertex."""
    pseudo: Float[np.ndarray, "edges 2"]
    """Length of each edge, and its angle as a share of a full turn."""
    parents: Int[np.ndarray, "vertices"]
    """The vertex of the next level to which each vertex belongs."""

    @classmethod
    def build(cls, offsets: np.ndarray, positions: np.ndarray, pairs: np.ndarray) -> Level:
        """From pairs of flat vertex indices; loops and duplicates are removed."""
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        size = (offsets[-1], offsets[-1])
        adjacency = coo_array((np.ones(len(pairs), dtype=bool), tuple(pairs.T)), shape=size).tocsr()
        pairs = np.stack((adjacency + adjacency.T).sorted_indices().nonzero(), axis=1).astype(np.int64)
        starts = np.searchsorted(pairs[:, 0], np.arange(offsets[-1] + 1))
        parents = _match_vertices(offsets, positions, starts, np.ascontiguousarray(pairs[:, 1]))
        local = (pairs - repeat_starts(offsets)[pairs[:, 0]][:, None])[:, ::-1].astype(np.int32)
        step = positions[pairs[:, 0]] - positions[pairs[:, 1]]
        angle = np.arctan2(step[:, 1], step[:, 0]) / (2 * np.pi) % 1.0
        pseudo = np.stack([np.hypot(*step.T), angle], axis=1).astype(np.float32)
        return cls(offsets, positions, starts[offsets], local, pseudo, parents)

    @classmethod
    def from_charts(cls, domains: Domains, reach: float) -> Level:
        """Each vertex with its neighbors within reach, in the polar coordinates of the domain's chart."""
        offsets = offsets_from_counts(domains.vertex_counts)
        chart = domains.chart(("rho", "theta"), reach)
        assert isinstance(chart, Chart)
        rows = np.repeat(np.arange(offsets[-1]), np.diff(chart.row_offsets))
        local = np.arange(offsets[-1]) - repeat_starts(offsets)
        proper = chart.neighbors != local[rows]
        pairs = np.stack([chart.neighbors, local[rows]], axis=1)[proper].astype(np.int32)
        angle = np.nan_to_num(chart.coordinates["theta"]) / (2 * np.pi) % 1.0
        pseudo = np.stack([chart.coordinates["rho"], angle], axis=1)[proper].astype(np.float32)
        edge_offsets = np.searchsorted(rows[proper], offsets)
        return cls(offsets, np.zeros((offsets[-1], 0)), edge_offsets, pairs, pseudo, local)

    @classmethod
    def concatenate(cls, parts: Sequence[Level]) -> Level:
        """The graphs of all parts, one after the other."""
        return cls(
            join_offsets([part.vertex_offsets for part in parts]),
            np.concatenate([part.positions for part in parts]),
            join_offsets([part.edge_offsets for part in parts]),
            np.concatenate([part.edges for part in parts]),
            np.concatenate([part.pseudo for part in parts]),
            np.concatenate([part.parents for part in parts]),
        )

    def coarsen(self) -> Level:
        """The graphs whose vertices are matched pairs of vertices of these graphs."""
        graph_of = np.repeat(np.arange(len(self.vertex_offsets) - 1), np.diff(self.vertex_offsets))
        offsets = offsets_from_counts(np.maximum.reduceat(self.parents, self.vertex_offsets[:-1]) + 1)
        flat = offsets[graph_of] + self.parents
        members = np.bincount(flat, minlength=offsets[-1])
        sums = [np.bincount(flat, self.positions[:, k], minlength=offsets[-1]) for k in range(2)]
        first = np.repeat(self.vertex_offsets[:-1], np.diff(self.edge_offsets))
        pairs = flat[self.edges + first[:, None]]
        return Level.build(offsets, np.stack(sums, axis=1) / members[:, None], pairs)


@parallel_njit(cache=True)
def _match_vertices(offsets, positions, starts, neighbors):  # type: ignore[no-untyped-def]
    """The pair of each vertex: in order, an unmatched vertex joins its nearest unmatched neighbor."""
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
    """One resolution of a batch of graphs, in the format of PyG."""

    edges: Int[Tensor, "2 edges"]
    pseudo: Float[Tensor, "edges 2"]
    """ρ and θ of each edge, in [0, 1]."""
    parents: Int[Tensor, "vertices"] | None
    """The vertex of the next level to which each vertex belongs; None: no pooling after this level."""
    graph_of: Int[Tensor, "vertices"]


@dataclass(frozen=True)
class Hierarchy:
    """Signals on graphs, and these graphs at several resolutions."""

    values: Float[np.ndarray, "vertices channels"]
    levels: list[Level]
    reach: list[float]
    """Length of an edge that becomes ρ = 1: per level, the longest edge of the training graphs."""

    @classmethod
    def build(
        cls, signals: Signals, depth: int, pooling: bool, reach: list[float] | None = None
    ) -> Hierarchy:
        """`depth` resolutions of graphs in the plane or, without pooling, the charts of any domain repeated.

        `reach` is that of the training graphs.
        """
        domains = signals.domains.take(signals.domain_of)
        if not pooling:
            reach = reach or [MESH_REACH * domains.spacing()] * depth
            return cls(signals.values, [Level.from_charts(domains, reach[0])] * depth, reach)
        chunks = [
            _resolutions(domains.take(np.arange(start, min(start + GRAPHS_PER_CHUNK, len(signals)))), depth)
            for start in range(0, len(signals), GRAPHS_PER_CHUNK)
        ]
        levels = [Level.concatenate(parts) for parts in zip(*chunks, strict=True)]
        longest = [float(level.pseudo[:, 0].max(initial=0.0)) or 1.0 for level in levels]
        return cls(signals.values, levels, reach or longest)

    def batch(
        self, graphs: Int[np.ndarray, "b"]
    ) -> tuple[Float[Tensor, "vertices channels"], list[BatchLevel]]:
        """The values of some graphs, and their resolutions."""
        rows, _ = take_segments(self.levels[0].vertex_offsets, graphs)
        parts: list[BatchLevel] = []
        for level, reach, above in zip(self.levels, self.reach, [*self.levels[1:], None], strict=True):
            if parts and level is self.levels[0]:  # without pooling all levels are the same
                parts.append(parts[0])
                continue
            vertices, starts = take_segments(level.vertex_offsets, graphs)
            edges, edge_starts = take_segments(level.edge_offsets, graphs)
            first = np.repeat(starts[:-1], np.diff(edge_starts))
            parents = None
            if above is not None and above is not level:
                _, parent_starts = take_segments(above.vertex_offsets, graphs)
                flat = level.parents[vertices] + np.repeat(parent_starts[:-1], np.diff(starts))
                parents = torch.from_numpy(flat)
            parts.append(
                BatchLevel(
                    torch.from_numpy((level.edges[edges] + first[:, None]).T),
                    torch.from_numpy(level.pseudo[edges] / np.array([reach, 1.0], dtype=np.float32)),
                    parents,
                    torch.from_numpy(np.repeat(np.arange(len(graphs)), np.diff(starts))),
                )
            )
        return torch.from_numpy(self.values[rows].astype(np.float32)), parts


def _resolutions(graphs: Domains, depth: int) -> list[Level]:
    assert graphs.positions is not None
    offsets, positions = offsets_from_counts(graphs.vertex_counts), graphs.positions.astype(np.float64)
    levels = [Level.build(offsets, positions, _nearest_pairs(offsets, positions))]
    while len(levels) < depth:
        levels.append(levels[-1].coarsen())
    return levels


def _nearest_pairs(
    offsets: Int[np.ndarray, "graphs_plus_1"], positions: Float[np.ndarray, "vertices 2"]
) -> Int[np.ndarray, "edges 2"]:
    """Each vertex with its nearest vertices of the same graph, as flat indices.

    Ties are resolved by index, so that the edges of a graph do not depend on the other graphs.
    """
    graph_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    gap = 1.0 + 2.0 * np.ptp(positions, axis=0).sum()  # larger than any distance within a graph
    tree = KDTree(np.column_stack([positions, graph_of * gap]))
    distance, nearest = tree.query(tree.data, min(2 * NEAREST_NEIGHBORS + 1, len(positions)))
    order = np.lexsort((nearest, (distance / gap).round(9)), axis=1)[:, : NEAREST_NEIGHBORS + 1]
    nearest = np.take_along_axis(nearest, order, axis=1)
    pairs = np.stack([np.repeat(np.arange(len(nearest)), nearest.shape[1]), nearest.ravel()], axis=1)
    return pairs[graph_of[pairs[:, 0]] == graph_of[pairs[:, 1]]]
