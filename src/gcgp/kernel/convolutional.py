"""The kernel between signals: k(ψ, ψ') = Σ_v Σ_v' k_g(Z[v], Z'[v']) (Walker & Glocker 2019, eq. 9)."""

from __future__ import annotations

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.kernel import sums
from gcgp.kernel.base import evaluate, on_device
from gcgp.kernel.engine.precision import far_apart
from gcgp.patches import Patches

AGGREGATES = ("sum", "mean")


class ConvolutionalKernel(gpytorch.Module):
    """A base kernel k_g summed (the paper) or averaged (GPflow) over all pairs of patches.

    `vertex_weights`, if given, weigh the patches of a domain that all signals share, as in the weighted
    convolutional GP of van der Wilk et al. (2017): one for each vertex that has a patch.
    """

    def __init__(
        self,
        base: Kernel,
        aggregate: str = "sum",
        vertex_weights: Float[Tensor, "patches_per_signal"] | None = None,
    ) -> None:
        super().__init__()
        if aggregate not in AGGREGATES:
            raise unknown_option("aggregate", aggregate, AGGREGATES)
        self.base = base
        self.aggregate = aggregate
        if vertex_weights is not None:
            self.register_parameter("vertex_weights", torch.nn.Parameter(vertex_weights))
        else:
            self.vertex_weights = None

    def weighted(self, patches: Patches, first: int = 0) -> Patches:
        """The patches with the multiplicities of this kernel: 1, 1/P, or these times vertex weights."""
        counts = patches.offsets.diff()
        if self.vertex_weights is not None:
            per_signal = len(self.vertex_weights)
            if (counts != per_signal).any():
                n = int(torch.argmax((counts != per_signal).int()))
                raise ValueError(
                    f"signal {first + n}: {int(counts[n])} patches for {per_signal} vertex_weights; "
                    "vertex weights need a domain that all signals share"
                )
            patches = patches.scaled(self.vertex_weights.to(patches.values.dtype).repeat(len(patches)))
        if self.aggregate == "mean":
            size = counts.clamp_min(1).to(patches.values.dtype)
            patches = patches.scaled(torch.repeat_interleave(1 / size, counts))
        return patches

    def kuu(self, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "M M"]:
        """k_g between inducing patches."""
        return evaluate(self.base, inducing, inducing, exact=far_apart(self.base, inducing))

    def kfu(self, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
        """Σ_v k_g(Z_n[v], U_m) of weighted patches, computed where these are; see `sums.kfu`."""
        there = patches.values.device
        return sums.kfu(on_device(self.base, there), patches, inducing.to(there))

    def kff(self, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
        """k(ψ, ψ') of weighted patches between all pairs: the whole matrix, so for small sets."""
        return sums.kff(on_device(self.base, left.values.device), left, right)

    def kff_diagonal(
        self,
        patches: Patches,
        *,
        draws: int | None = None,
        seed: int = 0,
        numbers: Int[np.ndarray, "N"] | None = None,
    ) -> Float[Tensor, "N"]:
        """k(ψ, ψ) of weighted patches, exactly or from a sample of them; see `sums.kff_diagonal`."""
        base = on_device(self.base, patches.values.device)
        return sums.kff_diagonal(base, patches, draws=draws, seed=seed, numbers=numbers)
