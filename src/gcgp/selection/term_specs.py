"""From options and training signals to the terms of a model: weightings, lengthscales, inducing patches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.domain import Graphs, Grids, Meshes, Signals
from gcgp.inference import Term
from gcgp.inference.features import RUN_BYTES
from gcgp.kernel import ConvolutionalKernel, RotationAverage, base_kernel
from gcgp.kernel.base import check_columns, lengthscale_parts, set_lengthscales
from gcgp.kernel.inducing import choose_rows, content_order
from gcgp.patches import Convolution, Patches
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial, Weighting

Lengthscales = dict[str, Any]
"""Of each group of columns: a number, or one for each column."""
WEIGHTINGS = ("auto", "polar", "diffusion", "mixture", "anisotropic", "box")
CANDIDATES = 20_000
"""Patches among which inducing patches are chosen."""
TRIAL_PATCHES = 800
"""Of each trial signal; with kernels pooled over J rotations fewer, so that it takes no longer."""
PAIRS_FOR_MEDIAN = 4_000
ROUNDING = 64
"""Units in the last place by which numbers may differ that would be equal without rounding."""
MESH_REACH = 0.15
"""The outermost radius on meshes, as a part of the root of the area."""
MESH_RAYS = 16


def resolve_weightings(option: Any, signals: Signals) -> list[Weighting]:
    """One weighting for each scale, from a name, a weighting, or a list of either."""
    options = option if isinstance(option, (list, tuple)) else [option]
    if not options:
        raise ValueError("weighting=[]: expected one weighting at least")
    return [_weighting(item, signals) for item in options]


def _weighting(option: Any, signals: Signals) -> Weighting:
    if isinstance(option, Weighting):
        return copy.deepcopy(option)
    if not isinstance(option, str) or option not in WEIGHTINGS:
        raise unknown_option("weighting", option, WEIGHTINGS)
    name = option
    if name == "auto":
        name = "polar" if _dimensions(signals) == 2 else "diffusion"
    if name == "box":
        return Box()
    if name == "mixture":
        grid = [[a, b] for a in (0.3, 0.6, 0.9) for b in (0.3, 0.6, 0.9)]
        return GaussianMixture(grid, scales=0.2, on=["degree"], reach=signals.domains.spacing())
    radii, width = natural_radii(signals)
    if name == "polar" and isinstance(signals.domains, Meshes):
        return GeodesicPolar([0.0, *radii], MESH_RAYS, width)
    if name == "polar":
        return Polar(radii, 8, width)
    if name == "anisotropic":
        return Anisotropic([0.0, radii[-1] / 2], 8, along=2 * width, across=width / 2)
    return Radial([0.0, *radii], width)


def natural_radii(signals: Signals, count: int | None = None) -> tuple[list[float], float]:
    """Radii, four if no number is given, from the distance of neighbors to a quarter of the domain's extent.

    And their width. Without coordinates: one, two and three typical edges, and half an edge. On meshes: up
    to a part of the root of their area, whatever the number of their vertices.
    """
    spacing = signals.domains.spacing()
    if isinstance(signals.domains, Meshes):
        outer = MESH_REACH * float(np.median([mesh.area for mesh in signals.domains])) ** 0.5
        radii = np.linspace(outer / (count or 4), outer, count or 4)
        return radii.tolist(), 0.75 * float(radii[0])
    if _dimensions(signals) == 0:
        return [(k + 1) * spacing for k in range(count or 3)], spacing / 2
    outer = max(_extent(signals) / 4, spacing)
    radii = np.linspace(min(spacing, outer / 7), outer, count or 4)
    return radii.tolist(), 0.75 * float(radii[-1] - radii[0]) / max(1, len(radii) - 1) or outer / 2


def _dimensions(signals: Signals) -> int:
    """Dimensions of the coordinates of the domains; 0 if they have none."""
    if isinstance(signals.domains, Grids):
        return 2
    positions = signals.domains.positions
    return 0 if positions is None else positions.shape[1]


def _extent(signals: Signals) -> float:
    """The median, over domains, of the longest side of the box around the vertices."""
    if isinstance(signals.domains, Grids):
        return float(np.median(signals.domains.shapes.max(axis=1)))
    assert isinstance(signals.domains, Graphs)
    assert signals.domains.coordinates is not None
    starts = signals.domains.vertex_offsets[:-1]
    highest = np.maximum.reduceat(signals.domains.coordinates, starts)
    lowest = np.minimum.reduceat(signals.domains.coordinates, starts)
    return float(np.median((highest - lowest).max(axis=1)))


@dataclass(frozen=True)
class TermSpec:
    """One term whose lengthscales and inducing patches are still to be set, with patches to try them on."""

    convolution: Convolution
    columns: dict[str, slice]
    trial: Patches
    """Patches of the trial signals, repeated ones merged; a sample of those of large signals."""
    scored: int
    """So many of the trial signals, the first, give no inducing patches: choices are scored on these.

    Signals whose own patches are inducing patches are explained better than new ones will be.
    """
    medians: dict[str, float]
    """Median distance between two patches, for each group of columns."""
    kernel: str | Kernel
    aggregate: str
    vertex_weights: Float[Tensor, "patches_per_signal"] | None
    pooled: bool = False
    """Whether the kernel is averaged over the rotations of the weighting."""

    @classmethod
    def make(
        cls,
        convolution: Convolution,
        trial: Signals,
        scored: int,
        kernel: str | Kernel,
        aggregate: str,
        vertex_weights: Float[Tensor, "patches_per_signal"] | None,
        pooled: bool,
        memory: int,
        rng: np.random.Generator,
        progress: Callable[[int], None] = lambda done: None,
    ) -> TermSpec:
        """Make the trial signals' patches and measure their spread."""
        columns = convolution.columns(trial)
        if isinstance(kernel, Kernel):
            check_columns(kernel, max(part.stop for part in columns.values()))
        # The base kernel does not matter here: only multiplicities are set.
        weigher = ConvolutionalKernel(base_kernel("rbf", columns), aggregate, vertex_weights)
        turns = convolution.weighting.rotations if pooled else None
        most = int(TRIAL_PATCHES / len(turns) ** 0.5) if turns is not None else TRIAL_PATCHES

        def drawn(patches: Patches, first: int) -> Patches:
            return weigher.weighted(patches, first).thinned(most, rng)

        # Patches of meshes are seldom alike and take long to make, so they are drawn before they are made.
        early = isinstance(trial.domains, Meshes)
        parts = []
        with torch.no_grad():
            for run, part in convolution.in_runs(trial, min(memory, RUN_BYTES), drawn if early else None):
                weighted = part if early else weigher.weighted(part, run.start)
                parts.append(weighted.distinct().thinned(most, rng))
                progress(run.stop - run.start)
        patches = Patches.concatenate(parts)
        if len(patches.values) == 0:
            raise ValueError(
                f"{convolution.weighting!r}: no vertex of any signal has a complete patch; "
                "the domains are smaller than the weighting"
            )
        medians = {name: median_distance(patches.values[:, part], rng) for name, part in columns.items()}
        return cls(convolution, columns, patches, scored, medians, kernel, aggregate, vertex_weights, pooled)

    def kernel_with(self, lengthscales: Lengthscales) -> Kernel:
        """The base kernel, with these lengthscales if it is one of ours."""
        if isinstance(self.kernel, str):
            base = base_kernel(self.kernel, self.columns).to(self.convolution.dtype)
            set_lengthscales(base, self._per_column(lengthscales))
        else:
            base = copy.deepcopy(self.kernel).to(self.convolution.dtype)
        return RotationAverage(base, self._rotations()) if self.pooled else base

    def _rotations(self) -> Int[Tensor, "J dim"]:
        """The rotations of the bins as those of all columns of a patch."""
        turns = self.convolution.weighting.rotations
        assert turns is not None
        width = self.columns["bins"].stop
        bins = turns.shape[1]
        starts = torch.arange(0, width, bins)
        columns = [(starts[:, None] + turns[:, None, :]).flatten(1)]
        if "bin_counts" in self.columns:
            columns.append(turns + width)
        if "position" in self.columns:
            place = self.columns["position"]
            columns.append(torch.arange(place.start, place.stop).expand(len(turns), -1))
        return torch.cat(columns, dim=1)

    def inducing(
        self, lengthscales: Lengthscales, count: int, method: str, rng: np.random.Generator
    ) -> Float[Tensor, "M dim"]:
        """Inducing patches that suit these lengthscales, from the trial signals that are not scored."""
        return self.trial.values[self.inducing_rows(lengthscales, count, method, rng)]

    def inducing_rows(
        self, lengthscales: Lengthscales, count: int, method: str, rng: np.random.Generator
    ) -> Int[Tensor, "M"]:
        """Which of the trial patches these are."""
        first = int(self.trial.offsets[self.scored])
        if first == len(self.trial.values):  # the other signals have no patches at all
            first = 0
        rows = torch.arange(first, len(self.trial.values))
        most = max(CANDIDATES, 4 * count)
        if len(rows) > most:
            ordered = rows[content_order(self.trial.values[rows] / self._per_column(lengthscales), rng)]
            rows = ordered[torch.from_numpy(np.sort(rng.permutation(len(rows))[:most]))]
        chosen = choose_rows(
            self.trial.values[rows],
            count,
            method=method,
            kernel=self.kernel_with(lengthscales).double(),
            scale=self._per_column(lengthscales),
            random_state=rng,
        )
        return rows[chosen]

    def term(self, lengthscales: Lengthscales, inducing: Float[Tensor, "M dim"]) -> Term:
        """The term with these lengthscales, one a group of columns, and inducing patches."""
        base = self.kernel_with(lengthscales)
        kernel = ConvolutionalKernel(base, self.aggregate, self.vertex_weights)
        return Term(self.convolution, kernel.requires_grad_(False), inducing)

    def _per_column(self, lengthscales: Lengthscales) -> Float[Tensor, "dim"]:
        scales = torch.ones(self.trial.values.shape[1], dtype=self.convolution.dtype)
        for name, part in self.columns.items():
            scales[part] = lengthscales[name]
        return scales

    def lengthscales(self, bins: float, position: float | None = None) -> Lengthscales:
        """Lengthscales as multiples of the medians; a position of None does not count at all."""
        scales: Lengthscales = {"bins": bins * self.medians["bins"]}
        if "bin_counts" in self.columns:
            scales["bin_counts"] = 2 * bins * self.medians["bin_counts"]
        if "position" in self.columns:
            scales["position"] = (1e6 if position is None else position) * self.medians["position"]
        return scales

    def read_lengthscales(self, kernel: Kernel, otherwise: Lengthscales) -> Lengthscales:
        """The lengthscales of a kernel like that of this draft, by groups of columns.

        `otherwise`, for a kernel of the user's own, which has none of ours.
        """
        parts = lengthscale_parts(kernel) if isinstance(self.kernel, str) else []
        if not parts:
            return otherwise
        every = torch.ones(self.trial.values.shape[1], dtype=self.convolution.dtype)
        for part, dims in parts:
            every[dims] = part.lengthscale.detach()[0].to(every.dtype)
        return {name: every[columns].clone() for name, columns in self.columns.items()}

    def remade(self, weighting: Weighting, trial: Signals, memory: int, rng: np.random.Generator) -> TermSpec:
        """The draft of the same trial signals with another weighting."""
        return TermSpec.make(
            replace(self.convolution, weighting=weighting),
            trial,
            self.scored,
            self.kernel,
            self.aggregate,
            self.vertex_weights,
            self.pooled,
            memory,
            rng,
        )

    def without_position(self) -> TermSpec:
        """The same draft with patches that do not say where they are."""
        if "position" not in self.columns:
            return self
        convolution = replace(self.convolution, position=False)
        columns = {name: part for name, part in self.columns.items() if name != "position"}
        kept = self.columns["position"].start
        trial = replace(self.trial, values=self.trial.values[:, :kept].contiguous()).distinct()
        return replace(self, convolution=convolution, columns=columns, trial=trial)


def median_distance(rows: Float[Tensor, "rows dim"], rng: np.random.Generator) -> float:
    """Median distance between two rows that differ by more than rounding; 1 if none do."""
    order = content_order(rows, rng)
    a, b = (order[torch.from_numpy(rng.integers(len(rows), size=PAIRS_FOR_MEDIAN))] for _ in range(2))
    left, right = rows[a].double(), rows[b].double()
    distances = (left - right).norm(dim=1)
    # The magnitudes of the pair itself: one extreme row does not make all other distances look like rounding.
    magnitudes = torch.maximum(left.abs(), right.abs()).amax(dim=1) if rows.numel() else distances
    rounding = ROUNDING * torch.finfo(rows.dtype).eps * magnitudes
    distances = distances[distances > rounding]
    return float(distances.median()) if len(distances) else 1.0
