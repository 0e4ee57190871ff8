"""Graphs, with coordinates or without, and the charts of their vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gcgp._runtime.errors import unknown_option
from gcgp.domain.base import Chart, Domains, chart_kind

KINDS = ("euclidean", "path")


@dataclass(frozen=True, eq=False)
class Graphs(Domains):
    """Graphs, stored one after the other. Edges are undirected and name vertices of their own graph.

    `edge_lengths` are lengths: what a path along the edge costs. Without them an edge is as long as
    the distance between its ends, or 1 where there are no coordinates.
    """

    vertex_offsets: Int[np.ndarray, "domains_plus_1"]
    edges: Int[np.ndarray, "total_edges 2"]
    edge_offsets: Int[np.ndarray, "domains_plus_1"]
    edge_lengths: Float[np.ndarray, "total_edges"] | None = None
    coordinates: Float[np.ndarray, "total_vertices k"] | None = None

    coordinate_pattern: ClassVar[str] = r"rho|theta|offset|degree"

    @property
    def chart_kinds(self) -> tuple[str, ...]:
        """Straight-line distance, if there are coordinates, or distance along edges."""
        return ("path",) if self.coordinates is None else KINDS

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Vertices of each graph."""
        return np.diff(self.vertex_offsets)

    @property
    def positions(self) -> Float[np.ndarray, "total_vertices k"] | None:
        """The coordinates given with the graphs."""
        return self.coordinates

    def __len__(self) -> int:
        return len(self.vertex_offsets) - 1

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Graphs:
        """The chosen graphs, in that order."""
        if len(indices) == len(self) and np.array_equal(indices, np.arange(len(self))):
            return self
        vertices, vertex_offsets = take_segments(self.vertex_offsets, indices)
        edges, edge_offsets = take_segments(self.edge_offsets, indices)
        return Graphs(
            vertex_offsets,
            self.edges[edges],
            edge_offsets,
            None if self.edge_lengths is None else self.edge_lengths[edges],
            None if self.coordinates is None else self.coordinates[vertices],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Graphs]) -> tuple[Graphs, list[Int[np.ndarray, "_"]]]:
        """All graphs of all parts, one after the other."""
        for field in ("edge_lengths", "coordinates"):
            given = [getattr(part, field) is not None for part in parts]
            if any(given) and not all(given):
                raise ValueError(
                    f"part {given.index(False)}: {field} are missing, though other parts have them"
                )
        bounds = np.cumsum([0, *(len(part) for part in parts)])
        whole = cls(
            join_offsets([part.vertex_offsets for part in parts]),
            np.concatenate([part.edges for part in parts]),
            join_offsets([part.edge_offsets for part in parts]),
            _joined([part.edge_lengths for part in parts]),
            _joined([part.coordinates for part in parts]),
        )
        return whole, [np.arange(a, b) for a, b in pairwise(bounds)]

    def spacing(self) -> float:
        """Median distance from a vertex to its nearest neighbor (1 for graphs without coordinates)."""
        from gcgp.domain.graph_loops import nearest_distances

        if self.coordinates is None:
            return 1.0 if self.edge_lengths is None else _positive_median(self.edge_lengths)
        sample = self.take(np.arange(min(len(self), 200)))
        assert sample.coordinates is not None
        return _positive_median(nearest_distances(sample.coordinates, sample.vertex_offsets))

    def degrees(self) -> Int[np.ndarray, "total_vertices"]:
        """Number of distinct neighbors of every vertex, itself not counted."""
        return np.diff(self._adjacency().indptr)

    def neighbor_sums(
        self, values: Float[np.ndarray, "total_vertices"]
    ) -> Float[np.ndarray, "total_vertices"]:
        """Σ over the neighbors of each vertex of their values times 1/(1 + length of the edge)."""
        adjacency = self._adjacency()
        adjacency.data = 1 / (1 + adjacency.data)
        return np.asarray(adjacency @ values)

    @property
    def has_unused_edges(self) -> bool:
        """Whether there are edges."""
        return len(self.edges) > 0

    def arrays(self) -> list[np.ndarray | None]:
        """Offsets, edges, their lengths, and coordinates."""
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

    def chart(
        self,
        coordinates: Sequence[str],
        reach: float,
        kind: str = "auto",
        rows: Int[np.ndarray, "chosen"] | None = None,
    ) -> Chart:
        """All pairs with ρ ≤ reach, by straight-line distance or along edges.

        Known coordinates: `rho`; `theta` (two-dimensional coordinates only); `offset` (the
        neighbor's coordinates minus the vertex's own); `degree` (1/√degree of both, as in MoNet).
        """
        from gcgp.domain.graph_loops import pairs_along_edges, pairs_within

        kind = self._kind(kind)
        if kind == "euclidean":
            assert self.coordinates is not None
            row_offsets, neighbors, rho = pairs_within(self.coordinates, self.vertex_offsets, reach)
        else:
            adjacency = self._adjacency()
            row_offsets, neighbors, rho = pairs_along_edges(
                adjacency.indptr, adjacency.indices, adjacency.data, self.vertex_offsets, reach
            )
        columns = {}
        for name in coordinates:
            if name == "rho":
                columns[name] = rho
            elif name in ("theta", "offset"):
                columns[name] = self._direction(name, row_offsets, neighbors)
            elif name == "degree":
                columns[name] = self._degree_coordinates(row_offsets, neighbors)
            else:
                raise unknown_option("coordinate of a graph", name, ("rho", "theta", "offset", "degree"))
        chart = Chart(row_offsets, neighbors, columns)
        return chart if rows is None else chart.restricted(rows)

    def _kind(self, kind: str) -> str:
        if kind not in ("auto", *KINDS):
            raise unknown_option("chart of a graph: kind", kind, ("auto", *KINDS))
        if kind == "euclidean" and self.coordinates is None:
            raise ValueError("chart kind='euclidean' needs graphs with coordinates; these have none")
        return chart_kind(self, kind)

    def _direction(
        self, name: str, row_offsets: Int[np.ndarray, "_"], neighbors: Int[np.ndarray, "pairs"]
    ) -> Float[np.ndarray, "pairs ..."]:
        from gcgp.domain.graph_loops import pair_angles, pair_offsets

        if self.coordinates is None:
            raise ValueError(f"chart coordinate {name!r} needs graphs with coordinates; these have none")
        if name == "theta" and self.coordinates.shape[1] != 2:
            raise ValueError(
                f"chart coordinate 'theta' needs two-dimensional coordinates; these have "
                f"{self.coordinates.shape[1]} dimensions (a weighting by ρ alone, 'diffusion', works)"
            )
        first = np.repeat(self.vertex_offsets[:-1], self.vertex_counts)
        offsets = pair_offsets(self.coordinates, first, row_offsets, neighbors)
        return offsets if name == "offset" else pair_angles(offsets)

    def _degree_coordinates(
        self, row_offsets: Int[np.ndarray, "_"], neighbors: Int[np.ndarray, "pairs"]
    ) -> Float[np.ndarray, "pairs 2"]:
        """(1/√deg x, 1/√deg y), eq. 11 of Monti et al. 2017; an isolated vertex counts as degree 1."""
        inverse = 1.0 / np.sqrt(np.maximum(self.degrees(), 1))
        first = np.repeat(self.vertex_offsets[:-1], self.vertex_counts)
        sources = np.repeat(np.arange(len(first)), np.diff(row_offsets))
        return np.stack([inverse[sources], inverse[first[sources] + neighbors]], axis=1)

    def _adjacency(self) -> scipy.sparse.csr_array:
        """Symmetric lengths of all edges in flat vertex numbers; the shortest of parallel edges."""
        starts = np.repeat(self.vertex_offsets[:-1], np.diff(self.edge_offsets))
        a, b = self.edges[:, 0] + starts, self.edges[:, 1] + starts
        if self.edge_lengths is not None:
            lengths = self.edge_lengths.astype(np.float64)
        elif self.coordinates is not None:
            lengths = np.linalg.norm(self.coordinates[a] - self.coordinates[b], axis=1)
        else:
            lengths = np.ones(len(a))
        proper = a != b
        rows, columns = (
            np.concatenate([a, b])[np.tile(proper, 2)],
            np.concatenate([b, a])[np.tile(proper, 2)],
        )
        lengths = np.tile(lengths[proper], 2)
        order = np.lexsort((lengths, columns, rows))
        rows, columns, lengths = rows[order], columns[order], lengths[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        size = int(self.vertex_offsets[-1])
        indptr = np.searchsorted(rows[first], np.arange(size + 1))
        return scipy.sparse.csr_array((lengths[first], columns[first], indptr), shape=(size, size))


def take_segments(
    offsets: Int[np.ndarray, "segments_plus_1"], indices: Int[np.ndarray, "chosen"]
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "_"]]:
    """Flat positions of the chosen segments, one after the other, and the offsets of the result."""
    lengths = np.diff(offsets)[indices]
    chosen = np.concatenate([[0], np.cumsum(lengths)])
    positions = np.arange(chosen[-1]) + np.repeat(offsets[:-1][indices] - chosen[:-1], lengths)
    return positions, chosen


def join_offsets(parts: Sequence[Int[np.ndarray, "_"]]) -> Int[np.ndarray, "_"]:
    """The offsets of several ragged arrays laid one after the other."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))])


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None


def _positive_median(lengths: Float[np.ndarray, "_"]) -> float:
    lengths = lengths[np.isfinite(lengths) & (lengths > 0)]
    return float(np.median(lengths)) if len(lengths) else 1.0
