"""Kernels that are invariant to the direction in which the first angular bin of a patch points."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor


class RotationAverage(Kernel):
    """The mean of a base kernel over the J rotations of one of its arguments.

    `rotations[s]` is the permutation of columns that rotates a patch by s directions. The base kernel must be
    invariant to a common rotation of both arguments: its lengthscales are equal in all directions. Then the
    mean over rotations of one argument equals the mean over rotations of both.
    """

    rotations: Int[Tensor, "J dim"]

    def __init__(self, base_kernel: Kernel, rotations: Int[Tensor, "J dim"]) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.register_buffer("rotations", rotations)

    def rotated(self, patches: Float[Tensor, "*batch rows dim"]) -> Float[Tensor, "*batch rows_times_J dim"]:
        """The J rotations of each patch, in consecutive rows."""
        return patches[..., self.rotations].flatten(-3, -2)

    def average(self, values: Float[Tensor, "*batch rows_times_J"]) -> Float[Tensor, "*batch rows"]:
        """The mean over the rotations of each patch, for values in the order of `rotated`."""
        return values.unflatten(-1, (-1, len(self.rotations))).mean(dim=-1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel matrix, or its diagonal."""
        values = [self.base_kernel(x1, x2[..., rotation], diag=diag, **params) for rotation in self.rotations]
        return torch.stack([v if isinstance(v, Tensor) else v.to_dense() for v in values]).mean(dim=0)
