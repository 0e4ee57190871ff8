"""Pooling over rotations: patches that differ only in where their first direction points are the same."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor


class RotationAverage(Kernel):
    """The mean of a base kernel over the J rotations of one of its arguments.

    `rotations[s]` says which column of a patch stands in each place once it is turned by s directions. The
    base kernel must not care if both patches are turned alike, as one with the same lengthscale for all
    directions does not; then the mean over the turns of one patch is that over the turns of both.
    """

    rotations: Int[Tensor, "J dim"]

    def __init__(self, base_kernel: Kernel, rotations: Int[Tensor, "J dim"]) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.register_buffer("rotations", rotations)

    @property
    def turns(self) -> int:
        """J."""
        return len(self.rotations)

    def turned(self, patches: Float[Tensor, "*batch rows dim"]) -> Float[Tensor, "*batch rows_times_J dim"]:
        """All J rotations of every patch, those of one patch side by side."""
        return patches[..., self.rotations].flatten(-3, -2)

    def pooled(self, values: Float[Tensor, "*batch rows_times_J"]) -> Float[Tensor, "*batch rows"]:
        """The mean over the rotations of every patch, of values in the order of `turned`."""
        return values.unflatten(-1, (-1, self.turns)).mean(dim=-1)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """As GPyTorch's kernels: the matrix, or its diagonal."""
        values = [self.base_kernel(x1, x2[..., turn], diag=diag, **params) for turn in self.rotations]
        return torch.stack([v if isinstance(v, Tensor) else v.to_dense() for v in values]).mean(dim=0)
