"""Triangular stacks against autograd on dense ones."""

import pytest
import torch

from gcgp.inference import triangular
from gcgp.inference.triangular import SpreadAndVolume, SquaredProducts


@pytest.fixture(params=[2, 3, 100], ids=lambda columns: f"{columns} columns per block")
def problem(request, monkeypatch):
    monkeypatch.setattr(triangular, "COLUMNS_PER_BLOCK", request.param)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    stack = torch.randn(3, 7, 7, dtype=torch.float64, generator=generator, requires_grad=True)
    return rows, stack


def test_squared_products(problem):
    rows, stack = problem
    expected = (rows @ stack.tril()).square().sum(dim=2).T
    torch.testing.assert_close(SquaredProducts.apply(rows, stack), expected)
    torch.autograd.gradcheck(SquaredProducts.apply, (rows, stack))


def test_spread_and_volume(problem):
    _, stack = problem
    lower = stack.tril()
    expected = lower.square().sum() - lower.diagonal(dim1=1, dim2=2).square().log().sum()
    torch.testing.assert_close(SpreadAndVolume.apply(stack), expected)
    torch.autograd.gradcheck(SpreadAndVolume.apply, (stack,))


def test_entries_above_the_diagonal_are_ignored(problem):
    rows, stack = problem
    (SquaredProducts.apply(rows, stack).sum() + SpreadAndVolume.apply(stack)).backward()
    assert stack.grad.triu(1).eq(0).all()
