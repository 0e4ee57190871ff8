"""Cholesky factors of nearly singular matrices, with a warning or an error that names the cause."""

from __future__ import annotations

import warnings

import torch

from gcgp.inference.shapes import Matrix

LARGEST_JITTER = 1e-2
SMALLEST_JITTER = 1e-12


class NumericalWarning(RuntimeWarning):
    """A matrix needed more jitter than it was given."""


class FactorizationError(ValueError):
    """A matrix has no Cholesky factor: it is not positive definite, or not finite."""


def stable_cholesky(matrix: Matrix, jitter: float, name: str, cause: str) -> Matrix:
    """Lower factor of `matrix` + jitter · mean diagonal · I, in float64; jitter grows tenfold if it fails.

    `name` and the likely `cause` are for the warning and the error. linear_operator's `psd_safe_cholesky`
    adds absolute jitter, which is too little for large matrix entries and too much for small ones.
    """
    matrix = matrix.double()
    if not torch.isfinite(matrix).all():
        raise FactorizationError(f"{name} has entries that are not finite: {cause}")
    scale = matrix.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
    current = jitter
    while True:
        factor, failed = torch.linalg.cholesky_ex(matrix + current * scale * torch.eye(len(matrix)))
        if not failed:
            break
        previous, current = current, min(max(10 * current, SMALLEST_JITTER), LARGEST_JITTER)
        if previous >= current:
            raise FactorizationError(
                f"{name} is not positive definite, even with jitter {LARGEST_JITTER:g}: {cause}"
            )
    if current > max(jitter, SMALLEST_JITTER):
        message = f"{name} needed jitter {current:g} instead of {jitter:g}: {cause}"
        warnings.warn(message, NumericalWarning, stacklevel=2)
    return factor.contiguous()  # products with LAPACK's column-major layout round differently
