"""Operations on stacks of lower triangular matrices that skip their empty halves.

They have their own backward passes, because torch has no product with a triangular matrix, and autograd
allocates several arrays of the size of the stack for each operation on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.inference.shapes import Latent, Rows, Scalar

COLUMNS_PER_BLOCK = 192


def _blocks(stack: Float[Tensor, "C M M"]) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Columns, the rows below their diagonal block, that block without its upper part, and the rest below."""
    size = stack.shape[1]
    for start in range(0, size, COLUMNS_PER_BLOCK):
        columns = slice(start, min(start + COLUMNS_PER_BLOCK, size))
        below = slice(columns.stop, size)
        yield columns, below, stack[:, columns, columns].tril(), stack[:, below, columns]


class SquaredProducts(torch.autograd.Function):
    """|φᵀL|² of each row φ and each matrix L of a stack."""

    @staticmethod
    def forward(ctx: Any, rows: Rows, stack: Float[Tensor, "C M M"]) -> Latent:
        """The squares."""
        rows, stack = rows.detach(), stack.detach()
        products = rows.new_empty(len(stack), *rows.shape)
        for columns, below, block, rest in _blocks(stack):
            products[:, :, columns] = rows[:, columns] @ block
            products[:, :, columns] += rows[:, below] @ rest
        ctx.save_for_backward(rows, stack, products)
        return products.square().sum(dim=2).T

    @staticmethod
    def backward(ctx: Any, gradient: Latent) -> tuple[Tensor | None, Tensor | None]:
        """2 φ gᵀ(φᵀL) for L and 2 Σ g L(φᵀL) for φ."""
        rows, stack, products = ctx.saved_tensors
        by_products = products * (2 * gradient.T[:, :, None])
        by_rows = torch.zeros_like(rows) if ctx.needs_input_grad[0] else None
        by_stack = torch.zeros_like(stack) if ctx.needs_input_grad[1] else None
        for columns, below, block, rest in _blocks(stack):
            part = by_products[:, :, columns]
            if by_stack is not None:
                by_stack[:, columns, columns] = (rows[:, columns].T @ part).tril()
                by_stack[:, below, columns] = rows[:, below].T @ part
            if by_rows is not None:
                for c in range(len(stack)):
                    by_rows[:, columns].addmm_(part[c], block[c].T)
                    by_rows[:, below].addmm_(part[c], rest[c].T)
        return by_rows, by_stack


class SpreadAndVolume(torch.autograd.Function):
    """Σ L² − Σ ln L_ii² over a stack of lower triangular matrices, as in a KL divergence."""

    @staticmethod
    def forward(ctx: Any, stack: Float[Tensor, "C M M"]) -> Scalar:
        """The value, in float64."""
        stack = stack.detach()
        ctx.save_for_backward(stack)
        parts = [part for _, _, block, rest in _blocks(stack) for part in (block, rest) if part.numel()]
        squares = [torch.linalg.vector_norm(part).double().square() for part in parts]
        return torch.stack(squares).sum() - stack.diagonal(dim1=1, dim2=2).double().square().log().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Scalar) -> Tensor:
        """2L, minus 2/L_ii on the diagonal."""
        (stack,) = ctx.saved_tensors
        by_stack = torch.zeros_like(stack)
        factor = 2 * gradient.to(stack.dtype)
        for columns, below, block, rest in _blocks(stack):
            by_stack[:, columns, columns] = block * factor
            torch.mul(rest, factor, out=by_stack[:, below, columns])
        diagonal = by_stack.diagonal(dim1=1, dim2=2)
        diagonal -= factor / stack.diagonal(dim1=1, dim2=2)
        return by_stack
