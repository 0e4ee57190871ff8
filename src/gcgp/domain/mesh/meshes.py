"""Meshes as domains of signals, with geodesic charts of their vertices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int
from joblib import Parallel, delayed

from gcgp.domain.chart import Chart
from gcgp.domain.graphs import join_offsets
from gcgp.domain.mesh.cache import cache_folder
from gcgp.domain.mesh.charts import KINDS, chart_in_cache, mesh_chart
from gcgp.domain.mesh.mesh import Mesh


@dataclass(frozen=True, eq=False)
class Meshes:
    """A collection of meshes. Where a vertex lies in space is no coordinate of it: poses change that."""

    meshes: tuple[Mesh, ...]

    kinds: ClassVar[tuple[str, ...]] = KINDS

    def __len__(self) -> int:
        return len(self.meshes)

    def __iter__(self) -> Iterator[Mesh]:
        return iter(self.meshes)

    @property
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Vertices of each mesh."""
        return np.array([len(mesh.vertices) for mesh in self.meshes], dtype=np.int64)

    @property
    def locations(self) -> None:
        """None: see above."""
        return None

    @property
    def measure(self) -> Float[np.ndarray, "total_vertices"]:
        """Area of the surface round each vertex."""
        return np.concatenate([mesh.vertex_areas for mesh in self.meshes])

    def take(self, indices: Int[np.ndarray, "chosen"]) -> Meshes:
        """The chosen meshes, in that order."""
        return Meshes(tuple(self.meshes[i] for i in indices))

    @classmethod
    def concatenate(cls, parts: Sequence[Meshes]) -> tuple[Meshes, list[Int[np.ndarray, "_"]]]:
        """All meshes of all parts, one after the other."""
        bounds = np.cumsum([0, *(len(part) for part in parts)])
        whole = cls(tuple(mesh for part in parts for mesh in part.meshes))
        return whole, [np.arange(a, b) for a, b in pairwise(bounds)]

    def spacing(self) -> float:
        """Median length of an edge, over at most a hundred of the meshes."""
        lengths = []
        for mesh in self.meshes[:100]:
            ends = mesh.vertices[mesh.edges]
            lengths.append(np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1))
        every = np.concatenate(lengths)
        every = every[every > 0]
        return float(np.median(every)) if len(every) else 1.0

    def prepare(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> None:
        """Compute charts in advance, by as many workers as `joblib.parallel_config` allows, into the cache.

        Nothing is done where it allows one, or where the cache is off: then `chart` computes them.
        """
        workers = Parallel()
        if workers.n_jobs == 1 or len(self) < 2 or cache_folder() is None:
            return
        named = KINDS[0] if kind == "auto" else kind
        workers(delayed(chart_in_cache)(mesh, tuple(coordinates), reach, named) for mesh in self.meshes)

    def chart(
        self,
        coordinates: Sequence[str],
        reach: float,
        kind: str = "auto",
        rows: Int[np.ndarray, "chosen"] | None = None,
    ) -> Chart:
        """All pairs within geodesic distance `reach`; see `charts.mesh_chart` for kinds and coordinates.

        Given `rows`, in rising order, only these vertices of all meshes have pairs.
        """
        named = KINDS[0] if kind == "auto" else kind
        parts: Sequence[np.ndarray | None] = [None] * len(self)
        if rows is not None:
            starts = np.concatenate([[0], np.cumsum(self.vertex_counts)])
            cuts = np.searchsorted(rows, starts)
            parts = [rows[a:b] - start for (a, b), start in zip(pairwise(cuts), starts[:-1], strict=True)]
        charts = [
            mesh_chart(mesh, coordinates, reach, named, part)
            for mesh, part in zip(self.meshes, parts, strict=True)
        ]
        if len(charts) == 1:
            return charts[0]
        return Chart(
            join_offsets([chart.row_offsets for chart in charts]),
            np.concatenate([chart.neighbours for chart in charts]),
            {name: np.concatenate([chart.coordinates[name] for chart in charts]) for name in coordinates},
        )
