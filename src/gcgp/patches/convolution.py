"""The convolution: signals on their charts become patches, Z[v] = Σ_v' u_jk(v, v') ψ(v')."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.memory import runs
from gcgp.domain import Signals, Stencil
from gcgp.patches.bin_sums import chart_sums, stencil_sums
from gcgp.patches.patches import Patches
from gcgp.weighting import Weighting

PATCH_COPIES = 4
"""Arrays of the size of the patches that exist at the same time while patches are computed."""
CHART_BYTES_PER_PAIR = 32
"""Neighbor, ρ, θ and intermediate results of one pair of a chart."""


@dataclass(frozen=True)
class Convolution:
    """A weighting, and the columns that are appended to its bins.

    A patch is `[bins of channel 1, bins of channel 2, …, bin counts, position]`.
    """

    weighting: Weighting
    chart: str = "auto"
    """How ρ is measured; see `Domains.chart_kinds`."""
    bin_counts: bool = False
    """Append the sum of the weights of each bin: the number of vertices in it."""
    position: bool = False
    """Append the coordinates of the vertex."""
    area_weighted: bool = False
    """Weight each vertex by the area it represents, in bins and in the sum over all vertices."""
    dtype: torch.dtype = torch.float32
    """The dtype of weights and patches."""
    reach: float | None = None
    """The reach of charts, fixed while bins are learned; None: the reach of the weighting."""

    def columns(self, signals: Signals) -> dict[str, slice]:
        """The columns of a patch that hold the bins, the bin counts and the position."""
        bins = self.weighting.bins
        widths = {"bins": bins * signals.channels}
        if self.bin_counts:
            widths["bin_counts"] = bins
        if self.position:
            widths["position"] = _positions(signals).shape[1]
        stops = np.cumsum([*widths.values()]).tolist()
        return {
            name: slice(stop - width, stop) for (name, width), stop in zip(widths.items(), stops, strict=True)
        }

    def dim(self, signals: Signals) -> int:
        """Length of a patch."""
        return max(columns.stop for columns in self.columns(signals).values())

    @property
    def layers(self) -> tuple[Any, ...]:
        """Layers that signals pass first: none."""
        return ()

    @property
    def chart_kinds(self) -> list[str]:
        """The kinds of all charts that are used."""
        return [self.chart]

    def patch_domains(self, signals: Signals) -> Signals:
        """Signals on the domains whose vertices have patches: the given ones."""
        return signals

    @property
    def pooled(self) -> bool:
        """Whether there is one patch for all vertices of a signal together."""
        return False

    @property
    def fixed_vertices(self) -> bool:
        """Whether patches distinguish vertices by index or position."""
        return self.position

    def empty_patches(self, signals: Signals) -> Patches:
        """Patches without columns: the multiplicity of each vertex of the signals."""
        measure, count = self._measure(signals), len(signals.values)
        multiplicity = torch.ones(count) if measure is None else torch.from_numpy(measure)
        return Patches(
            torch.zeros(count, 0, dtype=self.dtype),
            multiplicity.to(self.dtype),
            torch.tensor(signals.offsets),
            torch.arange(count),
        )

    def patches(
        self,
        signals: Signals,
        chart: Any = None,
        at: Patches | None = None,
        values: Float[Tensor, "total_vertices channels"] | None = None,
    ) -> Patches:
        """The patches of all vertices, or of some of the `empty_patches`.

        `chart` is the result of `make_chart` or `shared_chart`; None: it is computed here. `values` are
        others than those of the signals. The patches are differentiable with respect to the weighting and
        the values.
        """
        if values is None:
            values = torch.tensor(signals.values, dtype=self.dtype)
        vertices = None if at is None else at.vertices.numpy()
        if chart is None:
            chart = self.make_chart(signals, vertices)
        if isinstance(chart, Stencil):
            sums, counts = stencil_sums(self.weighting, chart, signals, values)
            if vertices is not None:
                sums, counts = sums[vertices], counts[vertices]
        else:
            measure = self._measure(signals)
            sums, counts = chart_sums(self.weighting, chart, signals, values, measure, vertices)
        parts = [sums.flatten(1)]
        if self.bin_counts:
            parts.append(counts)
        if self.position:
            rows = signals.domain_rows if vertices is None else signals.domain_rows[vertices]
            parts.append(torch.from_numpy(_positions(signals)[rows]).to(counts.dtype))
        patches = replace(
            self.empty_patches(signals) if at is None else at,
            values=parts[0] if len(parts) == 1 else torch.cat(parts, dim=1),
        )
        if not self.weighting.complete:
            return patches
        return patches.select_rows(torch.nonzero((counts > 0).all(dim=1))[:, 0])

    def _measure(self, signals: Signals) -> Float[np.ndarray, "total_vertices"] | None:
        """The area of each vertex, divided by the mean over its signal; None if vertices count equally."""
        if not self.area_weighted:
            return None
        measure = signals.domains.measure
        if measure is None:
            raise ValueError("area_weighted=True needs domains with areas, such as meshes; these have none")
        area, counts = measure[signals.domain_rows], signals.vertex_counts
        total = np.add.reduceat(area, signals.offsets[:-1])
        scale = np.repeat(counts / np.where(total > 0, total, 1.0), counts)
        return np.where(np.repeat(total <= 0, counts), 1.0, area * scale)  # 1 on a mesh without area

    def iterate_runs(
        self, signals: Signals, memory: int, draw: Callable[[Patches, int], Patches] | None = None
    ) -> Iterator[tuple[slice, Patches]]:
        """Runs of signals with their patches, each computed in about `memory` bytes (at least one signal).

        `draw` selects from the empty patches of a run, given also the index of its first signal.
        """
        self.prepare(signals)
        chart = self.shared_chart(signals)
        for run in runs(self.bytes_per_signal(signals), memory):
            part = signals[run]
            at = None if draw is None else draw(self.empty_patches(part), run.start)
            patches = self.patches(part, chart, at)
            yield run, replace(patches, vertices=patches.vertices + int(signals.offsets[run.start]))

    def make_chart(self, signals: Signals, vertices: Int[np.ndarray, "chosen"] | None = None) -> Any:
        """The chart of the signals' domains, cut off at the reach; only of these vertices if given."""
        rows = None if vertices is None else np.unique(signals.domain_rows[vertices])
        return signals.domains.chart(*self._chart_arguments(), rows)

    def prepare(self, signals: Signals) -> None:
        """Compute charts in advance where that is worthwhile; see `Meshes.prepare`."""
        signals.domains.prepare(*self._chart_arguments())

    def _chart_arguments(self) -> tuple[Sequence[str], float, str]:
        reach = self.weighting.reach if self.reach is None else self.reach
        return self.weighting.coordinates, reach, self.chart

    def shared_chart(self, signals: Signals) -> Any:
        """The chart, if one serves all runs of these signals; otherwise None."""
        shared = signals.domains.one_chart or len(signals.domains) == 1
        return self.make_chart(signals) if shared else None

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """Approximate memory to compute the patches of each signal."""
        counts = signals.vertex_counts.astype(np.float64)
        cost = counts * self.dim(signals) * self.dtype.itemsize * PATCH_COPIES
        return cost if signals.domains.one_chart else cost + counts**2 * CHART_BYTES_PER_PAIR


def _positions(signals: Signals) -> Float[np.ndarray, "domain_vertices k"]:
    positions = signals.domains.positions
    if positions is None:
        raise ValueError("position=True needs domains with coordinates; these have none")
    return positions
