"""Image grids: each pixel is a vertex, joined to its eight neighbors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.errors import check_choice
from gcgp.domain.base import Domains, Rows, Stencil


@dataclass(frozen=True, eq=False)
class Grids(Domains):
    """Image grids, given by height and width. Vertices are numbered row by row."""

    shapes: Int[np.ndarray, "domains 2"]

    coordinate_pattern: ClassVar[str] = r"rho|theta|offset"
    one_chart: ClassVar[bool] = True

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Pixels of each grid."""
        return self.shapes.prod(axis=1)

    @property
    def positions(self) -> Float[np.ndarray, "total_vertices 2"]:
        """Column (x) and row (y) of each pixel."""
        grids = [np.indices(shape)[::-1].reshape(2, -1).T for shape in self.shapes]
        return np.concatenate([np.zeros((0, 2)), *grids])

    @property
    def position_dimensions(self) -> int:
        """Column and row."""
        return 2

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Grids:
        """The chosen grids, in that order."""
        return replace(self, shapes=self.shapes[indices])

    @classmethod
    def concatenate(cls, parts: Sequence[Grids]) -> tuple[Grids, list[Int[np.ndarray, "_"]]]:
        """Grids of equal shape become one domain."""
        shapes = np.concatenate([part.shapes for part in parts])
        unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
        return cls(unique), np.split(inverse.reshape(-1), np.cumsum([len(part) for part in parts])[:-1])

    def extent(self) -> float:
        """Median over grids of the longer side in pixels."""
        return float(np.median(self.shapes.max(axis=1)))

    def subsampled(
        self, stride: int, spacing: float = 1.0, kind: str = "auto"
    ) -> tuple[Grids, list[Int[np.ndarray, "_"]]]:
        """Every `stride`-th row and column, from the middle of the first `stride` ones."""
        kept = [
            np.arange(height * width).reshape(height, width)[stride // 2 :: stride, stride // 2 :: stride]
            for height, width in self.shapes.tolist()
        ]
        for shape, rows in zip(self.shapes.tolist(), kept, strict=True):
            if rows.size == 0:
                raise ValueError(f"stride={stride!r}: an image of shape {shape} is too small")
        return replace(self, shapes=np.array([rows.shape for rows in kept])), [rows.ravel() for rows in kept]

    def vertex_shape(self, domain: int) -> tuple[int, ...]:
        """Height and width."""
        return tuple(self.shapes[domain].tolist())

    def arrays(self) -> list[np.ndarray | None]:
        """The shapes."""
        return [self.shapes]

    def signature(self, chart_kinds: Sequence[str], fixed_vertices: bool) -> dict[str, Any]:
        """Also the shape, if there is one shape and the model distinguishes vertices."""
        shape = self.shapes[0].tolist() if fixed_vertices and len(self) == 1 else None
        return super().signature(chart_kinds, fixed_vertices) | {"shape": shape}

    def check_signature(self, signature: Mapping[str, Any], domain_of: Int[np.ndarray, "signals"]) -> None:
        """Raise if an image has a different shape than the images in training."""
        super().check_signature(signature, domain_of)
        trained = signature.get("shape")
        for i, shape in enumerate(self.shapes.tolist()):
            if trained is not None and shape != trained:
                image = int(np.argmax(domain_of == i))
                raise ValueError(
                    f"X: image {image} has shape {shape}, but training had {trained}, "
                    "which matters with position or vertex_weights"
                )

    def chart(
        self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None
    ) -> Stencil:
        """One stencil for all pixels: ρ is the 8-neighbor graph distance, θ the angle of the offset.

        Coordinates: `rho`, `theta` and `offset` (x, y: columns, rows).
        """
        check_choice("chart of an image grid: kind", kind, ("auto", *self.chart_kinds))
        # Pixels are never further apart than the longest side, whatever the reach.
        radius = int(min(np.floor(reach), self.shapes.max(initial=1) - 1))
        y, x = np.indices((2 * radius + 1, 2 * radius + 1)).reshape(2, -1) - radius
        rho = np.maximum(abs(y), abs(x)).astype(np.float64)
        columns = {
            "rho": rho,
            "theta": np.where(rho == 0, np.nan, np.arctan2(y, x)),
            "offset": np.stack([x, y], axis=1).astype(np.float64),
        }
        for name in coordinates:
            check_choice("coordinate of an image grid", name, tuple(columns))
        return Stencil(np.stack([y, x], axis=1), {name: columns[name] for name in coordinates})
