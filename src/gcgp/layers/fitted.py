"""A fitted layer: features φ(v) = K_UU^(−1/2) k(U, Z[v]) of the patches of signals, averaged locally."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.domain import Chart, Signals, Stencil
from gcgp.layers.averages import Stride, average_reach, local_averages
from gcgp.layers.pooling import Grid, flattened, pooled_outline, pooled_values
from gcgp.patches import Convolution

LayerCharts = tuple[Chart | Stencil | None, Chart | Stencil | None]
"""The charts of the patches and of the local average of a layer."""
LAYER_KERNELS = ("homogeneous", "rbf")
JITTER = 1e-6
"""Added to the diagonal of K_UU, which is 1."""
FEATURE_COPIES = 3
"""Arrays of the size of the features of all vertices that exist at the same time."""


@dataclass(frozen=True, eq=False)
class FittedLayer:
    """A map from signals with d channels to signals with one channel per anchor.

    Any matrix R with RᵀR = K_UU⁻¹ gives the same kernel; R is the inverse of the Cholesky factor.
    """

    convolution: Convolution
    """Of the patches Z; without position."""
    kernel: str
    """`"homogeneous"`, |z| exp((⟨z/|z|, u⟩ − 1)/s²), or `"rbf"`, exp(−|z − u|²/2s²)."""
    anchors: Float[Tensor, "M dim"]
    """U, in units of the patches; of norm 1 with the homogeneous kernel."""
    lengthscale: Float[Tensor, ""]
    """s; in units of the patches with the RBF kernel."""
    unit: float
    """With the homogeneous kernel, norms of patches are divided by it."""
    centered: bool
    """Whether the mean over bins is subtracted from each channel of a patch."""
    average: float
    """Width of the local average; 0: none."""
    stride: int = 1
    spacing: float = 1.0
    """The distance that a stride of 1 stands for, except on images."""
    rotation_average: bool = False
    """Whether k is averaged over rotations of the directions of a patch."""
    skip: bool = False
    """Whether the channels of the result begin with those of the input, averaged and pooled likewise."""
    pool: str | None = None
    """How all vertices become one: `"mean"`, `"sum"`, `"flatten"` or `"grid"`; None: they do not."""
    flattened: int = 1
    """Vertices of each signal that are flattened."""
    grid: Grid | None = None
    """The cells of `pool="grid"`."""
    normalized: bool = False
    """Whether the channels of each vertex of the result are divided by their norm."""

    @property
    def channels(self) -> int:
        """Channels of the result: those of a vertex, for each vertex that is flattened or each cell."""
        cells = self.flattened if self.grid is None else len(self.grid.centers)
        return cells * self.vertex_channels

    @property
    def vertex_channels(self) -> int:
        """One per anchor and, with `skip`, those of the input."""
        return len(self.anchors) + (self.input_channels if self.skip else 0)

    @property
    def input_channels(self) -> int:
        """Channels of the signals that the layer maps."""
        return self.anchors.shape[1] // self.convolution.weighting.bins - self.convolution.bin_counts

    @property
    def learnable(self) -> dict[str, Tensor]:
        """What can be learned, by name: anchors, lengthscale, and the raw parameters of the weighting."""
        weighting = self.convolution.weighting.raw_tensors
        return {"anchors": self.anchors, "lengthscale": self.lengthscale, **weighting}

    @property
    def root(self) -> Float[Tensor, "M M"]:
        """R, the inverse of the Cholesky factor of K_UU; computed once unless it is being learned."""
        learned = self.anchors.requires_grad or self.lengthscale.requires_grad
        return self._inverse_factor() if learned else self._fixed_root

    @cached_property
    def _fixed_root(self) -> Float[Tensor, "M M"]:
        return self._inverse_factor()

    def _inverse_factor(self) -> Float[Tensor, "M M"]:
        norm = self.unit if self.kernel == "homogeneous" else 1.0
        kuu = self._kernel_values(norm * self._unit_anchors(self.anchors.double()))
        identity = torch.eye(len(kuu), dtype=kuu.dtype)
        factor = torch.linalg.cholesky(0.5 * (kuu + kuu.T) + JITTER * identity)
        inverse = torch.linalg.solve_triangular(factor, identity, upper=False)
        return inverse.to(self.anchors.dtype)

    def frozen(self) -> FittedLayer:
        """The layer with its present values and without gradients; anchors have norm 1 again."""
        return replace(
            self,
            convolution=replace(
                self.convolution, weighting=self.convolution.weighting.requires_grad_(False), reach=None
            ),
            anchors=self._unit_anchors(self.anchors.detach()),
            lengthscale=self.lengthscale.detach(),
        )

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """Approximate memory to map each signal."""
        counts = signals.vertex_counts.astype(np.float64)
        features = counts * self.vertex_channels * self.convolution.dtype.itemsize * FEATURE_COPIES
        if self.rotations is not None:
            features *= len(self.rotations)
        pooled = 0 if self.pool is None else self.channels * self.convolution.dtype.itemsize * FEATURE_COPIES
        return self.convolution.bytes_per_signal(signals) + features + pooled

    @property
    def rotations(self) -> Tensor | None:
        """Rotations of the columns of a patch, if k is averaged over them."""
        return self.convolution.weighting.rotations if self.rotation_average else None

    def charts(self, signals: Signals) -> LayerCharts:
        """The charts for these signals."""
        patches = self.convolution.make_chart(signals)
        if self.average == 0 or signals.domains.one_chart:
            return patches, None
        return patches, signals.domains.chart(["rho"], average_reach(self.average), self.convolution.chart)

    @property
    def steps(self) -> Stride:
        """The stride, with the unit and the kind of distances."""
        return Stride(self.stride, self.spacing, self.convolution.chart)

    def subsampled(self, signals: Signals) -> tuple[Signals, np.ndarray]:
        """The signals without channels on the vertices that the stride leaves, and which these are."""
        return self.steps.subsampled(signals)

    def coarse(self, signals: Signals) -> tuple[Signals, np.ndarray]:
        """The signals without channels on the vertices of the result, and which vertices these are."""
        kept, vertices = self.subsampled(signals)
        if self.pool is None:
            return kept, vertices
        outline, first = pooled_outline(kept)
        return outline, vertices[first]

    @torch.no_grad()
    def __call__(self, signals: Signals, charts: LayerCharts | None = None) -> Signals:
        """The signals with the features as channels, on the vertices that stride and pooling leave."""
        values = torch.tensor(signals.values, dtype=self.convolution.dtype)
        coarse, _ = self.coarse(signals)
        features = self.features(signals, values, charts).numpy()
        return Signals(features, coarse.offsets, coarse.domains, coarse.domain_of)

    def features(
        self,
        signals: Signals,
        values: Float[Tensor, "total_vertices channels"],
        charts: LayerCharts | None = None,
    ) -> Float[Tensor, "kept M"]:
        """The channels of the result for these values of the signals.

        They are differentiable with respect to the values and to what is learned.
        """
        patch_chart, average_chart = charts or (None, None)
        patches = self.convolution.patches(signals, patch_chart, values=values).values
        similarities = self._kernel_values(self.prepared(patches, values.shape[1]))
        averaged = self._averaged(similarities, signals, average_chart)
        features = averaged @ self.root.to(averaged).T
        if self.skip:
            features = torch.cat([self._averaged(values, signals, average_chart), features], dim=1)
        if self.pool == "flatten":
            features = flattened(features, self.subsampled(signals)[0], self.flattened)
        if self.grid is not None:
            features = self.grid.sums(features, self.subsampled(signals)[0])
        if self.normalized:
            norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
            features = features / norms.clamp_min(torch.finfo(norms.dtype).tiny)
        return features

    def _averaged(
        self,
        values: Float[Tensor, "total_vertices channels"],
        signals: Signals,
        chart: Chart | Stencil | None,
    ) -> Float[Tensor, "kept channels"]:
        """The values after local averages, stride, and a mean or sum over all vertices."""
        averaged = local_averages(values, signals, self.average, self.steps, chart)
        if self.pool not in ("mean", "sum"):
            return averaged
        return pooled_values(averaged, self.subsampled(signals)[0], mean=self.pool == "mean")

    def prepared(self, patches: Float[Tensor, "rows dim"], channels: int) -> Float[Tensor, "rows dim"]:
        """The patches, centered if they are to be."""
        if not self.centered:
            return patches
        bins = channels * self.convolution.weighting.bins
        values = patches[:, :bins].reshape(len(patches), channels, -1)
        centered = (values - values.mean(dim=2, keepdim=True)).flatten(1)
        return torch.cat([centered, patches[:, bins:]], dim=1) if patches.shape[1] > bins else centered

    def _kernel_values(self, patches: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows M"]:
        """k(z, U), averaged over rotations if it is to be."""
        anchors = self._unit_anchors(self.anchors.to(patches.dtype))
        if self.rotations is None:
            return self._kernel(patches, anchors)
        bins = self.rotations.shape[1]
        columns = torch.arange(anchors.shape[1]).reshape(-1, bins)
        turned = [self._kernel(patches, anchors[:, columns[:, turn].flatten()]) for turn in self.rotations]
        return torch.stack(turned).mean(dim=0)

    def _unit_anchors(self, anchors: Float[Tensor, "M dim"]) -> Float[Tensor, "M dim"]:
        """Anchors of norm 1 with the homogeneous kernel: while they are learned, they need not have it."""
        if self.kernel == "rbf":
            return anchors
        return anchors / torch.linalg.vector_norm(anchors, dim=1, keepdim=True)

    def _kernel(
        self, patches: Float[Tensor, "rows dim"], anchors: Float[Tensor, "M dim"]
    ) -> Float[Tensor, "rows M"]:
        lengthscale = self.lengthscale.to(patches.dtype)
        if self.kernel == "rbf":
            center = anchors.mean(dim=0)
            x, y = (patches - center) / lengthscale, (anchors - center) / lengthscale
            squares = 0.5 * (x.square().sum(dim=1)[:, None] + y.square().sum(dim=1))
            return _exponential(torch.addmm(squares, x, y.T, beta=-1).clamp_max(0.0))
        norms = torch.linalg.vector_norm(patches, dim=1)
        precision = lengthscale**-2
        directions = patches / norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None]
        values = _exponential(torch.addmm(-precision, directions, precision * anchors.T))
        scale = (norms / self.unit)[:, None]
        return values * scale if values.requires_grad else values.mul_(scale)


def _exponential(exponents: Float[Tensor, "rows M"]) -> Float[Tensor, "rows M"]:
    """exp, in place if nothing needs the exponents later."""
    return exponents.exp() if exponents.requires_grad else exponents.exp_()
