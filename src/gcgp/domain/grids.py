"""Image grids: every pixel a vertex, joined to its eight neighbors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.errors import unknown_option
from gcgp.domain.base import Domains, Stencil


@dataclass(frozen=True, eq=False)
class Grids(Domains):
    """Image grids, by their heights and widths. Vertices are numbered row by row."""

    shapes: Int[np.ndarray, "domains 2"]

    coordinate_pattern: ClassVar[str] = r"rho|theta|offset"
    one_chart: ClassVar[bool] = True

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Pixels of each grid."""
        return self.shapes.prod(axis=1)

    @property
    def positions(self) -> Float[np.ndarray, "total_vertices 2"]:
        """Column (x) and row (y) of every pixel."""
        grids = [np.indices(shape)[::-1].reshape(2, -1).T for shape in self.shapes]
        return np.concatenate([np.zeros((0, 2)), *grids])

    @property
    def position_dimensions(self) -> int:
        """Column and row."""
        return 2

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

    def extent(self) -> float:
        """Median over grids of the longer side in pixels."""
        return float(np.median(self.shapes.max(axis=1)))

    def vertex_shape(self, domain: int) -> tuple[int, ...]:
        """Height and width."""
        return tuple(self.shapes[domain].tolist())

    def arrays(self) -> list[np.ndarray | None]:
        """The shapes."""
        return [self.shapes]

    def signature(self, chart_kinds: Sequence[str], fixed_vertices: bool) -> dict[str, Any]:
        """The shape, if there is one shape and the model distinguishes vertices."""
        fixed = fixed_vertices and len(self) == 1
        base = super().signature(chart_kinds, fixed_vertices)
        return base | {"shape": self.shapes[0].tolist() if fixed else None}

    def check_signature(self, signature: Mapping[str, Any], domain_of: Int[np.ndarray, "signals"]) -> None:
        """Raise if an image has another shape than the one that training had."""
        super().check_signature(signature, domain_of)
        shape = signature.get("shape")
        wrong = [] if shape is None else [i for i, own in enumerate(self.shapes.tolist()) if own != shape]
        if wrong:
            image = int(np.argmax(np.asarray(domain_of) == wrong[0]))
            raise ValueError(
                f"X: image {image} has shape {self.shapes[wrong[0]].tolist()}, but training had {shape}, "
                "which matters with position or vertex_weights"
            )

    def chart(
        self,
        coordinates: Sequence[str],
        reach: float,
        kind: str = "auto",
        rows: Int[np.ndarray, "chosen"] | None = None,
    ) -> Stencil:
        """One stencil for all pixels: ρ is the 8-neighbor graph distance, θ the angle of the offset.

        Known coordinates: `rho`, `theta`, `offset` (x, y: columns, rows).
        """
        if kind not in ("auto", *self.chart_kinds):
            raise unknown_option("chart of an image grid: kind", kind, ("auto", *self.chart_kinds))
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
