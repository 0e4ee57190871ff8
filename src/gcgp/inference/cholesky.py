"""Cholesky factors that survive nearly singular matrices, and say so."""

from __future__ import annotations

import warnings

import torch
from jaxtyping import Float
from torch import Tensor

LARGEST_JITTER = 1e-2


class NumericalWarning(RuntimeWarning):
    """A matrix needed more jitter than it was given."""


class FactorizationError(ValueError):
    """A matrix has no Cholesky factor: it is not positive definite, or not finite."""


def stable_cholesky(
    matrix: Float[Tensor, "M M"], jitter: float, what: str, cause: str
) -> Float[Tensor, "M M"]:
    """Lower factor of `matrix` + jitter · mean diagonal · I, in float64; jitter grows tenfold until it works.

    `what` names the matrix and `cause` the likely reason, for the warning and for the error at the end.
    """
    matrix = matrix.double()
    if not torch.isfinite(matrix).all():
        raise FactorizationError(f"{what} has entries that are not finite: {cause}")
    scale = matrix.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    current = jitter
    while True:
        factor, failed = torch.linalg.cholesky_ex(matrix + current * scale * torch.eye(len(matrix)))
        if not failed:
            break
        previous, current = current, min(max(10 * current, 1e-12), LARGEST_JITTER)
        if previous >= current:
            raise FactorizationError(
                f"{what} is not positive definite, even with jitter {LARGEST_JITTER:g}: {cause}"
            )
    if current > max(jitter, 1e-12):
        warnings.warn(
            f"{what} needed jitter {current:g} instead of {jitter:g}: {cause}",
            NumericalWarning,
            stacklevel=2,
        )
    return factor.contiguous()  # LAPACK's is column by column, which rounds otherwise than its copy
