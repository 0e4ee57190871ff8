"""Term specifications: terms of a model whose lengthscales and inducing patches are still to be chosen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Signals
from gcgp.inference import Term
from gcgp.inference.context import FitContext
from gcgp.inference.features import RUN_BYTES
from gcgp.kernel import ConvolutionalKernel, RotationAverage, base_kernel
from gcgp.kernel.base import check_columns, lengthscale_parts, prior_variance, set_lengthscales
from gcgp.kernel.inducing import choose_rows, rows_by_content
from gcgp.layers import FittedLayer
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution, Patches
from gcgp.selection.configurations import Configuration
from gcgp.selection.options import ModelOptions
from gcgp.selection.patch_distances import isometric_coordinates, median_distance
from gcgp.weighting import Weighting

Lengthscales = dict[str, Any]
"""For each group of columns: a number, or one per column."""
MAX_INDUCING_CANDIDATES = 20_000
"""Patches among which inducing patches are chosen."""
CANDIDATES_PER_INDUCING = 40
"""Fewer candidates suffice for few inducing patches."""
MAX_TRIAL_PATCHES = 800
"""Per trial signal; fewer with kernels averaged over J rotations, so that trials take no longer."""
LATTICE_COEFFICIENTS = (0.7548776662466927, 0.5698402909980532)
IGNORED_MULTIPLE = 1e6
"""A lengthscale of this many medians: the columns do not count."""


@dataclass(frozen=True)
class TermSpec:
    """A term without lengthscales and inducing patches, with patches to choose them by."""

    convolution: Convolution
    columns: dict[str, slice]
    trial: Patches
    """Patches of the trial signals, repeated ones merged; of large signals a sample."""
    scored: int
    """The first trial signals give no inducing patches: choices are scored on these.

    Signals whose own patches are inducing patches are explained better than new signals will be.
    """
    medians: dict[str, float]
    """Median distance between two patches, for each group of columns."""
    kernel: str | Kernel
    aggregate: str
    vertex_weights: Float[Tensor, "patches_per_signal"] | None
    rotation_average: bool = False
    channel_units: Float[Tensor, "channels"] | None = None
    """Standard deviation of each channel, if lengthscales are proportional to it."""
    patch_limit: int = MAX_TRIAL_PATCHES
    """Patches per trial signal."""
    compact: bool = False
    """Whether the trial patches are coordinates in fewer dimensions, with the same distances."""

    @classmethod
    def build(
        cls,
        convolution: Convolution,
        trial: Signals,
        scored: int,
        kernel: str | Kernel,
        aggregate: str,
        vertex_weights: Float[Tensor, "patches_per_signal"] | None,
        rotation_average: bool,
        channel_units: Float[Tensor, "channels"] | None,
        patch_limit: int,
        memory: int,
        rng: np.random.Generator,
        progress: Callable[[int], None] = lambda count: None,
        *,
        compact: bool = False,
    ) -> TermSpec:
        """Compute the patches of the trial signals and measure their spread.

        `compact`: if there are fewer patches than columns, compare models by coordinates in fewer dimensions.
        """
        columns = convolution.columns(trial)
        if isinstance(kernel, Kernel):
            check_columns(kernel, max(part.stop for part in columns.values()))
        # The base kernel does not matter here: only multiplicities are set.
        weigher = ConvolutionalKernel(base_kernel("rbf", columns), aggregate, vertex_weights)
        rotations = convolution.weighting.rotations if rotation_average else None
        limit = patch_limit if rotations is None else int(patch_limit / len(rotations) ** 0.5)

        def sampled(patches: Patches, first: int) -> Patches:
            if lattice:
                run = convolution.patch_domains(trial[first : first + len(patches)])
                return weigher.weighted(patches.select_rows(lattice_vertices(run, limit)), first)
            return weigher.weighted(patches, first).thinned(limit, rng)

        # Sampling before patches are computed is cheaper, but repeated patches are not merged then.
        early = trial.domains.costly_charts or (patch_limit < MAX_TRIAL_PATCHES and vertex_weights is None)
        lattice = early and trial.domains.one_chart and not convolution.pooled
        parts = []
        with torch.no_grad():
            for run, part in convolution.iterate_runs(
                trial, min(memory, RUN_BYTES), sampled if early else None
            ):
                weighted = part if early else weigher.weighted(part, run.start)
                merged = weighted if weighted.population is not None else weighted.distinct()
                parts.append(merged if lattice else merged.thinned(limit, rng))
                progress(run.stop - run.start)
        patches = Patches.concatenate(parts)
        if len(patches.values) == 0:
            raise ValueError(
                f"{convolution.weighting!r}: no vertex of any signal has a complete patch; "
                "the domains are smaller than the weighting"
            )
        units = {"bins": _column_units(channel_units, columns["bins"], patches.values)}
        medians = {
            name: median_distance(patches.values[:, part] / units.get(name, 1.0), rng)
            for name, part in columns.items()
        }
        isometric = isinstance(kernel, str) and channel_units is None and not rotation_average
        compact = (
            compact and isometric and set(columns) == {"bins"} and len(patches.values) < columns["bins"].stop
        )
        if compact:
            patches = replace(patches, values=isometric_coordinates(patches.values))
            columns = {"bins": slice(0, patches.values.shape[1])}
        return cls(
            convolution,
            columns,
            patches,
            scored,
            medians,
            kernel,
            aggregate,
            vertex_weights,
            rotation_average,
            channel_units,
            patch_limit,
            compact,
        )

    def with_convolution(
        self, convolution: Convolution, trial: Signals, memory: int, rng: np.random.Generator
    ) -> TermSpec:
        """The specification of the same trial signals with another convolution."""
        return TermSpec.build(
            convolution,
            trial,
            self.scored,
            self.kernel,
            self.aggregate,
            self.vertex_weights,
            self.rotation_average,
            self.channel_units,
            self.patch_limit,
            memory,
            rng,
        )

    def without_position(self) -> TermSpec:
        """The same specification with patches that do not contain their position."""
        if "position" not in self.columns:
            return self
        convolution = replace(self.convolution, position=False)
        columns = {name: part for name, part in self.columns.items() if name != "position"}
        width = self.columns["position"].start
        trial = replace(self.trial, values=self.trial.values[:, :width].contiguous()).distinct()
        return replace(self, convolution=convolution, columns=columns, trial=trial)

    def base_kernel(self, lengthscales: Lengthscales) -> Kernel:
        """The base kernel; with these lengthscales unless it is the user's own."""
        if isinstance(self.kernel, str):
            base = base_kernel(self.kernel, self.columns).to(self.convolution.dtype)
            set_lengthscales(base, self._per_column(lengthscales))
        else:
            base = copy.deepcopy(self.kernel).to(self.convolution.dtype)
        return RotationAverage(base, self._rotations()) if self.rotation_average else base

    def _rotations(self) -> Int[Tensor, "J dim"]:
        """The rotations of the bins as permutations of all columns of a patch."""
        rotations = self.convolution.weighting.rotations
        assert rotations is not None
        width, bins = self.columns["bins"].stop, rotations.shape[1]
        channel_starts = torch.arange(0, width, bins)
        columns = [(channel_starts[:, None] + rotations[:, None, :]).flatten(1)]
        if "bin_counts" in self.columns:
            columns.append(rotations + width)
        if "position" in self.columns:
            position = self.columns["position"]
            columns.append(torch.arange(position.start, position.stop).expand(len(rotations), -1))
        return torch.cat(columns, dim=1)

    def inducing(
        self, lengthscales: Lengthscales, count: int, method: str, rng: np.random.Generator
    ) -> Float[Tensor, "M dim"]:
        """Inducing patches for these lengthscales, from trial signals that are not scored."""
        return self.trial.values[self.inducing_rows(lengthscales, count, method, rng)]

    def inducing_rows(
        self, lengthscales: Lengthscales, count: int, method: str, rng: np.random.Generator
    ) -> Int[Tensor, "M"]:
        """Rows of the trial patches that become inducing patches."""
        first = int(self.trial.offsets[self.scored])
        if len(self.trial.values) - first < (count if self.convolution.pooled else 1):
            first = 0  # the other signals have too few patches
        rows = torch.arange(first, len(self.trial.values))
        limit = max(min(MAX_INDUCING_CANDIDATES, CANDIDATES_PER_INDUCING * count), 4 * count)
        scale = self._per_column(lengthscales)
        if len(rows) > limit:
            ordered = rows[rows_by_content(self.trial.values[rows] / scale, rng)]
            rows = ordered[torch.from_numpy(np.sort(rng.permutation(len(rows))[:limit]))]
        chosen = choose_rows(
            self.trial.values[rows],
            count,
            method=method,
            kernel=self.base_kernel(lengthscales).double(),
            scale=scale,
            random_state=rng,
        )
        return rows[chosen]

    def term(self, lengthscales: Lengthscales, inducing: Float[Tensor, "M dim"]) -> Term:
        """The term with these lengthscales and inducing patches."""
        kernel = ConvolutionalKernel(self.base_kernel(lengthscales), self.aggregate, self.vertex_weights)
        return Term(self.convolution, kernel.requires_grad_(False), inducing)

    def _per_column(self, lengthscales: Lengthscales) -> Float[Tensor, "dim"]:
        scales = torch.ones(self.trial.values.shape[1], dtype=self.convolution.dtype)
        for name, part in self.columns.items():
            scales[part] = lengthscales[name]
        return scales

    def lengthscales(self, bins: float, position: float | None = None) -> Lengthscales:
        """Lengthscales as multiples of the medians; without a multiple, the position does not count."""
        scales: Lengthscales = {"bins": bins * self.medians["bins"] * self.bin_units}
        if "bin_counts" in self.columns:
            scales["bin_counts"] = 2 * bins * self.medians["bin_counts"]
        if "position" in self.columns:
            multiple = IGNORED_MULTIPLE if position is None else position
            scales["position"] = multiple * self.medians["position"]
        return scales

    @property
    def bin_units(self) -> Float[Tensor, "bins"] | float:
        """What the lengthscale of each bin is proportional to."""
        return _column_units(self.channel_units, self.columns["bins"], self.trial.values)

    def read_lengthscales(self, kernel: Kernel, default: Lengthscales) -> Lengthscales:
        """The lengthscales of a kernel of this form; `default` for a kernel of the user's own."""
        parts = lengthscale_parts(kernel) if isinstance(self.kernel, str) else []
        if not parts:
            return default
        scales = torch.ones(self.trial.values.shape[1], dtype=self.convolution.dtype)
        for part, dims in parts:
            scales[dims] = part.lengthscale.detach()[0].to(scales.dtype)
        return {name: scales[columns].clone() for name, columns in self.columns.items()}


def build_term_specs(
    configuration: Configuration,
    trial: Signals,
    scored: int,
    options: ModelOptions,
    vertex_weights: Float[Tensor, "vertices"] | None,
    context: FitContext,
    patches_per_signal: int = MAX_TRIAL_PATCHES,
    layers: Sequence[Sequence[FittedLayer]] | None = None,
) -> list[TermSpec]:
    """One specification per weighting of a configuration, with fitted layers for each."""
    units = None
    if configuration.scale_channels:
        spread = torch.from_numpy(trial.values.std(axis=0, dtype=np.float64))
        units = torch.where(spread > 0, spread, 1.0)
    specs = []
    chains = layers or [()] * len(configuration.weightings)
    for weighting, chart, chain in zip(configuration.weightings, configuration.charts, chains, strict=True):
        frozen = copy.deepcopy(weighting).to(context.dtype).requires_grad_(False)
        rotation = options.kernel.rotation_average
        pooled = any(layer.pool is not None for layer in chain)
        specs.append(
            TermSpec.build(
                layered(
                    Convolution(
                        frozen,
                        chart,
                        configuration.bin_counts and not pooled,
                        configuration.position and not pooled,
                        configuration.area_weighted and not pooled,
                        context.dtype,
                    ),
                    chain,
                ),
                trial,
                scored,
                configuration.kernel,
                configuration.aggregate,
                vertex_weights,
                _rotation_average(rotation, weighting, trial.domains.oriented),
                None if chain else units,
                patches_per_signal,
                context.memory,
                context.rng,
                context.progress.update,
                compact=pooled,
            )
        )
    return specs


def _rotation_average(option: Any, weighting: Weighting, oriented: bool) -> bool:
    """Whether the kernel is averaged over rotations of the patches of a weighting."""
    possible = weighting.rotations is not None
    if option is True and not possible:
        raise ValueError(f"rotation_average=True: {weighting!r} has no equally spaced directions")
    return possible and (not oriented if isinstance(option, str) else bool(option))


def constant_variance(specs: Sequence[TermSpec], trial: Signals) -> float:
    """Variance of a constant term of the kernel, relative to the variance of the GP.

    Without it a sum over patches is zero for a signal without patches, and grows with the number of
    vertices. Where all signals have the same number of vertices, or g is averaged, none is needed.
    """
    total = 0.0
    for spec in specs:
        counts = spec.convolution.patch_domains(trial).vertex_counts.astype(np.float64)
        if spec.aggregate == "sum" and np.ptp(counts) > 0:
            with torch.no_grad():
                kernel = spec.base_kernel(spec.lengthscales(1.0))
                total += float(np.mean(counts**2)) * float(prior_variance(kernel, spec.trial.values[:1])[0])
    return total


def _column_units(
    units: Float[Tensor, "channels"] | None, bins: slice, values: Float[Tensor, "rows dim"]
) -> Float[Tensor, "bins"] | float:
    """The unit of the channel of each bin; the bins of a channel are side by side."""
    if units is None:
        return 1.0
    return units.repeat_interleave((bins.stop - bins.start) // len(units)).to(values)


def lattice_vertices(signals: Signals, count: int) -> Int[Tensor, "chosen"]:
    """About `count` vertices of each signal on images, the same ones of all images of one size.

    A random sample of each signal would add noise to its features. The vertices form a quasi-lattice: those
    for which the fractional part of a combination of the coordinates, with the irrational coefficients of the
    R2 sequence, is small.
    """
    positions = signals.domains.positions
    assert positions is not None
    fractions = (positions @ LATTICE_COEFFICIENTS)[signals.domain_rows] % 1.0
    return torch.from_numpy(
        np.flatnonzero(fractions < np.repeat(count / signals.vertex_counts, signals.vertex_counts))
    )
