"""Meshes as domains of signals, with geodesic charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from joblib import Parallel, delayed

from gcgp._numerics.segments import join_offsets, offsets_from_counts
from gcgp._runtime.cache import cache_folder
from gcgp.domain.base import Chart, Domains, Rows, chart_kind
from gcgp.domain.mesh_charts import MESH_CHART_KINDS, cache_mesh_chart, mesh_chart
from gcgp.domain.mesh_units import warn_about_other_units, warn_about_units
from gcgp.mesh.mesh import Mesh

MAX_RELATIVE_RADIUS = 0.15
"""Largest default radius, relative to the square root of the area."""

SIZE_LIMITS = ("smallest_size", "largest_size")
"""Names of the sizes of training meshes in a signature."""


@dataclass(frozen=True, eq=False)
class Meshes(Domains):
    """A collection of meshes. Positions in space are not used, because they change with the pose."""

    meshes: tuple[Mesh, ...]

    coordinate_pattern: ClassVar[str] = r"rho|theta|rays:\d{1,4}(:curvature|:edge)?"
    costly_charts: ClassVar[bool] = True

    @property
    def oriented(self) -> bool:
        """The first direction of a vertex is arbitrary."""
        return False

    @property
    def chart_kinds(self) -> tuple[str, ...]:
        """Fast marching, or the logarithmic map."""
        return MESH_CHART_KINDS

    def __len__(self) -> int:
        return len(self.meshes)

    def __iter__(self) -> Iterator[Mesh]:
        return iter(self.meshes)

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Number of vertices of each mesh."""
        return np.array([len(mesh.vertices) for mesh in self.meshes], dtype=np.int64)

    @property
    def measure(self) -> Float[np.ndarray, "total_vertices"]:
        """Surface area around each vertex."""
        return np.concatenate([mesh.vertex_areas for mesh in self.meshes])

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Meshes:
        """The chosen meshes, in that order."""
        return replace(self, meshes=tuple(self.meshes[i] for i in indices))

    @classmethod
    def concatenate(cls, parts: Sequence[Meshes]) -> tuple[Meshes, list[Int[np.ndarray, "_"]]]:
        """All meshes of all parts, one after the other."""
        whole = cls(tuple(mesh for part in parts for mesh in part.meshes))
        return whole, np.split(np.arange(len(whole)), np.cumsum([len(part) for part in parts])[:-1])

    def spacing(self) -> float:
        """Median edge length of the first hundred meshes."""
        ends = np.concatenate([mesh.vertices[mesh.edges] for mesh in self.meshes[:100]])
        lengths = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
        return float(np.median(lengths[lengths > 0])) if lengths.any() else 1.0

    def default_radii(self, count: int | None = None) -> tuple[list[float], float]:
        """Equally spaced radii up to 0.15 of the square root of the area, at any mesh resolution."""
        outer = MAX_RELATIVE_RADIUS * float(np.median([mesh.area for mesh in self.meshes])) ** 0.5
        radii = np.linspace(outer / (count or 4), outer, count or 4)
        return radii.tolist(), 0.75 * float(radii[0])

    def arrays(self) -> list[np.ndarray | None]:
        """Vertices and faces of all meshes."""
        return [array for mesh in self.meshes for array in (mesh.vertices, mesh.faces)]

    @property
    def sizes(self) -> Float[np.ndarray, "domains"]:
        """Square root of the area of each mesh."""
        return np.array([mesh.size for mesh in self.meshes])

    def check_training(self, domain_of: Int[np.ndarray, "signals"]) -> None:
        """Warn if the sizes of these meshes suggest that their units differ."""
        warn_about_units(self.meshes, self.sizes, domain_of)

    def signature(self, chart_kinds: Sequence[str], fixed_vertices: bool) -> dict[str, Any]:
        """The smallest and the largest size, too."""
        sizes = self.sizes
        limits = dict(zip(SIZE_LIMITS, (float(sizes.min()), float(sizes.max())), strict=True))
        return super().signature(chart_kinds, fixed_vertices) | limits

    def check_signature(self, signature: Mapping[str, Any], domain_of: Int[np.ndarray, "signals"]) -> None:
        """Warn, too, if the size of a mesh suggests other units than those of the training meshes."""
        super().check_signature(signature, domain_of)
        smallest, largest = (signature.get(name) for name in SIZE_LIMITS)
        if isinstance(smallest, float) and isinstance(largest, float):
            warn_about_other_units(self.meshes, self.sizes, domain_of, (smallest, largest))

    def prepare(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> None:
        """Compute charts in advance with the workers of `joblib.parallel_config`, and cache them.

        With one worker or without a cache nothing is done, and `chart` computes them.
        """
        workers = Parallel()
        if workers.n_jobs == 1 or len(self) < 2 or cache_folder() is None:
            return
        kind = chart_kind(self, kind)
        workers(delayed(cache_mesh_chart)(mesh, tuple(coordinates), reach, kind) for mesh in self.meshes)

    def chart(self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None) -> Chart:
        """All pairs within geodesic distance `reach`; see `mesh_chart` for kinds and coordinates.

        Given `rows`, ascending, only these vertices of all meshes have pairs.
        """
        kind = chart_kind(self, kind)
        parts: Sequence[Rows] = [None] * len(self)
        if rows is not None:
            starts = offsets_from_counts(self.vertex_counts)[:-1]
            split = np.split(rows, np.searchsorted(rows, starts[1:]))
            parts = [part - start for part, start in zip(split, starts, strict=True)]
        charts = [
            mesh_chart(mesh, coordinates, reach, kind, part)
            for mesh, part in zip(self.meshes, parts, strict=True)
        ]
        if len(charts) == 1:
            return charts[0]
        return Chart(
            join_offsets([chart.row_offsets for chart in charts]),
            np.concatenate([chart.neighbors for chart in charts]),
            {name: np.concatenate([chart.coordinates[name] for chart in charts]) for name in coordinates},
        )
