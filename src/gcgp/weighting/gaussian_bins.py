"""Gaussian bins over one coordinate: a distance, or an angle that wraps."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def radial_weights(
    rho: Float[Tensor, "pairs"], radii: Float[Tensor, "K"], width: Float[Tensor, ""]
) -> Float[Tensor, "pairs K"]:
    """exp(−(ρ − ρ_k)² / 2σ_ρ²)."""
    if _is_compiled(rho):
        return _GaussianBins.apply(rho, radii, width, 0.0)
    return torch.exp(-0.5 * ((rho[:, None] - radii) / width) ** 2)


def angular_weights(
    theta: Float[Tensor, "pairs"], angles: Float[Tensor, "J"], width: Float[Tensor, ""]
) -> Float[Tensor, "pairs J"]:
    """exp(−(θ − θ_j)² / 2σ_θ²) with angles that wrap; a neighbor without direction belongs to each bin."""
    if _is_compiled(theta):
        return _GaussianBins.apply(theta, angles, width, 2 * math.pi)
    undirected = theta.isnan()[:, None]
    difference = theta.nan_to_num()[:, None] - angles
    wrapped = torch.remainder(difference + math.pi, 2 * math.pi) - math.pi
    return torch.where(undirected, torch.ones_like(wrapped), torch.exp(-0.5 * (wrapped / width) ** 2))


def _is_compiled(coordinate: Tensor) -> bool:
    return coordinate.dtype == torch.float32 and coordinate.device.type == "cpu"


class _GaussianBins(torch.autograd.Function):
    """`loops.gaussian_bins` with its gradient with respect to the centers and the width."""

    @staticmethod
    def forward(ctx: Any, coordinate: Tensor, centers: Tensor, width: Tensor, period: float) -> Tensor:
        from gcgp.weighting.loops import gaussian_bins

        arguments = (coordinate.numpy(), centers.detach().float().numpy(), float(width.detach()), period)
        weights = torch.from_numpy(gaussian_bins(*arguments))
        ctx.save_for_backward(weights)
        ctx.arguments = arguments
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor, None]:
        from gcgp.weighting.loops import gaussian_bins_pullback

        (weights,) = ctx.saved_tensors
        centers, width = gaussian_bins_pullback(
            gradient.contiguous().numpy(), weights.numpy(), *ctx.arguments
        )
        return None, torch.from_numpy(centers).float(), torch.tensor(width, dtype=torch.float32), None
