"""The softmax likelihood, and expectations of the softmax of Gaussian latent functions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp._runtime.errors import check_integer
from gcgp.inference.likelihoods.base import Likelihood, row_chunks
from gcgp.inference.shapes import Latent, Observed, PerSignal

PROBABILITY_DRAWS = 512
PROBABILITY_ROWS = 128
"""Rows per chunk with as many draws; larger chunks leave the cache and are slower."""
EXPECTED_LOG_ROWS = 2048
STEP_DRAWS = 32
"""Most draws of one step of stochastic optimization, where each step has other draws."""


@lru_cache(maxsize=16)
def normal_draws(classes: int, draws: int = PROBABILITY_DRAWS, seed: int = 0) -> Float[Tensor, "draws C"]:
    """Quasi-random standard normal vectors (scrambled Sobol points), the same for the same seed."""
    points = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed).draw(draws, dtype=torch.float64)
    return torch.special.ndtri(points.clamp(1e-9, 1 - 1e-9))


def expected_softmax(mean: Latent, variance: Latent, draws: Float[Tensor, "draws C"]) -> Latent:
    """E softmax(f) for f ~ N(mean, diag(variance)), with the same draws for all rows."""
    rows = max(1, PROBABILITY_ROWS * PROBABILITY_DRAWS // len(draws))
    columns = draws.T.contiguous()[:, None, :]
    parts = []
    for m, v in row_chunks(rows, mean, variance):
        # Classes first: the exponentials of draws side by side are vectorized, those of few classes are not.
        latent = torch.addcmul(m.T[:, :, None], v.sqrt().T[:, :, None], columns)
        exponentials = latent.sub_(latent.detach().amax(dim=0)).exp_()
        parts.append(torch.einsum("cnd,nd->nc", exponentials, 1 / exponentials.sum(dim=0)) / len(draws))
    return torch.cat(parts)


@dataclass(eq=False, repr=False)
class Softmax(Likelihood):
    """p(y | f) = softmax(f)_y, by quasi-Monte Carlo with the same draws for all signals.

    The evidence lower bound is then a smooth function. With 256 draws and ten classes its mean over signals
    is accurate to about 1e-3 nats if the standard deviations of f are about 1.

    Args:
        draws: Number of draws for the expected log likelihood.
        seed: Seed of the draws.

    >>> mean = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    >>> Softmax().probabilities(mean, torch.ones_like(mean)).numpy().round(2)
    array([[0.82, 0.18]])
    """

    _: KW_ONLY
    draws: Any = 256
    seed: Any = 0
    name = "softmax"
    task = "classification"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        check_integer("draws", self.draws)
        check_integer("seed", self.seed, 0)

    def expected_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """E log softmax(f)_y."""
        draws = self._antithetic_draws(mean.shape[1])
        return torch.cat(
            [
                m.gather(1, t[:, None])[:, 0] - torch.logsumexp(_latent(m, v, draws), dim=-1).mean(dim=1)
                for m, v, t in row_chunks(EXPECTED_LOG_ROWS, mean, variance, targets)
            ]
        )

    def sites(self, mean: Latent, variance: Latent, targets: Observed) -> tuple[PerSignal, Latent, Latent]:
        """See `Likelihood`; precisions are means of p(1 − p), which are never negative."""
        one_hot = torch.nn.functional.one_hot(targets, mean.shape[1]).to(mean.dtype)
        draws = self._antithetic_draws(mean.shape[1])
        values, probabilities, precisions = [], [], []
        for m, v, chosen in row_chunks(EXPECTED_LOG_ROWS, mean, variance, one_hot):
            latent = _latent(m, v, draws)
            logs = torch.logsumexp(latent, dim=-1, keepdim=True)
            p = latent.sub_(logs).exp_()
            values.append((chosen * m).sum(dim=1) - logs.mean(dim=(1, 2)))
            probabilities.append(p.mean(dim=1))
            precisions.append(probabilities[-1] - p.square_().mean(dim=1))
        return torch.cat(values), one_hot - torch.cat(probabilities), torch.cat(precisions)

    def probabilities(self, mean: Latent, variance: Latent) -> Latent:
        """E softmax(f)."""
        return expected_softmax(mean, variance, normal_draws(mean.shape[1]))

    def predictive(self) -> Softmax:
        """A softmax; the draws of the expected log likelihood do not matter for predictions."""
        return Softmax()

    def resampled(self, seed: int) -> Softmax:
        """Fewer draws with another seed."""
        return Softmax(draws=min(self.draws, STEP_DRAWS), seed=self.seed + seed)

    def _antithetic_draws(self, classes: int) -> Float[Tensor, "draws C"]:
        half = normal_draws(classes, max(1, self.draws // 2), self.seed)
        return torch.cat([half, -half])


def _latent(mean: Latent, variance: Latent, draws: Float[Tensor, "d C"]) -> Float[Tensor, "n d C"]:
    return mean[:, None, :] + variance[:, None, :].sqrt() * draws
