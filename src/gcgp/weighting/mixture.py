"""Gaussian mixtures on pseudo-coordinates (MoNet, Monti et al. 2017), and oriented Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.weighting.base import Weighting
from gcgp.weighting.polar import cut_off, spread


class GaussianMixture(Weighting):
    """J Gaussians exp(−½(u−μ_j)ᵀΣ_j⁻¹(u−μ_j)) on any pseudo-coordinates u of the chart.

    `means` is `[J, k]`, `scales` `[J, k]` (or one number), and Σ_j⁻¹ = R_jᵀR_j, where R_j has 1/scales on its
    diagonal and `shear[j]` below it. `on` names the coordinates that, side by side, make up u.
    `reach` is how far, in ρ, neighbors are looked for.

    >>> GaussianMixture(means=[[0.3, 0.3], [0.7, 0.7]], scales=0.2, on=["degree"], reach=1).bins
    2
    """

    def __init__(
        self,
        means: Any,
        scales: Any = 1.0,
        shear: Any = None,
        on: Sequence[str] = ("degree",),
        reach: float = 1.0,
        normalize: bool = True,
    ) -> None:
        super().__init__(normalize)
        if isinstance(on, str) or not on:
            raise ValueError(f"GaussianMixture: on={on!r} must be a list of coordinate names")
        if not (math.isfinite(reach) and reach >= 0):
            raise ValueError(f"GaussianMixture: reach={reach!r} must be finite and not negative")
        self.learnable("means", means)
        if self.means.ndim != 2:
            raise ValueError(f"GaussianMixture: means must be [J, k], got {list(self.means.shape)}")
        components, k = self.means.shape
        self.learnable("scales", _shaped("scales", scales, (components, k)), positive=True)
        self.learnable("shear", _shaped("shear", 0.0 if shear is None else shear, (components, k, k)))
        self.on = tuple(on)
        self._reach = float(reach)

    @property
    def coordinates(self) -> tuple[str, ...]:  # type: ignore[override]
        """The pseudo-coordinates chosen by `on`."""
        return self.on

    @property
    def bins(self) -> int:
        """One for each Gaussian."""
        return len(self.means)

    @property
    def reach(self) -> float:
        """As given: the Gaussians need not be functions of ρ."""
        return self._reach

    def forward(self, *coordinates: Float[Tensor, "pairs ..."]) -> Float[Tensor, "pairs J"]:
        """Weights under each Gaussian; a coordinate that is undefined (NaN) counts as 0."""
        u = torch.cat([c.reshape(len(c), -1) for c in coordinates], dim=1).nan_to_num()
        if u.shape[1] != self.means.shape[1]:
            raise ValueError(
                f"GaussianMixture: means have {self.means.shape[1]} dimensions, "
                f"the coordinates {', '.join(self.on)} have {u.shape[1]}"
            )
        root = torch.diag_embed(1 / self.scales) + self.shear.tril(-1)
        whitened = torch.einsum("pjk,jlk->pjl", u[:, None, :] - self.means, root)
        return torch.exp(-0.5 * whitened.square().sum(-1))


def _shaped(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.as_tensor(value, dtype=torch.float64)
    if tensor.ndim > 0 and tensor.shape != shape[-tensor.ndim :]:
        raise ValueError(f"GaussianMixture: {name} must be {list(shape)}, got {list(tensor.shape)}")
    return tensor.expand(shape)


class Anisotropic(Weighting):
    """Gaussians at distance r along each of J directions, wider along (or across) the direction.

    In the frame of direction θ_j a neighbor lies at (ρ cos(θ−θ_j), ρ sin(θ−θ_j)); bin k·J + j is a
    Gaussian around (r_k, 0) with spreads `along` and `across`. With radius 0 these are the oriented
    kernels of anisotropic diffusion (Boscaini et al. 2016).

    >>> Anisotropic(radii=[0, 3], angles=4).bins
    8
    """

    coordinates = ("rho", "theta")

    def __init__(
        self,
        radii: Sequence[float] = (0.0, 3.0),
        angles: SupportsIndex | Sequence[float] = 8,
        along: float = 2.0,
        across: float = 0.8,
        normalize: bool = True,
    ) -> None:
        super().__init__(normalize)
        self.learnable("radii", radii)
        self.learnable("angles", spread(angles, "Anisotropic"))
        self.learnable("along", along, positive=True)
        self.learnable("across", across, positive=True)

    @property
    def bins(self) -> int:
        """Radii times angles."""
        return len(self.radii) * len(self.angles)

    @property
    def reach(self) -> float:
        """Three of the larger spread beyond the outermost radius."""
        return cut_off(self.radii, torch.maximum(self.along, self.across))

    def forward(  # type: ignore[override]
        self, rho: Float[Tensor, "pairs"], theta: Float[Tensor, "pairs"]
    ) -> Float[Tensor, "pairs KJ"]:
        """Weights under each oriented Gaussian; the center, at ρ = 0, needs no direction."""
        turned = theta.nan_to_num()[:, None] - self.angles
        ahead = (rho[:, None] * turned.cos())[:, None, :] - self.radii[:, None]
        aside = (rho[:, None] * turned.sin())[:, None, :]
        return torch.exp(-0.5 * ((ahead / self.along) ** 2 + (aside / self.across) ** 2)).flatten(1)
