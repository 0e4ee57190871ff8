"""Charts: the local coordinates in which every vertex sees its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Chart:
    """Sparse local coordinates: for each vertex, the neighbours in reach and where they lie.

    Rows are the vertices of all domains of a collection, one domain after the other; the pairs of
    row `v` are `row_offsets[v]:row_offsets[v + 1]`. The vertex itself is among its neighbours.
    """

    row_offsets: Int[np.ndarray, "rows_plus_1"]
    neighbours: Int[np.ndarray, "pairs"]
    """Number of the neighbour within its own domain."""
    coordinates: Mapping[str, Float[np.ndarray, "pairs ..."]]
    """By name, `[pairs]` or `[pairs, k]`. θ is NaN where there is no direction (the centre)."""

    def seen_from(self, rows: Int[np.ndarray, "chosen"]) -> Chart:
        """The same chart, in which only these rows have pairs."""
        kept = np.flatnonzero(pairs_of(rows, self.row_offsets))
        return Chart(
            np.searchsorted(kept, self.row_offsets),
            self.neighbours[kept],
            {name: coordinate[kept] for name, coordinate in self.coordinates.items()},
        )


@dataclass(frozen=True)
class Stencil:
    """A chart that is the same at each vertex of a regular grid, given by its row and column offsets."""

    offsets: Int[np.ndarray, "pairs 2"]
    coordinates: Mapping[str, Float[np.ndarray, "pairs ..."]]


@runtime_checkable
class Domains(Protocol):
    """A collection of domains, stored flat. Several signals may share one domain."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """How ρ may be measured on these domains; the first is what `auto` means."""
        ...

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Number of vertices of each domain."""
        ...

    @property
    def locations(self) -> Float[np.ndarray, "total_vertices k"] | None:
        """Where each vertex lies, or None if the domains have no coordinates."""
        ...

    @property
    def measure(self) -> Float[np.ndarray, "total_vertices"] | None:
        """How much of its domain each vertex stands for, or None if all count alike."""
        ...

    def __len__(self) -> int: ...

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Domains:
        """The chosen domains, in that order."""
        ...

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> tuple[Domains, list[Int[np.ndarray, "_"]]]:
        """One collection of all parts' domains, and the place in it of each domain of each part."""
        ...

    def spacing(self) -> float:
        """The typical distance between neighbouring vertices: the natural unit of ρ."""
        ...

    def chart(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> Chart | Stencil:
        """The chart with the named coordinates of all pairs with ρ ≤ reach."""
        ...


def pairs_of(
    rows: Int[np.ndarray, "chosen"], row_offsets: Int[np.ndarray, "rows_plus_1"]
) -> Bool[np.ndarray, "pairs"]:
    """Which pairs of a chart are those of these rows."""
    chosen = np.zeros(len(row_offsets) - 1, dtype=bool)
    chosen[rows] = True
    return np.repeat(chosen, np.diff(row_offsets))


def chart_kind(domains: Domains, kind: str) -> str:
    """The chart kind by name: `"auto"` becomes the first kind that these domains offer."""
    return domains.kinds[0] if kind == "auto" else kind


def unknown_option(what: str, value: object, known: Sequence[str]) -> ValueError:
    """The error for an option that does not exist."""
    return ValueError(f"{what}={value!r} is not known; expected one of {', '.join(map(repr, known))}")
