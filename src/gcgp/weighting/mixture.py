"""Gaussian mixtures on pseudo-coordinates (MoNet, Monti et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.weighting.base import ArgumentTypes, Weighting


class GaussianMixture(Weighting):
    """J Gaussians exp(−½(u−μ_j)ᵀΣ_j⁻¹(u−μ_j)) on any pseudo-coordinates u of the chart.

    `means` is `[J, k]`, `scales` `[J, k]` (or one number), and Σ_j⁻¹ = R_jᵀR_j, where R_j has 1/scales on its
    diagonal and `shear[j]` below it. u concatenates the coordinates named by `on`. `reach` is the distance ρ
    up to which neighbors are included.

    >>> GaussianMixture(means=[[0.3, 0.3], [0.7, 0.7]], scales=0.2, on=["degree"], reach=1).bins
    2
    """

    argument_types: ClassVar[ArgumentTypes] = {"means": 2, "scales": 2, "shear": 3, "on": list, "reach": 0}

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
        J, k = self.means.shape
        self.learnable("scales", _expanded("scales", scales, (J, k)), positive=True, given=scales)
        self.learnable("shear", _expanded("shear", 0.0 if shear is None else shear, (J, k, k)), given=shear)
        self.on = tuple(on)
        self._reach = float(reach)

    @property
    def coordinates(self) -> tuple[str, ...]:  # type: ignore[override]
        """The pseudo-coordinates named by `on`."""
        return self.on

    @property
    def bins(self) -> int:
        """One per Gaussian."""
        return len(self.means)

    @property
    def reach(self) -> float:
        """As given: the Gaussians need not be functions of ρ."""
        return self._reach

    def forward(self, *coordinates: Float[Tensor, "pairs ..."]) -> Float[Tensor, "pairs J"]:
        """Weights under each Gaussian; an undefined coordinate (NaN) counts as 0."""
        u = torch.cat([c.reshape(len(c), -1) for c in coordinates], dim=1).nan_to_num()
        if u.shape[1] != self.means.shape[1]:
            raise ValueError(
                f"GaussianMixture: means have {self.means.shape[1]} dimensions, "
                f"the coordinates {', '.join(self.on)} have {u.shape[1]}"
            )
        root = torch.diag_embed(1 / self.scales) + self.shear.tril(-1)
        whitened = torch.einsum("pjk,jlk->pjl", u[:, None, :] - self.means, root)
        return torch.exp(-0.5 * whitened.square().sum(-1))


def _expanded(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.as_tensor(value, dtype=torch.float64)
    if tensor.ndim > 0 and tensor.shape != shape[-tensor.ndim :]:
        raise ValueError(f"GaussianMixture: {name} must be {list(shape)}, got {list(tensor.shape)}")
    return tensor.expand(shape)
