"""Coarse domains: some vertices of graphs or meshes, with distances that are measured on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from gcgp._numerics.segments import offsets_from_counts, repeat_starts, take_segments
from gcgp.domain.base import Chart, Domains, Rows, Stencil, VertexValues
from gcgp.domain.graphs import Graphs
from gcgp.domain.meshes import Meshes

CENTRALITY_ROUNDS = 5
CENTRALITY_DIGITS = 9
"""Vertices whose centralities differ by less are in the order of their numbers."""
DISTANCE_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Subsets(Domains):
    """Some vertices of each domain.

    A chart has the coordinates of the whole domains, but only these vertices.
    """

    whole: Domains
    kept: Int[np.ndarray, "kept"]
    """Ascending flat indices of the vertices."""
    distance: float
    """The least distance between two of them."""
    areas: Float[np.ndarray, "kept"] | None = None
    """Of each vertex and those that are nearest to it; None if the domains have no areas."""

    coordinate_pattern: ClassVar[str] = "|".join([Graphs.coordinate_pattern, Meshes.coordinate_pattern])

    @classmethod
    def spread(cls, domains: Domains, distance: float, kind: str = "auto") -> Subsets:
        """Vertices that are at least `distance` apart, so many that no other can be added.

        Central vertices come first, so that the numbering of vertices matters for ties only.
        """
        from gcgp.domain.graph_loops import nearest_kept

        chart = domains.chart(["rho"], distance, kind)
        if not isinstance(chart, Chart):
            name = type(domains).__name__.lower()
            raise ValueError(f"stride: {name} have one chart for all vertices and need a `subsampled` method")
        starts = repeat_starts(offsets_from_counts(domains.vertex_counts))
        rho = np.asarray(chart.coordinates["rho"], dtype=np.float64)
        centrality = _centrality(chart, rho / distance, starts)
        owners = nearest_kept(
            chart.row_offsets,
            chart.neighbors,
            rho,
            starts,
            np.lexsort((np.arange(len(starts)), -centrality)),
            distance * (1 - DISTANCE_TOLERANCE),
        )
        kept = np.unique(owners)
        areas = None
        if domains.measure is not None:
            areas = np.bincount(owners, weights=domains.measure, minlength=len(owners))[kept]
        return cls(domains, kept, distance, areas)

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Vertices that are kept of each domain."""
        return np.diff(np.searchsorted(self.kept, self._whole_offsets))

    @property
    def _whole_offsets(self) -> Int[np.ndarray, "domains_plus_1"]:
        return offsets_from_counts(self.whole.vertex_counts)

    @property
    def kept_of_each(self) -> list[Int[np.ndarray, "_"]]:
        """The vertices that are kept, as indices within each domain."""
        offsets = self._whole_offsets
        local = self.kept - repeat_starts(offsets)[self.kept]
        return np.split(local, np.searchsorted(self.kept, offsets[1:-1]))

    @property
    def chart_kinds(self) -> tuple[str, ...]:
        """Those of the whole domains."""
        return self.whole.chart_kinds

    @property
    def oriented(self) -> bool:
        """As in the whole domains."""
        return self.whole.oriented

    def offers(self, coordinate: str) -> bool:
        """Whether charts of the whole domains have it."""
        return self.whole.offers(coordinate)

    @property
    def positions(self) -> Float[np.ndarray, "kept k"] | None:
        """Coordinates of the vertices that are kept."""
        positions = self.whole.positions
        return None if positions is None else positions[self.kept]

    @property
    def measure(self) -> VertexValues | None:
        """The areas."""
        return self.areas

    def spacing(self) -> float:
        """The least distance between two vertices."""
        return self.distance

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Subsets:
        """The chosen domains, in that order."""
        offsets = offsets_from_counts(self.vertex_counts)
        rows, taken = take_segments(offsets, indices)
        whole = self.whole.take(indices)
        shift = offsets_from_counts(whole.vertex_counts)[:-1] - self._whole_offsets[indices]
        kept = self.kept[rows] + np.repeat(shift, np.diff(taken))
        return Subsets(whole, kept, self.distance, None if self.areas is None else self.areas[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[Subsets]) -> tuple[Subsets, list[Int[np.ndarray, "_"]]]:
        """All domains of all parts, one after the other."""
        whole, indices = type(parts[0].whole).concatenate([part.whole for part in parts])
        starts = offsets_from_counts([part._whole_offsets[-1] for part in parts])
        kept = np.concatenate([part.kept + start for part, start in zip(parts, starts[:-1], strict=True)])
        areas = [part.areas for part in parts if part.areas is not None]
        return cls(whole, kept, parts[0].distance, np.concatenate(areas) if areas else None), indices

    def chart(
        self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None
    ) -> Chart | Stencil:
        """The chart of the whole domains without the vertices that are not kept, as centers and neighbors."""
        chart = self.whole.chart(coordinates, reach, kind, self.kept if rows is None else self.kept[rows])
        assert isinstance(chart, Chart)
        number = np.full(int(self._whole_offsets[-1]), -1)
        number[self.kept] = np.arange(len(self.kept)) - repeat_starts(offsets_from_counts(self.vertex_counts))
        starts = np.repeat(repeat_starts(self._whole_offsets), np.diff(chart.row_offsets))
        neighbors = number[starts + chart.neighbors]
        pairs = np.flatnonzero(neighbors >= 0)
        row_offsets = np.searchsorted(pairs, chart.row_offsets)
        return Chart(
            offsets_from_counts(np.diff(row_offsets)[self.kept]),
            neighbors[pairs],
            {name: values[pairs] for name, values in chart.coordinates.items()},
        )

    def prepare(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> None:
        """Compute the charts of the whole domains in advance where that is worthwhile."""
        self.whole.prepare(coordinates, reach, kind)

    def arrays(self) -> list[np.ndarray | None]:
        """Those of the whole domains, and the vertices."""
        return [*self.whole.arrays(), self.kept]


def _centrality(
    chart: Chart, rho: Float[np.ndarray, "pairs"], starts: Int[np.ndarray, "total_vertices"]
) -> Float[np.ndarray, "total_vertices"]:
    """Repeated sums over neighbors with weights exp(−ρ²/2), which do not depend on the order of vertices."""
    flat: Any = np.repeat(starts, np.diff(chart.row_offsets)) + chart.neighbors
    weights, rows = np.exp(-0.5 * rho**2), np.repeat(np.arange(len(starts)), np.diff(chart.row_offsets))
    centrality = np.ones(len(starts))
    for _ in range(CENTRALITY_ROUNDS):
        sums = np.bincount(rows, weights=weights * centrality[flat], minlength=len(starts))
        centrality = np.sqrt(sums)
    return np.round(centrality, CENTRALITY_DIGITS)
