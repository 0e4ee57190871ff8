"""Domains of a single vertex, on which signals live that describe a whole domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.errors import check_choice
from gcgp.domain.base import Chart, Domains, Rows


@dataclass(frozen=True, eq=False)
class Points(Domains):
    """Domains of one vertex each, which is its own only neighbor; the result of pooling.

    >>> Points(3).vertex_counts.tolist()
    [1, 1, 1]
    """

    count: int
    areas: Float[np.ndarray, "domains"] | None = None
    dimensions: int = 0
    """Of the offset of a point to itself: those of the coordinates of the domain that was pooled."""

    coordinate_pattern: ClassVar[str] = "rho|theta|offset|degree"

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Ones."""
        return np.ones(self.count, dtype=np.int64)

    @property
    def measure(self) -> Float[np.ndarray, "domains"] | None:
        """The areas."""
        return self.areas

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Points:
        """The chosen points, in that order."""
        return replace(
            self,
            count=len(indices),
            areas=None if self.areas is None else self.areas[indices],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Points]) -> tuple[Points, list[Int[np.ndarray, "_"]]]:
        """All points of all parts, one after the other."""
        areas = [part.areas for part in parts if part.areas is not None]
        if areas and len(areas) < len(parts):
            raise ValueError("areas are missing in some parts, but others have them")
        counts = [part.count for part in parts]
        points = cls(sum(counts), np.concatenate(areas) if areas else None, parts[0].dimensions)
        return points, np.split(np.arange(points.count), np.cumsum(counts)[:-1])

    def chart(self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None) -> Chart:
        """Each point with itself, whatever the kind: ρ = 0, no direction, no offset, degree 1."""
        values = {
            "rho": np.zeros(self.count),
            "theta": np.full(self.count, np.nan),
            "offset": np.zeros((self.count, self.dimensions)),
            "degree": np.ones((self.count, 2)),
        }
        for name in coordinates:
            check_choice("coordinate of a point", name, tuple(values))
        chart = Chart(
            np.arange(self.count + 1),
            np.zeros(self.count, dtype=np.int64),
            {name: values[name] for name in coordinates},
        )
        return chart if rows is None else chart.restricted(rows)

    def arrays(self) -> list[np.ndarray | None]:
        """The number of points and their areas."""
        return [np.array([self.count]), self.areas]
