"""The base class of all domains, and charts: the local coordinates in which a vertex sees its neighbors."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from gcgp._numerics.segments import offsets_from_counts

if TYPE_CHECKING:
    from gcgp.domain.subsets import Subsets

Rows: TypeAlias = Int[np.ndarray, "chosen"] | None
VertexValues: TypeAlias = Float[np.ndarray, "total_vertices"]


@dataclass(frozen=True)
class Chart:
    """Sparse local coordinates: for each vertex, the neighbors within reach and their coordinates.

    Rows are the vertices of all domains of a collection, one domain after the other. The pairs of row `v` are
    `row_offsets[v]:row_offsets[v + 1]`. Each vertex is its own neighbor.
    """

    row_offsets: Int[np.ndarray, "rows_plus_1"]
    neighbors: Int[np.ndarray, "pairs"]
    """Index of the neighbor within its own domain."""
    coordinates: Mapping[str, Float[np.ndarray, "pairs ..."]]
    """By name, `[pairs]` or `[pairs, k]`. θ is NaN where there is no direction (at the center)."""

    def restricted(self, rows: Int[np.ndarray, "chosen"]) -> Chart:
        """The same chart, in which only these rows have pairs."""
        pairs = np.flatnonzero(pairs_of(rows, self.row_offsets))
        return Chart(
            np.searchsorted(pairs, self.row_offsets),
            self.neighbors[pairs],
            {name: coordinate[pairs] for name, coordinate in self.coordinates.items()},
        )


@dataclass(frozen=True)
class Stencil:
    """A chart that is the same at each vertex of rectangular grids, given by row and column offsets."""

    offsets: Int[np.ndarray, "pairs 2"]
    coordinates: Mapping[str, Float[np.ndarray, "pairs ..."]]


class Domains(ABC):
    """A collection of domains, stored flat: the base class of image grids, graphs and meshes.

    Several signals may share one domain. To add a kind of domain, implement the abstract members; override
    the others where their defaults do not fit. Model files identify the kind by the name of the class.
    """

    kinds: ClassVar[dict[str, type[Domains]]] = {}
    """All subclasses by name."""
    coordinate_pattern: ClassVar[str] = "rho"
    """Regular expression that matches the names of all coordinates that `chart` offers."""
    one_chart: ClassVar[bool] = False
    """Whether one chart serves all domains and vertices."""
    costly_charts: ClassVar[bool] = False
    """Whether charts take long to compute, so that vertices are sampled before patches are computed."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Domains.kinds[cls.__name__] = cls

    @property
    def chart_kinds(self) -> tuple[str, ...]:
        """How ρ can be measured; `"auto"` stands for the first."""
        return ("path",)

    @property
    def oriented(self) -> bool:
        """Whether a direction means the same at all vertices. If not, kernels average over rotations."""
        return True

    @property
    @abstractmethod
    def vertex_counts(self) -> Int[np.ndarray, "domains"]:
        """Number of vertices of each domain."""

    @property
    def positions(self) -> Float[np.ndarray, "total_vertices k"] | None:
        """Coordinates of each vertex, or None if the domains have none."""
        return None

    @property
    def position_dimensions(self) -> int:
        """Number of coordinates of a vertex; 0 if there are none."""
        return 0 if self.positions is None else self.positions.shape[1]

    @property
    def measure(self) -> VertexValues | None:
        """Area that each vertex represents, or None if all vertices count equally."""
        return None

    def __len__(self) -> int:
        return len(self.vertex_counts)

    @abstractmethod
    def take(self, indices: Int[np.ndarray, "chosen"]) -> Domains:
        """The chosen domains, in that order."""

    @classmethod
    @abstractmethod
    def concatenate(cls, parts: Sequence[Any]) -> tuple[Domains, list[Int[np.ndarray, "_"]]]:
        """One collection of the domains of all parts, and the index in it of each domain of each part."""

    @abstractmethod
    def chart(
        self, coordinates: Sequence[str], reach: float, kind: str = "auto", rows: Rows = None
    ) -> Chart | Stencil:
        """The named coordinates of all pairs with ρ ≤ reach; given `rows`, ascending, only of those rows."""

    def prepare(self, coordinates: Sequence[str], reach: float, kind: str = "auto") -> None:
        """Compute charts in advance where that is worthwhile; by default do nothing."""
        return None

    @abstractmethod
    def arrays(self) -> list[np.ndarray | None]:
        """All arrays that define the domains, for comparison and hashing."""

    def spacing(self) -> float:
        """Typical distance between neighboring vertices: the natural unit of ρ."""
        return 1.0

    def extent(self) -> float:
        """Median over domains of the longest side of the bounding box of the positions."""
        positions = self.positions
        if positions is None or not len(positions):
            return self.spacing()
        starts = offsets_from_counts(self.vertex_counts)[:-1]
        sides = np.maximum.reduceat(positions, starts) - np.minimum.reduceat(positions, starts)
        return float(np.median(sides.max(axis=1)))

    def default_radii(self, count: int | None = None) -> tuple[list[float], float]:
        """`count` radii and their width, from the spacing up to a quarter of the extent.

        Without positions: one, two and three spacings, and a width of half a spacing.
        """
        spacing = self.spacing()
        if self.position_dimensions == 0:
            return [(k + 1) * spacing for k in range(count or 3)], spacing / 2
        outer = max(self.extent() / 4, spacing)
        radii = np.linspace(min(spacing, outer / 7), outer, count or 4)
        return radii.tolist(), 0.75 * float(radii[-1] - radii[0]) / max(1, len(radii) - 1) or outer / 2

    def subsampled(
        self, stride: int, spacing: float = 1.0, kind: str = "auto"
    ) -> tuple[Domains, list[Int[np.ndarray, "_"]]]:
        """Coarse domains, and the vertices of each that are kept: at least `stride · spacing` apart.

        Distances are those of charts of this kind.
        """
        from gcgp.domain.subsets import Subsets

        distance = stride * spacing
        if (distance, kind) not in self._subsets:
            self._subsets[distance, kind] = Subsets.spread(self, distance, kind)
        coarse = self._subsets[distance, kind]
        return coarse, coarse.kept_of_each

    @cached_property
    def _subsets(self) -> dict[tuple[float, str], Subsets]:
        """Coarse domains by distance and chart kind: each layer needs them several times."""
        return {}

    def edge_pairs(self) -> Int[np.ndarray, "edges 2"] | None:
        """Flat vertex indices of the ends of each edge, or None if the domains have no edges to draw."""
        return None

    def neighbor_sums(self, values: VertexValues) -> VertexValues | None:
        """Σ over the neighbors of each vertex of their values, or None if the domains have no edges."""
        return None

    def vertex_shape(self, domain: int) -> tuple[int, ...]:
        """Shape of an array with one entry per vertex of a domain."""
        return (int(self.vertex_counts[domain]),)

    @property
    def has_unused_edges(self) -> bool:
        """Whether there are edges that charts by straight-line distance do not use."""
        return False

    def offers(self, coordinate: str) -> bool:
        """Whether `chart` has a coordinate of this name."""
        return re.fullmatch(self.coordinate_pattern, coordinate) is not None

    def check_training(self, domain_of: Int[np.ndarray, "signals"]) -> None:
        """Warn about anything unusual in the domains of a training set; by default do nothing."""
        return None

    def signature(self, chart_kinds: Sequence[str], fixed_vertices: bool) -> dict[str, Any]:
        """JSON facts about the training domains that signals to predict must share.

        `chart_kinds` are those that the model uses; `fixed_vertices` says that it distinguishes vertices by
        index or position.
        """
        return {"position_dimensions": self.position_dimensions}

    def check_signature(self, signature: Mapping[str, Any], domain_of: Int[np.ndarray, "signals"]) -> None:
        """Raise a ValueError that names the difference if these domains do not match a signature."""
        trained = signature.get("position_dimensions")
        if trained != self.position_dimensions:
            raise ValueError(
                f"X: {self._coordinates_text(self.position_dimensions)}, but training had "
                f"{self._coordinates_text(trained)}; distances would be measured differently"
            )

    def _coordinates_text(self, dimensions: int | None) -> str:
        name = type(self).__name__.lower()
        return f"{name} with {dimensions}-D coordinates" if dimensions else f"{name} without coordinates"


def pairs_of(
    rows: Int[np.ndarray, "chosen"], row_offsets: Int[np.ndarray, "rows_plus_1"]
) -> Bool[np.ndarray, "pairs"]:
    """Mask of the pairs of a chart that belong to these rows."""
    included = np.zeros(len(row_offsets) - 1, dtype=bool)
    included[rows] = True
    return np.repeat(included, np.diff(row_offsets))


def chart_kind(domains: Domains, kind: str) -> str:
    """The chart kind by name: `"auto"` becomes the first kind that these domains offer."""
    return domains.chart_kinds[0] if kind == "auto" else kind
