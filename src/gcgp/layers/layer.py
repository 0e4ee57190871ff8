"""Layers as users specify them: scikit-learn transformers from signals to signals."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gcgp._runtime.errors import check_auto_or_bool, check_choice, check_integer, check_positive
from gcgp._runtime.memory import as_bytes, runs
from gcgp.domain import Domains, Signals, as_signals
from gcgp.domain.base import chart_kind
from gcgp.layers.averages import Stride
from gcgp.layers.fitted import LAYER_KERNELS, FittedLayer
from gcgp.layers.pooling import POOLS, Grid, check_flattened
from gcgp.patches import Convolution
from gcgp.weighting import Box, Polar, Radial, Weighting

MAX_SAMPLED_SIGNALS = 500
MAX_SAMPLED_PATCHES = 20_000
"""Signals and patches among which anchors are found."""
MIN_SAMPLED_PATCHES = 2_000
MAX_SAMPLED_NUMBERS = 10_000_000
"""Numbers in these patches: of long ones, fewer are sampled."""
KMEANS_ITERATIONS = 20
MIN_NORM = 0.02
"""Directions of patches with a smaller norm, relative to the largest, are noise: anchors ignore them."""
DUPLICATE_DIGITS = 5
DEFAULT_LENGTHSCALES = {"homogeneous": 0.6, "rbf": 0.5}
DEFAULT_SIDE = 5
MAPPED_BYTES = "256 MB"
"""Memory to map a run of signals."""


class Layer(  # type: ignore[call-arg]
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # signals cannot become a data frame
):
    """A layer of a hierarchical model, learned without labels (a convolutional kernel network).

    Each vertex gets the features φ = K_UU^(−1/2) k(U, z) of its patch z, where the anchors U are centers of
    the patches of the training signals (k-means). Features are averaged around each vertex.

    Args:
        weighting: The bins of patches: a `Weighting`, or `"auto"` for squares of 5 pixels on images, polar
            bins with two-dimensional coordinates, and rings otherwise.
        n_anchors: Number of anchors: the channels of the result. Fewer if there are fewer distinct patches.
        kernel: `"homogeneous"`, |z| exp((⟨z/|z|, u⟩ − 1)/s²), which compares directions of patches and keeps
            their norms, or `"rbf"`, exp(−|z − u|²/2s²).
        lengthscale: s; with `"rbf"` relative to the median distance between patches. `"auto"`: 0.6 with the
            homogeneous kernel, 0.5 with the RBF kernel.
        centered: Whether the mean over bins is subtracted from each channel of a patch. `"auto"`: with
            the homogeneous kernel, if there is more than one bin.
        average: Standard deviation of the Gaussian weights of the local average, in units of ρ (pixels, or
            edges of unit length); 0: none.
        stride: On images, keep every `stride`-th row and column; on graphs and meshes, vertices whose
            distances are at least `stride` times the typical distance of neighbors, until none can be added.
        skip: Whether the channels of the result begin with those of the input, averaged likewise. The
            channels of a model then come from neighborhoods of several sizes.
        pool: How all vertices become one, so that what follows is a function of the whole signal instead of
            a sum over vertices: the `"mean"` or the `"sum"` of their features, by area on meshes, or
            `"flatten"`, features of all vertices side by side, for signals on one domain, or `"grid"`, the
            sums of the features around the cells of a grid over the coordinates of the vertices, side by
            side, which suits graphs with coordinates. None: not at all.
        grid: With `pool="grid"`, the number of cells in each direction.
        normalized: Whether the channels of each vertex of the result, or after pooling those of the whole
            signal, are scaled to norm 1: what follows then compares directions, so that contrast or stroke
            width count less.
        chart: How distances are measured; see the argument of the estimators.
        bin_counts: Whether the number of vertices in each bin is part of a patch.
        random_state: Seed of samples and of k-means.

    Attributes:
        layer_: The `FittedLayer`.

    >>> images = np.random.default_rng(0).random((20, 12, 12))
    >>> Layer(n_anchors=8, stride=2).fit_transform(images)
    Signals(20 signals on grids, 36 vertices, 8 channels)
    """

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        n_anchors: int = 128,
        kernel: str = "homogeneous",
        lengthscale: float | str = "auto",
        centered: bool | str = "auto",
        average: float = 0.0,
        stride: int = 1,
        skip: bool = False,
        pool: str | None = None,
        grid: int = 7,
        normalized: bool = False,
        chart: str = "auto",
        bin_counts: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.weighting = weighting
        self.n_anchors = n_anchors
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.centered = centered
        self.average = average
        self.stride = stride
        self.skip = skip
        self.pool = pool
        self.grid = grid
        self.normalized = normalized
        self.chart = chart
        self.bin_counts = bin_counts
        self.random_state = random_state

    def __repr__(self) -> str:
        """All arguments that are not defaults, in one line."""
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        given = {name: repr(value) for name, value in self.get_params(deep=False).items()}
        changed = [f"{name}={text}" for name, text in given.items() if text != repr(defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"

    def validate(self) -> None:
        """Raise a ValueError that names the first argument with an invalid value."""
        check_integer("n_anchors", self.n_anchors)
        check_choice("kernel", self.kernel, LAYER_KERNELS)
        check_positive("lengthscale", self.lengthscale)
        check_auto_or_bool("centered", self.centered)
        if self.average != 0:
            check_positive("average", self.average, auto=False)
        check_integer("stride", self.stride)
        if self.pool is not None:
            check_choice("pool", self.pool, POOLS)
        check_integer("grid", self.grid)
        automatic = isinstance(self.weighting, str) and self.weighting == "auto"
        if not automatic and not isinstance(self.weighting, Weighting):
            raise ValueError(f"weighting={self.weighting!r}: expected 'auto' or a Weighting")
        if not automatic and self.weighting.complete:
            raise ValueError(f"weighting={self.weighting!r}: a layer needs a patch at every vertex")

    def fit(self, X: Any, y: Any = None) -> Layer:
        """Find the anchors among patches of the signals; `y` is ignored."""
        self.layer_ = self.fitted(as_signals(X), torch.float32)
        return self

    def transform(self, X: Any) -> Signals:
        """The features of all signals, as signals; on the same domains unless there is a stride or a pool."""
        check_is_fitted(self, "layer_")
        signals = as_signals(X)
        parts = [
            self.layer_(signals[run])
            for run in runs(self.layer_.bytes_per_signal(signals), as_bytes(MAPPED_BYTES))
        ]
        return Signals.concatenate(parts)

    @property
    def _n_features_out(self) -> int:
        return self.layer_.channels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    @property
    def patches_only(self) -> Layer:
        """The layer without what comes after the kernel: all such layers have the same anchors."""
        return clone(self).set_params(average=0.0, stride=1, skip=False, pool=None, grid=1, normalized=False)

    def fitted(self, signals: Signals, dtype: torch.dtype, similar: FittedLayer | None = None) -> FittedLayer:
        """The layer with anchors from patches of the first signals, or those of a similar layer."""
        self.validate()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        domains = signals.domains
        weighting = self._weighting(domains)
        stride = Stride(int(self.stride), domains.spacing(), chart_kind(domains, self.chart))
        coarse, _ = stride.subsampled(signals)  # raises if that is impossible
        convolution = Convolution(
            weighting.to(dtype).requires_grad_(False),
            chart_kind(domains, self.chart),
            self.bin_counts,
            area_weighted=domains.measure is not None,
            dtype=dtype,
        )
        homogeneous = self.kernel == "homogeneous"
        centered = homogeneous and weighting.bins > 1 if self.centered == "auto" else bool(self.centered)
        scale = DEFAULT_LENGTHSCALES[self.kernel] if self.lengthscale == "auto" else float(self.lengthscale)
        draft = FittedLayer(
            convolution,
            self.kernel,
            torch.zeros(1, 1, dtype=dtype),
            torch.tensor(scale, dtype=torch.float64),
            1.0,
            centered,
            float(self.average),
            stride.steps,
            stride.spacing,
            weighting.rotations is not None and not domains.oriented and not self.bin_counts,
            bool(self.skip),
            self.pool,
            _flattened_vertices(coarse) if self.pool == "flatten" else 1,
            Grid.over(coarse.domains, self.grid) if self.pool == "grid" else None,
            bool(self.normalized),
        )
        if similar is not None:
            anchors, lengthscale = similar.anchors, similar.lengthscale
            return replace(draft, anchors=anchors, lengthscale=lengthscale, unit=similar.unit)
        patches = _sample(draft, signals, rng)
        norms = patches.norm(dim=1)
        unit, anchors = 1.0, patches
        if homogeneous:
            patches = patches[norms > MIN_NORM * norms.max()]
            if len(patches) == 0:  # all patches are zero
                patches = torch.eye(1, anchors.shape[1], dtype=dtype)
            norms = patches.norm(dim=1)
            unit = float(norms.median())
            patches = patches / norms[:, None]
        else:
            scale *= _median_distance(patches, rng)
        anchors = _centers(patches, self.n_anchors, rng)
        if homogeneous:
            norms = anchors.norm(dim=1)
            # The center of opposite directions has none.
            anchors = anchors[norms > MIN_NORM] if bool((norms > MIN_NORM).any()) else patches[:1]
            anchors = anchors / anchors.norm(dim=1, keepdim=True)
        lengthscale = torch.tensor(scale, dtype=torch.float64)
        return replace(draft, anchors=anchors.to(dtype), lengthscale=lengthscale, unit=unit)

    def _weighting(self, domains: Domains) -> Weighting:
        if isinstance(self.weighting, Weighting):
            return copy.deepcopy(self.weighting)
        if domains.one_chart:
            return Box(DEFAULT_SIDE, inside=False)
        spacing = domains.spacing()
        if domains.position_dimensions == 2 and chart_kind(domains, self.chart) == "euclidean":
            radii, width = domains.default_radii(3)
            return Polar(radii, 8, width)
        return Radial([0.0, spacing, 2 * spacing], spacing / 2)


def fit_layers(
    layers: Sequence[Layer],
    signals: Signals,
    dtype: torch.dtype,
    known: dict[str, FittedLayer] | None = None,
) -> tuple[FittedLayer, ...]:
    """Fit layers one after the other, each to the result of those before it.

    `known` layers of the same signals, which differ in averages or pooling only, are not fitted again.
    """
    known = {} if known is None else known
    fitted: list[FittedLayer] = []
    if layers:
        signals = signals[: min(len(signals), MAX_SAMPLED_SIGNALS)]
    for i, layer in enumerate(layers):
        try:
            key = repr([*layers[:i], layer.patches_only])
            fitted.append(layer.fitted(signals, dtype, known.get(key)))
            known.setdefault(key, fitted[-1])
        except ValueError as error:
            raise ValueError(f"layers[{i}]: {error}") from error
        if i + 1 < len(layers):
            budget = runs(fitted[-1].bytes_per_signal(signals), as_bytes(MAPPED_BYTES))
            signals = Signals.concatenate([fitted[-1](signals[run]) for run in budget])
    return tuple(fitted)


def _sample(layer: FittedLayer, signals: Signals, rng: np.random.Generator) -> Float[Tensor, "n dim"]:
    """Random patches of the first `MAX_SAMPLED_SIGNALS` signals."""
    signals = signals[: min(len(signals), MAX_SAMPLED_SIGNALS)]
    count = min(MAX_SAMPLED_PATCHES, MAX_SAMPLED_NUMBERS // layer.convolution.dim(signals))
    share = min(1.0, max(count, MIN_SAMPLED_PATCHES) / len(signals.values))
    parts = []
    for run in runs(layer.bytes_per_signal(signals), as_bytes(MAPPED_BYTES)):
        part = signals[run]
        patches = layer.prepared(layer.convolution.patches(part).values, signals.channels)
        parts.append(patches[torch.from_numpy(rng.random(len(patches)) < share)])
    return torch.cat(parts)


def _flattened_vertices(signals: Signals) -> int:
    """The number of vertices of each signal that are flattened."""
    count = int(signals.vertex_counts[0])
    check_flattened(signals, count)
    return count


def _median_distance(patches: Float[Tensor, "n dim"], rng: np.random.Generator) -> float:
    pairs = torch.from_numpy(rng.integers(len(patches), size=(2, 4_000)))
    distances = (patches[pairs[0]] - patches[pairs[1]]).norm(dim=1)
    positive = distances[distances > 0]
    return float(positive.median()) if len(positive) else 1.0


def _centers(patches: Float[Tensor, "n dim"], count: int, rng: np.random.Generator) -> Float[Tensor, "M dim"]:
    """All distinct patches or, if there are more than `count`, centers of clusters."""
    rows = patches.double().numpy()
    scale = np.abs(rows).max() or 1.0
    _, first = np.unique(np.round(rows / scale, DUPLICATE_DIGITS), axis=0, return_index=True)
    if len(first) <= count:
        return patches[torch.from_numpy(np.sort(first))]
    seed = int(rng.integers(2**31))
    kmeans = KMeans(count, n_init=1, max_iter=KMEANS_ITERATIONS, tol=0.0, random_state=seed)
    return torch.from_numpy(kmeans.fit(rows).cluster_centers_)
