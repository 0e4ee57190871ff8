"""Cholesky factors of nearly singular and of invalid matrices."""

import warnings

import pytest
import torch

from gcgp.inference.cholesky import NumericalWarning, stable_cholesky


def random_covariance(size=5, rank=5, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(size, rank, generator=generator, dtype=torch.float64)
    return scale * root @ root.T


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_factor_of_matrix_and_jitter_relative_to_the_diagonal(scale):
    matrix = random_covariance(scale=scale)
    factor = stable_cholesky(matrix, 1e-3, "Kuu", "none")
    expected = matrix + 1e-3 * matrix.diagonal().mean() * torch.eye(5)
    assert torch.equal(factor, factor.tril())
    torch.testing.assert_close(factor @ factor.T, expected, rtol=1e-7, atol=1e-7 * scale)


def test_factor_is_in_double_precision():
    assert stable_cholesky(random_covariance().float(), 1e-6, "Kuu", "none").dtype == torch.float64


def test_zero_jitter_adds_none():
    matrix = random_covariance()
    factor = stable_cholesky(matrix, 0.0, "Kuu", "none")
    torch.testing.assert_close(factor @ factor.T, matrix, rtol=1e-12, atol=1e-12)


def test_enough_jitter_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stable_cholesky(random_covariance(rank=2), 1e-6, "Kuu", "none")


def test_increased_jitter_warns_with_name_and_cause():
    matrix = torch.diag(torch.tensor([1.0, 1.0, -1e-5], dtype=torch.float64))
    with pytest.warns(NumericalWarning, match="Kuu needed jitter 0.0001 instead of 1e-06: too alike"):
        factor = stable_cholesky(matrix, 1e-6, "Kuu", "too alike")
    expected = matrix + 1e-4 * matrix.diagonal().mean() * torch.eye(3)
    torch.testing.assert_close(factor @ factor.T, expected, rtol=1e-7, atol=1e-7)


def test_the_largest_jitter_is_tried_from_any_start():
    matrix = torch.diag(torch.tensor([1.0, 1.0, -5e-3], dtype=torch.float64))
    with pytest.warns(NumericalWarning, match="Kuu needed jitter"):
        stable_cholesky(matrix, 3e-6, "Kuu", "too alike")


def test_no_jitter_helps_an_indefinite_matrix():
    matrix = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"Kuu is not positive definite.*0\.01: too alike"):
        stable_cholesky(matrix, 1e-6, "Kuu", "too alike")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_entries_that_are_not_finite_are_an_error(bad):
    matrix = random_covariance()
    matrix[1, 2] = matrix[2, 1] = bad
    with pytest.raises(ValueError, match="Kuu has entries that are not finite: too alike"):
        stable_cholesky(matrix, 1e-6, "Kuu", "too alike")


def test_matrix_of_zeros_is_an_error():
    with pytest.raises(ValueError, match="Kuu"):
        stable_cholesky(torch.zeros(2, 2), 0.0, "Kuu", "no patches")
