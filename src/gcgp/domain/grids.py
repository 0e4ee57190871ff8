"""Image grids: every pixel a vertex, joined to its eight neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from gcgp.domain.chart import Stencil, unknown_option


@dataclass(frozen=True, eq=False)
class Grids:
    """Image grids, by their heights and widths. Vertices are numbered row by row."""

    shapes: Int[np.ndarray, "domains 2"]

    kinds: ClassVar[tuple[str, ...]] = ("path",)

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Pixels of each grid."""
        return self.shapes.prod(axis=1)

    @property
    def locations(self) -> Float[np.ndarray, "total_vertices 2"]:
        """Column (x) and row (y) of every pixel."""
        grids = [np.indices(shape)[::-1].reshape(2, -1).T for shape in self.shapes]
        return np.concatenate([np.zeros((0, 2)), *grids])

    @property
    def measure(self) -> None:
        """None: all vertices count alike."""
        return None

    def __len__(self) -> int:
        return len(self.shapes)

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Grids:
        """The chosen grids, in that order."""
        return Grids(self.shapes[indices])

    @classmethod
    def concatenate(cls, parts: Sequence[Grids]) -> tuple[Grids, list[Int[np.ndarray, "_"]]]:
        """Grids of one shape are one domain."""
        shapes, places = np.unique(
            np.concatenate([part.shapes for part in parts]), axis=0, return_inverse=True
        )
        bounds = np.cumsum([len(part) for part in parts])[:-1]
        return cls(shapes), np.split(places.reshape(-1), bounds)

    def spacing(self) -> float:
        """One pixel."""
        return 1.0

    def chart(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> Stencil:
        """One stencil for all pixels: ρ is the 8-neighbour graph distance, θ the angle of the offset.

        Known coordinates: `rho`, `theta`, `offset` (x, y: columns, rows).
        """
        if kind not in ("auto", *self.kinds):
            raise unknown_option("chart of an image grid: kind", kind, ("auto", *self.kinds))
        # Beyond the longest side there is no pixel, however far the weighting reaches.
        radius = int(min(np.floor(reach), self.shapes.max(initial=1) - 1))
        rows, columns = np.indices((2 * radius + 1, 2 * radius + 1)).reshape(2, -1) - radius
        rho = np.maximum(abs(rows), abs(columns)).astype(np.float64)
        known = {
            "rho": rho,
            "theta": np.where(rho == 0, np.nan, np.arctan2(rows, columns)),
            "offset": np.stack([columns, rows], axis=1).astype(np.float64),
        }
        for name in coordinates:
            if name not in known:
                raise unknown_option("coordinate of an image grid", name, tuple(known))
        return Stencil(np.stack([rows, columns], axis=1), {name: known[name] for name in coordinates})
