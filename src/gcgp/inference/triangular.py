"""What variational inference needs of stacks of lower triangular matrices, without their empty halves.

By hand, because torch has no product with a triangular matrix, and autograd makes several arrays of the size
of the stack of each operation on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

COLUMNS_AT_ONCE = 192


def _parts(stack: Float[Tensor, "C M M"]) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Columns, the rows below their diagonal block, that block (nothing above its diagonal), and the rest."""
    size = stack.shape[1]
    for start in range(0, size, COLUMNS_AT_ONCE):
        own = slice(start, min(start + COLUMNS_AT_ONCE, size))
        below = slice(own.stop, size)
        yield own, below, stack[:, own, own].tril(), stack[:, below, own]


class SquaredProducts(torch.autograd.Function):
    """|φᵀL|² of each row φ and each matrix L of a stack."""

    @staticmethod
    def forward(ctx: Any, rows: Float[Tensor, "n M"], stack: Float[Tensor, "C M M"]) -> Float[Tensor, "n C"]:
        """The squares."""
        rows, stack = rows.detach(), stack.detach()
        products = rows.new_empty(len(stack), *rows.shape)
        for own, below, block, rest in _parts(stack):
            products[:, :, own] = rows[:, own] @ block
            products[:, :, own] += rows[:, below] @ rest
        ctx.save_for_backward(rows, stack, products)
        return products.square().sum(dim=2).T

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "n C"]) -> tuple[Tensor | None, Tensor | None]:
        """2 φ gᵀ(φᵀL) for L and 2 Σ g L(φᵀL) for φ."""
        rows, stack, products = ctx.saved_tensors
        pulled = products * (2 * gradient.T[:, :, None])
        of_rows = torch.zeros_like(rows) if ctx.needs_input_grad[0] else None
        of_stack = torch.zeros_like(stack) if ctx.needs_input_grad[1] else None
        for own, below, block, rest in _parts(stack):
            part = pulled[:, :, own]
            if of_stack is not None:
                of_stack[:, own, own] = (rows[:, own].T @ part).tril()
                of_stack[:, below, own] = rows[:, below].T @ part
            if of_rows is not None:
                for c in range(len(stack)):
                    of_rows[:, own].addmm_(part[c], block[c].T)
                    of_rows[:, below].addmm_(part[c], rest[c].T)
        return of_rows, of_stack


class SpreadAndVolume(torch.autograd.Function):
    """Σ L² − Σ ln L_ii² over a stack of lower triangular matrices: a KL divergence needs no more of them."""

    @staticmethod
    def forward(ctx: Any, stack: Float[Tensor, "C M M"]) -> Float[Tensor, ""]:
        """The number, in float64."""
        stack = stack.detach()
        ctx.save_for_backward(stack)
        squares = [
            torch.linalg.vector_norm(part).double().square()
            for _, _, block, rest in _parts(stack)
            for part in (block, rest)
            if part.numel()
        ]
        return torch.stack(squares).sum() - stack.diagonal(dim1=1, dim2=2).double().square().log().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, ""]) -> Tensor:
        """2L − 2/L_ii on the diagonal."""
        (stack,) = ctx.saved_tensors
        pulled = torch.zeros_like(stack)
        factor = 2 * gradient.to(stack.dtype)
        for own, below, block, rest in _parts(stack):
            pulled[:, own, own] = block * factor
            torch.mul(rest, factor, out=pulled[:, below, own])
        diagonal = pulled.diagonal(dim1=1, dim2=2)
        diagonal -= factor / stack.diagonal(dim1=1, dim2=2)
        return pulled
