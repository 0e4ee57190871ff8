"""A fitted layer: features φ(v) = K_UU^(−1/2) k(U, Z[v]) of the patches of signals, averaged locally."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.domain import Chart, Signals, Stencil
from gcgp.layers.averages import average_reach, local_averages, subsampled
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
    lengthscale: float
    """s; in units of the patches with the RBF kernel."""
    unit: float
    """With the homogeneous kernel, norms of patches are divided by it."""
    centered: bool
    """Whether the mean over bins is subtracted from each channel of a patch."""
    average: float
    """Width of the local average; 0: none."""
    stride: int = 1
    rotation_average: bool = False
    """Whether k is averaged over rotations of the directions of a patch."""

    @property
    def channels(self) -> int:
        """Channels of the result: the number of anchors."""
        return len(self.anchors)

    @cached_property
    def root(self) -> Float[Tensor, "M M"]:
        """R, the inverse of the Cholesky factor of K_UU."""
        norm = self.unit if self.kernel == "homogeneous" else 1.0
        kuu = self._kernel_values(norm * self.anchors.double())
        kuu = 0.5 * (kuu + kuu.T) + JITTER * torch.eye(len(kuu), dtype=kuu.dtype)
        factor = torch.linalg.cholesky(kuu)
        inverse = torch.linalg.solve_triangular(factor, torch.eye(len(kuu), dtype=kuu.dtype), upper=False)
        return inverse.to(self.anchors.dtype)

    def bytes_per_signal(self, signals: Signals) -> Float[np.ndarray, "signals"]:
        """Approximate memory to map each signal."""
        counts = signals.vertex_counts.astype(np.float64)
        features = counts * self.channels * self.convolution.dtype.itemsize * FEATURE_COPIES
        if self.rotations is not None:
            features *= len(self.rotations)
        return self.convolution.bytes_per_signal(signals) + features

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

    def coarse(self, signals: Signals) -> tuple[Signals, np.ndarray]:
        """The signals without channels on the vertices of the result, and which vertices these are."""
        return subsampled(signals, self.stride)

    @torch.no_grad()
    def __call__(self, signals: Signals, charts: LayerCharts | None = None) -> Signals:
        """The signals with the features as channels, on the vertices that the stride keeps."""
        patch_chart, average_chart = charts or (None, None)
        patches = self.prepared(self.convolution.patches(signals, patch_chart).values, signals.channels)
        values = self._kernel_values(patches)
        averaged = local_averages(
            values, signals, self.average, self.stride, average_chart, self.convolution.chart
        )
        coarse, _ = self.coarse(signals)
        features = (averaged @ self.root.to(averaged).T).numpy()
        return Signals(features, coarse.offsets, coarse.domains, coarse.domain_of)

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
        anchors = self.anchors.to(patches.dtype)
        if self.rotations is None:
            return self._kernel(patches, anchors)
        bins = self.rotations.shape[1]
        columns = torch.arange(anchors.shape[1]).reshape(-1, bins)
        turned = [self._kernel(patches, anchors[:, columns[:, turn].flatten()]) for turn in self.rotations]
        return torch.stack(turned).mean(dim=0)

    def _kernel(
        self, patches: Float[Tensor, "rows dim"], anchors: Float[Tensor, "M dim"]
    ) -> Float[Tensor, "rows M"]:
        if self.kernel == "rbf":
            center = anchors.mean(dim=0)
            x, y = (patches - center) / self.lengthscale, (anchors - center) / self.lengthscale
            values = x @ y.T
            values -= 0.5 * x.square().sum(dim=1)[:, None]
            values -= 0.5 * y.square().sum(dim=1)
            return values.clamp_max_(0.0).exp_()
        norms = torch.linalg.vector_norm(patches, dim=1)
        directions = patches / norms.clamp_min(torch.finfo(norms.dtype).tiny)[:, None]
        values = (directions @ anchors.T).sub_(1.0).clamp_max_(0.0).div_(self.lengthscale**2).exp_()
        return values.mul_((norms / self.unit)[:, None])
