"""The convolution: signals on their charts become patches, Z[v] = Σ_v' u_jk(v, v') ψ(v')."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Chart, Signals, Stencil
from gcgp.patches.patches import Patches
from gcgp.weighting import Weighting

COPIES = 4
"""Arrays of the size of the patches that are alive at once while these are made."""
DENSE = 0.5
"""Images of which a larger part is not zero are convolved by torch."""
BYTES_PER_PAIR = 32
"""Neighbor, ρ, θ and what is made of them, for one pair of a chart."""
WEIGHTS_AT_ONCE = 1 << 22
"""Weights held at a time while the bins of a sparse chart are summed."""


@dataclass(frozen=True)
class Convolution:
    """A weighting, and what is appended to the bins of each vertex.

    A patch is `[bins of channel 1, bins of channel 2, …, mass of each bin, position]`.
    """

    weighting: Weighting
    chart: str = "auto"
    """How ρ is measured, where the domain offers a choice: for graphs `euclidean` or `path`."""
    bin_counts: bool = False
    """Append the sum of the weights of each bin: how many vertices lie there."""
    position: bool = False
    """Append the coordinates of the vertex."""
    area_weighted: bool = False
    """Let each vertex count by the area round it, in the bins of others and in the sum over all."""
    dtype: torch.dtype = torch.float32
    """In which the weights are computed and the patches are given."""
    reach: float | None = None
    """How far charts go; None: as far as the weighting does. Learning keeps it fixed while bins move."""

    def columns(self, signals: Signals) -> dict[str, slice]:
        """Which columns of a patch hold the bins, the mass and the position."""
        place = self.weighting.bins * signals.channels
        columns = {"bins": slice(0, place)}
        if self.bin_counts:
            columns["bin_counts"] = slice(place, place + self.weighting.bins)
            place += self.weighting.bins
        if self.position:
            columns["position"] = slice(place, place + _positions(signals).shape[1])
        return columns

    def dim(self, signals: Signals) -> int:
        """Length of a patch."""
        return max(columns.stop for columns in self.columns(signals).values())

    def places(self, signals: Signals) -> Patches:
        """Patches with no columns yet: one at each vertex, and how much it counts."""
        measure, count = self._measure(signals), len(signals.values)
        return Patches(
            torch.zeros(count, 0, dtype=self.dtype),
            torch.ones(count, dtype=self.dtype)
            if measure is None
            else torch.from_numpy(measure).to(self.dtype),
            torch.tensor(signals.offsets),
            torch.arange(count),
        )

    def patches(
        self, signals: Signals, chart: Chart | Stencil | None = None, places: Patches | None = None
    ) -> Patches:
        """All patches of the signals at once, or some of their `places`.

        They are differentiable with respect to the weighting.
        """
        whole = places is None
        places = self.places(signals) if places is None else places
        at = places.vertices.numpy()
        if chart is None:
            chart = self.make_chart(signals, None if whole else at)
        if isinstance(chart, Stencil):
            sums, mass = _on_stencil(self.weighting, chart, signals, self.dtype)
            sums, mass = (sums, mass) if whole else (sums[at], mass[at])
        else:
            sums, mass = _on_chart(self.weighting, chart, signals, self.dtype, self._measure(signals), at)
        parts = [sums.flatten(1)]
        if self.bin_counts:
            parts.append(mass)
        if self.position:
            parts.append(torch.from_numpy(_positions(signals)[chart_rows(signals)[at]]).to(mass.dtype))
        made = replace(places, values=parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
        return made.some(torch.nonzero((mass > 0).all(dim=1))[:, 0]) if self.weighting.complete else made

    def _measure(self, signals: Signals) -> Float[np.ndarray, "total_vertices"] | None:
        """How much each vertex counts, 1 on average over its signal; None: all alike."""
        if not self.area_weighted:
            return None
        measure = signals.domains.measure
        if measure is None:
            raise ValueError("area_weighted=True needs signals on meshes; the vertices of these have no area")
        every = measure[chart_rows(signals)]
        total = np.add.reduceat(every, signals.offsets[:-1])
        flat = np.repeat(total <= 0, signals.vertex_counts)
        share = np.repeat(signals.vertex_counts / np.where(total > 0, total, 1.0), signals.vertex_counts)
        return np.where(flat, 1.0, every * share)  # on a mesh without area all vertices count alike

    def in_runs(
        self, signals: Signals, memory: int, draw: Callable[[Patches, int], Patches] | None = None
    ) -> Iterator[tuple[slice, Patches]]:
        """Runs of signals with their patches, made in about `memory` bytes (one signal at least).

        `draw` chooses among the places of a run, given also the number of its first signal.
        """
        self.prepare(signals)
        chart = self.shared_chart(signals)
        for run in runs(self.bytes_per_signal(signals), memory):
            own = signals[run]
            places = None if draw is None else draw(self.places(own), run.start)
            patches = self.patches(own, chart, places)
            yield run, replace(patches, vertices=patches.vertices + int(signals.offsets[run.start]))

    def make_chart(self, signals: Signals, at: Int[np.ndarray, "chosen"] | None = None) -> Chart | Stencil:
        """The chart of the signals' domains, cut off at the reach, or what these vertices see of it."""
        reach = self.weighting.reach if self.reach is None else self.reach
        wanted = (self.weighting.coordinates, reach, self.chart)
        rows = None if at is None else np.unique(chart_rows(signals)[at])
        return signals.domains.chart(*wanted, rows)

    def prepare(self, signals: Signals) -> None:
        """Have charts of meshes computed by several workers, if joblib is told to; see `Meshes.prepare`."""
        reach = self.weighting.reach if self.reach is None else self.reach
        signals.domains.prepare(self.weighting.coordinates, reach, self.chart)

    def shared_chart(self, signals: Signals) -> Chart | Stencil | None:
        """The chart, if one serves all signals however they are cut into runs; else None."""
        one_for_all = signals.domains.one_chart or len(signals.domains) == 1
        return self.make_chart(signals) if one_for_all else None

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """About how much memory it takes to make the patches of each signal."""
        counts = signals.vertex_counts.astype(np.float64)
        cost = counts * self.dim(signals) * self.dtype.itemsize * COPIES
        if signals.domains.one_chart:
            return cost
        return cost + counts**2 * BYTES_PER_PAIR


def runs(cost: Float[np.ndarray, "items"], budget: float) -> Iterator[slice]:
    """Consecutive runs of items whose cost adds up to at most `budget` (one item at least)."""
    reached = np.cumsum(cost)
    start = 0
    while start < len(cost):
        spent = reached[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(reached, spent + budget, side="right")))
        yield slice(start, stop)
        start = stop


def _positions(signals: Signals) -> Float[np.ndarray, "domain_vertices k"]:
    positions = signals.domains.positions
    if positions is None:
        raise ValueError("position=True needs domains with coordinates; these graphs have none")
    return positions


def chart_rows(signals: Signals) -> Int[np.ndarray, "total_vertices"]:
    """For each vertex of each signal, its row in the chart of the domains."""
    starts = np.concatenate([[0], np.cumsum(signals.domains.vertex_counts)])[:-1]
    shift = starts[signals.domain_of] - signals.offsets[:-1]
    return np.arange(len(signals.values)) + np.repeat(shift, signals.vertex_counts)


def per_mass(mass: Float[Tensor, "rows bins"]) -> Float[Tensor, "rows bins"]:
    """1/mass, and 0 for an empty bin: by selection, because 1/tiny would make its gradient NaN."""
    full = mass > torch.finfo(mass.dtype).tiny
    return torch.where(full, 1 / torch.where(full, mass, 1.0), 0.0)


def _on_stencil(
    weighting: Weighting, stencil: Stencil, signals: Signals, dtype: torch.dtype
) -> tuple[Float[Tensor, "rows channels bins"], Float[Tensor, "rows bins"]]:
    """Sums, or means, by convolution with zero padding, images of one shape together."""
    coordinates = [torch.from_numpy(stencil.coordinates[c]).to(dtype) for c in weighting.coordinates]
    side = int(np.abs(stencil.offsets).max()) * 2 + 1
    filters = weighting(*coordinates).to(dtype).T.reshape(weighting.bins, 1, side, side)
    sums, masses = [], []
    for shape_number, (height, width) in enumerate(
        signals.domains.vertex_shape(i) for i in range(len(signals.domains))
    ):
        members = np.flatnonzero(signals.domain_of == shape_number)
        rows = signals.offsets[members][:, None] + np.arange(height * width)
        images = torch.from_numpy(signals.values[rows]).to(dtype)  # [n, H·W, C]
        shape = (-1, signals.channels, weighting.bins)
        if not filters.requires_grad and float(images.count_nonzero()) < DENSE * images.numel():
            from gcgp.patches.loops import stencil_sums

            grids = images.transpose(1, 2).reshape(len(members), -1, height, width).contiguous()
            turned = filters[:, 0].permute(1, 2, 0).flip(0, 1).contiguous()
            summed = torch.from_numpy(stencil_sums(grids.numpy(), turned.numpy()))
            sums.append(summed.transpose(1, 2).reshape(shape))
        else:
            images = images.transpose(1, 2).reshape(-1, 1, height, width)
            summed = torch.nn.functional.conv2d(images, filters, padding=side // 2)
            summed = summed.reshape(len(members), *shape[1:], height * width)
            sums.append(summed.permute(0, 3, 1, 2).reshape(shape))
        ones = torch.ones(1, 1, height, width, dtype=dtype)
        mass = torch.nn.functional.conv2d(ones, filters, padding=side // 2).reshape(weighting.bins, -1).T
        if weighting.normalize:  # before the masses are repeated, which are the same in all images
            own = sums[-1].reshape(len(members), height * width, *shape[1:])
            sums[-1] = own.mul_(per_mass(mass)[:, None, :]).reshape(shape)
        masses.append(mass.repeat(len(members), 1))
        if len(members) == len(signals):
            return sums[-1], masses[-1]
    order = np.argsort(signals.domain_of, kind="stable")
    placed = np.concatenate([np.arange(*signals.offsets[n : n + 2]) for n in order])
    back = torch.from_numpy(np.argsort(placed))
    return torch.cat(sums)[back], torch.cat(masses)[back]


def _on_chart(
    weighting: Weighting,
    chart: Chart,
    signals: Signals,
    dtype: torch.dtype,
    measure: Float[np.ndarray, "total_vertices"] | None,
    at: Int[np.ndarray, "rows"],
) -> tuple[Float[Tensor, "rows channels bins"], Float[Tensor, "rows bins"]]:
    """Sums, or means, over the sparse neighborhoods of some vertices, a block of chart rows at a time."""
    values = torch.tensor(signals.values, dtype=dtype).numpy()
    ones = np.ones((len(values), 1), dtype=values.dtype)
    values = np.concatenate([values, ones], axis=1)  # masses are the sums of one more channel
    if measure is not None:
        values *= measure[:, None].astype(values.dtype)
    rows = chart_rows(signals)[at]
    bases = np.repeat(signals.offsets[:-1], signals.vertex_counts)[at]
    order = np.argsort(rows, kind="stable")
    sums, masses = [], []
    for block in runs(np.diff(chart.row_offsets) * float(weighting.bins), WEIGHTS_AT_ONCE):
        pairs = slice(chart.row_offsets[block.start], chart.row_offsets[block.stop])
        coordinates = [torch.from_numpy(chart.coordinates[c][pairs]).to(dtype) for c in weighting.coordinates]
        factors = weighting.factors(*coordinates)
        if factors is None:
            weights = weighting(*coordinates)
            factors = weights.new_ones(len(weights), 1), weights
        radial, angular = (factor.to(dtype) for factor in factors)
        members = order[slice(*np.searchsorted(rows[order], [block.start, block.stop]))]
        where = (
            chart.row_offsets[block.start : block.stop + 1] - pairs.start,
            chart.neighbors[pairs],
            rows[members] - block.start,
            bases[members],
        )
        together = _WeightedSums.apply(radial, angular, *where, values)
        summed, mass = together[:, :-1], together[:, -1]
        sums.append(summed * per_mass(mass)[:, None, :] if weighting.normalize else summed)
        masses.append(mass)
    if len(sums) == 1 and np.all(np.diff(order) == 1):
        return sums[0], masses[0]
    back = torch.from_numpy(np.argsort(order))
    return torch.cat(sums)[back], torch.cat(masses)[back]


class _WeightedSums(torch.autograd.Function):
    """`compiled.weighted_sums` with its gradient with respect to the factors of the weights."""

    @staticmethod
    def forward(ctx: Any, radial: Tensor, angular: Tensor, *where: Any) -> Tensor:
        from gcgp.patches.loops import weighted_sums

        ctx.save_for_backward(radial, angular)
        ctx.where = where
        return torch.from_numpy(weighted_sums(radial.detach().numpy(), angular.detach().numpy(), *where))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from gcgp.patches.loops import weighted_sums_pullback

        radial, angular = (factor.numpy() for factor in ctx.saved_tensors)
        row_offsets, neighbors, rows, bases, values = ctx.where
        members = np.argsort(rows, kind="stable")
        by_row = np.searchsorted(rows[members], np.arange(len(row_offsets)))
        pulled = weighted_sums_pullback(
            gradient.contiguous().numpy(),
            radial,
            angular,
            row_offsets,
            by_row,
            members,
            neighbors,
            bases,
            values,
        )
        return *(torch.from_numpy(part) for part in pulled), *[None] * len(ctx.where)
