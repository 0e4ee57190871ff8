"""Class probabilities of Gaussian latent functions."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

DRAWS = 512
ROWS_AT_ONCE = 128
"""With as many draws: more are slower, for they leave the cache."""


def normal_draws(classes: int, draws: int = DRAWS, seed: int = 0) -> Float[Tensor, "draws C"]:
    """Quasi-random standard normal vectors (scrambled Sobol points), the same for the same seed."""
    points = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed).draw(draws, dtype=torch.float64)
    return torch.special.ndtri(points.clamp(1e-9, 1 - 1e-9))


def expected_softmax(
    mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], draws: Float[Tensor, "draws C"]
) -> Float[Tensor, "n C"]:
    """E softmax(f) for f ~ N(mean, diag(variance)), by the same draws for every row."""
    parts = []
    for rows in torch.split(torch.arange(len(mean)), max(1, ROWS_AT_ONCE * DRAWS // len(draws))):
        latent = mean[rows, None, :] + variance[rows, None, :].sqrt() * draws
        parts.append(torch.softmax(latent, dim=-1).mean(dim=1))
    return torch.cat(parts) if parts else torch.empty_like(mean)
