"""Graphs, with or without vertex coordinates, and the charts of their vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gcgp._numerics.segments import join_offsets, repeat_starts, take_segments
from gcgp._runtime.errors import check_choice
from gcgp.domain.base import Chart, Domains, Rows, VertexValues, chart_kind

GRAPH_CHARTS = ("euclidean", "path", "hops")
MAX_GRAPHS_FOR_SPACING = 200


@dataclass(frozen=True, eq=False)
class Graphs(Domains):
    """Graphs, stored one after the other. Edges are undirected and index the vertices of their own graph.

    `edge_lengths` are the costs of paths along edges. Without them an edge is as long as the distance
    between its ends, or 1 if there are no coordinates.
    """

    vertex_offsets: Int[np.ndarray, "domains_plus_1"]
    edges: Int[np.ndarray, "total_edges 2"]
    edge_offsets: Int[np.ndarray, "domains_plus_1"]
    edge_lengths: Float[np.ndarray, "total_edges"] | None = None
    coordinates: Float[np.ndarray, "total_vertices k"] | None = None

    coordinate_pattern: ClassVar[str] = r"rho|theta|offset|degree"

    @property
    def chart_kinds(self) -> tuple[str, ...]:
        """Straight-line distance, if there are coordinates; length and, if that differs, number of edges."""
        kinds = GRAPH_CHARTS[1:] if self.coordinates is None else GRAPH_CHARTS
        unit_lengths = self.coordinates is None and self.edge_lengths is None
        return kinds[:-1] if unit_lengths or not self.has_unused_edges else kinds

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Vertices of each graph."""
        return np.diff(self.vertex_offsets)

    @property
    def positions(self) -> Float[np.ndarray, "total_vertices k"] | None:
        """The coordinates."""
        return self.coordinates

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Graphs:
        """The chosen graphs, in that order."""
        if np.array_equal(indices, np.arange(len(self))):
            return self
        vertices, vertex_offsets = take_segments(self.vertex_offsets, indices)
        edges, edge_offsets = take_segments(self.edge_offsets, indices)
        return replace(
            self,
            vertex_offsets=vertex_offsets,
            edges=self.edges[edges],
            edge_offsets=edge_offsets,
            edge_lengths=None if self.edge_lengths is None else self.edge_lengths[edges],
            coordinates=None if self.coordinates is None else self.coordinates[vertices],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Graphs]) -> tuple[Graphs, list[Int[np.ndarray, "_"]]]:
        """All graphs of all parts, one after the other."""

        def joined(field: str) -> np.ndarray | None:
            arrays = [getattr(part, field) for part in parts]
            missing = [i for i, array in enumerate(arrays) if array is None]
            if len(missing) == len(parts):
                return None
            if missing:
                raise ValueError(f"part {missing[0]}: {field} are missing, but other parts have them")
            return np.concatenate(arrays)

        graphs = cls(
            join_offsets([part.vertex_offsets for part in parts]),
            np.concatenate([part.edges for part in parts]),
            join_offsets([part.edge_offsets for part in parts]),
            joined("edge_lengths"),
            joined("coordinates"),
        )
        return graphs, np.split(np.arange(len(graphs)), np.cumsum([len(part) for part in parts])[:-1])

    def spacing(self) -> float:
        """Median distance to the nearest vertex; without coordinates, the median edge length or 1."""
        from gcgp.domain.graph_loops import nearest_distances

        if self.coordinates is not None:
            sample = self.take(np.arange(min(len(self), MAX_GRAPHS_FOR_SPACING)))
            lengths = nearest_distances(sample.coordinates, sample.vertex_offsets)
        else:
            lengths = np.ones(1) if self.edge_lengths is None else self.edge_lengths
        lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
        return float(np.median(lengths)) if len(lengths) else 1.0

    def degrees(self) -> Int[np.ndarray, "total_vertices"]:
        """Number of distinct neighbors of each vertex, not counting itself."""
        return np.diff(self._adjacency().indptr)

    def edge_pairs(self) -> Int[np.ndarray, "edges 2"]:
        """Flat vertex indices of the ends of each edge."""
        return self.edges + np.repeat(self.vertex_offsets[:-1], np.diff(self.edge_offsets))[:, None]

    def neighbor_sums(self, values: VertexValues) -> VertexValues:
        """Σ over the neighbors of each vertex of their values times 1/(1 + length of the edge)."""
        adjacency = self._adjacency()
        adjacency.data = 1 / (1 + adjacency.data)
        return np.asarray(adjacency @ values)

    @property
    def has_unused_edges(self) -> bool:
        """Whether there are edges."""
        return len(self.edges) > 0

    def arrays(self) -> list[np.ndarray | None]:
        """Offsets, edges, edge lengths and coordinates."""
        return [self.vertex_offsets, self.edges, self.edge_offsets, self.edge_lengths, self.coordinates]

    def signature(self, chart_kinds: Sequence[str], fixed_vertices: bool) -> dict[str, Any]:
        """Also whether edges have lengths, if the model measures distance along edges."""
        lengths = self.edge_lengths is not None if "path" in chart_kinds else None
        return super().signature(chart_kinds, fixed_vertices) | {"edge_lengths": lengths}

    def check_signature(self, signature: Mapping[str, Any], domain_of: Int[np.ndarray, "signals"]) -> None:
        """Raise if coordinates or edge lengths are present and were not in training, or the reverse."""
        super().check_signature(signature, domain_of)
        trained, given = signature.get("edge_lengths"), self.edge_lengths is not None
        if trained is not None and trained != given:
            here, there = ("with" if present else "without" for present in (given, trained))
            raise ValueError(
                f"X: graphs {here} edge_lengths, but training had graphs {there}; "
                "distances along edges would be measured differently"
            )

    def chart(self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None) -> Chart:
        """All pairs with ρ ≤ reach.

        ρ is the straight-line distance (`euclidean`), or the length (`path`) or number (`hops`) of the edges
        of a shortest path.

        Coordinates: `rho`; `theta` (for two-dimensional coordinates); `offset` (the neighbor's coordinates
        minus those of the vertex); `degree` (1/√degree of both, as in MoNet).
        """
        from gcgp.domain.graph_loops import pairs_along_edges, pairs_within

        check_choice("chart of a graph: kind", kind, ("auto", *GRAPH_CHARTS))
        for name in coordinates:
            check_choice("coordinate of a graph", name, ("rho", "theta", "offset", "degree"))
        if chart_kind(self, kind) == "euclidean":
            if self.coordinates is None:
                raise ValueError("chart kind='euclidean' needs graphs with coordinates; these have none")
            row_offsets, neighbors, rho = pairs_within(self.coordinates, self.vertex_offsets, reach)
        else:
            adjacency = self._adjacency()
            lengths = np.ones_like(adjacency.data) if kind == "hops" else adjacency.data
            row_offsets, neighbors, rho = pairs_along_edges(
                adjacency.indptr, adjacency.indices, lengths, self.vertex_offsets, reach
            )
        columns = {
            name: rho if name == "rho" else self._pair_coordinates(name, row_offsets, neighbors)
            for name in coordinates
        }
        chart = Chart(row_offsets, neighbors, columns)
        return chart if rows is None else chart.restricted(rows)

    def _pair_coordinates(
        self, name: str, row_offsets: Int[np.ndarray, "_"], neighbors: Int[np.ndarray, "pairs"]
    ) -> Float[np.ndarray, "pairs ..."]:
        """The coordinates of pairs that do not depend on how ρ is measured."""
        from gcgp.domain.graph_loops import pair_angles, pair_offsets

        starts = repeat_starts(self.vertex_offsets)
        if name == "degree":  # eq. 11 of Monti et al. 2017; an isolated vertex counts as degree 1
            inverse = 1.0 / np.sqrt(np.maximum(self.degrees(), 1))
            rows = np.repeat(np.arange(len(starts)), np.diff(row_offsets))
            return np.stack([inverse[rows], inverse[starts[rows] + neighbors]], axis=1)
        if self.coordinates is None:
            raise ValueError(f"chart coordinate {name!r} needs graphs with coordinates; these have none")
        if name == "theta" and self.coordinates.shape[1] != 2:
            raise ValueError(
                f"chart coordinate 'theta' needs two-dimensional coordinates; these have "
                f"{self.coordinates.shape[1]} dimensions (use a weighting without directions, 'radial')"
            )
        offsets = pair_offsets(self.coordinates, starts, row_offsets, neighbors)
        return offsets if name == "offset" else pair_angles(offsets)

    def _adjacency(self) -> scipy.sparse.csr_array:
        """Symmetric edge lengths by flat vertex index, without loops; the shortest of parallel edges."""
        ends = self.edge_pairs()
        if self.edge_lengths is not None:
            lengths = self.edge_lengths.astype(np.float64)
        elif self.coordinates is not None:
            lengths = np.linalg.norm(self.coordinates[ends[:, 0]] - self.coordinates[ends[:, 1]], axis=1)
        else:
            lengths = np.ones(len(ends))
        proper = ends[:, 0] != ends[:, 1]
        rows, columns = np.concatenate([ends[proper], ends[proper, ::-1]]).T
        lengths = np.tile(lengths[proper], 2)
        order = np.lexsort((lengths, columns, rows))
        rows, columns, lengths = rows[order], columns[order], lengths[order]
        shortest = np.ones(len(rows), dtype=bool)
        shortest[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        size = int(self.vertex_offsets[-1])
        indptr = np.searchsorted(rows[shortest], np.arange(size + 1))
        return scipy.sparse.csr_array((lengths[shortest], columns[shortest], indptr), shape=(size, size))
