"""The kernel between signals: k(ψ, ψ') = Σ_v Σ_v' k_g(Z[v], Z'[v']) (Walker & Glocker 2019, eq. 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.kernel import sums
from gcgp.kernel.base import on_device
from gcgp.patches import Patches

AGGREGATES = ("sum", "mean")


class ConvolutionalKernel(Kernel):
    """A base kernel k_g summed (the paper) or averaged (GPflow) over all pairs of patches.

    `vertex_weights` multiply the patches of a domain that all signals share, one weight per vertex with a
    patch, as in the weighted convolutional GP of van der Wilk et al. (2017).

    `kuu`, `kfu`, `kff` and `kff_diagonal` take patches. In GPyTorch models, inputs `[n, 1]` are indices of
    signals of the patches given to `on`:

    >>> import gpytorch
    >>> from gcgp.domain import Signals
    >>> from gcgp.kernel import base_kernel
    >>> from gcgp.patches import Convolution
    >>> from gcgp.weighting import Polar
    >>> signals = Signals.from_images(torch.rand(6, 8, 8, generator=torch.Generator().manual_seed(0)).numpy())
    >>> convolution = Convolution(Polar(radii=[1, 2], angles=4))
    >>> kernel = ConvolutionalKernel(base_kernel("rbf", convolution.columns(signals)), "mean")
    >>> class Model(gpytorch.models.ExactGP):
    ...     def __init__(self, x, y, kernel):
    ...         super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
    ...         self.mean, self.kernel = gpytorch.means.ZeroMean(), kernel
    ...
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
    >>> x = torch.arange(6.0)[:, None]
    >>> model = Model(x[:4], torch.randn(4), kernel.on(convolution.patches(signals))).eval()
    >>> posterior = model(x[4:])
    >>> posterior.covariance_matrix.shape, posterior.rsample(torch.Size([100])).shape
    (torch.Size([2, 2]), torch.Size([100, 2]))
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
        self.patches: Patches | None = None
        parameter = None if vertex_weights is None else torch.nn.Parameter(vertex_weights)
        self.register_parameter("vertex_weights", parameter)

    def weighted(self, patches: Patches, first: int = 0) -> Patches:
        """The patches with the multiplicities of this kernel: 1 or 1/P, times vertex weights.

        `first` is the index of the first signal, for error messages.
        """
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
        """k_g(U_m, U_m') between inducing patches."""
        return sums.kuu(self.base, inducing)

    def kfu(self, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
        """Σ_v k_g(Z_n[v], U_m) of weighted patches, on their device."""
        device = patches.values.device
        return sums.kfu(on_device(self.base, device), patches, inducing.to(device))

    def kff(self, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
        """k(ψ_n, ψ_n') of weighted patches: the joint prior covariance of f at all pairs of signals."""
        return sums.kff(on_device(self.base, left.values.device), left, right)

    def kff_diagonal(self, patches: Patches) -> Float[Tensor, "N"]:
        """k(ψ_n, ψ_n) of weighted patches: the prior variance of f at each signal."""
        return sums.kff_diagonal(on_device(self.base, patches.values.device), patches)

    def on(self, patches: Patches) -> ConvolutionalKernel:
        """This kernel, with the same parameters, whose inputs are indices of signals of `patches`.

        The patches are constants, not yet `weighted`; all computations use the dtype of the kernel.
        """
        kernel = ConvolutionalKernel(self.base, self.aggregate)
        kernel.vertex_weights = self.vertex_weights
        kernel.patches = replace(
            patches, values=patches.values.detach(), multiplicity=patches.multiplicity.detach()
        )
        return kernel

    def signal_inputs(self, indices: Int[Tensor, "n"]) -> Float[Tensor, "n dim_plus_1"]:
        """Inputs that are signals, for models whose inducing points are `patch_inputs`: (index, 0, …, 0)."""
        inputs = torch.zeros(len(indices), 1 + self._patches.values.shape[1], dtype=self.dtype)
        inputs[:, 0] = indices
        return inputs

    def patch_inputs(self, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "M dim_plus_1"]:
        """Inputs that are inducing patches, (−1, patch): the value of an input is g(patch) instead of f(ψ).

        They are inducing points of a variational strategy of GPyTorch, which may learn them:

        >>> import gpytorch
        >>> from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
        >>> class Model(gpytorch.models.ApproximateGP):
        ...     def __init__(self, kernel, inducing):
        ...         points = kernel.patch_inputs(inducing)
        ...         super().__init__(
        ...             VariationalStrategy(self, points, CholeskyVariationalDistribution(len(points)))
        ...         )
        ...         self.mean, self.kernel = gpytorch.means.ZeroMean(), kernel
        ...
        ...     def forward(self, x):
        ...         return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))
        >>> patches = Patches(torch.randn(6, 2), torch.ones(6), torch.tensor([0, 4, 6]), torch.arange(6))
        >>> kernel = ConvolutionalKernel(gpytorch.kernels.RBFKernel()).on(patches)
        >>> Model(kernel, patches.values[:3])(kernel.signal_inputs(torch.arange(2))).mean.shape
        torch.Size([2])
        """
        return torch.nn.functional.pad(inducing, (1, 0), value=-1.0)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The matrix between inputs, or its diagonal; see `on`, `signal_inputs` and `patch_inputs`."""
        if max(x1.dim(), x2.dim()) > 2:
            batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
            x1, x2 = (x.expand(*batch, *x.shape[-2:]).flatten(0, -3) for x in (x1, x2))
            parts = [self.forward(a, b, diag) for a, b in zip(x1, x2, strict=True)]
            return torch.stack(parts).unflatten(0, batch)
        if diag and torch.equal(x1, x2):
            return self.kff_diagonal(self._of_inputs(x1))
        matrix = self.kff(self._of_inputs(x1), self._of_inputs(x2))
        return matrix.diagonal() if diag else matrix

    @property
    def _patches(self) -> Patches:
        if self.patches is None:
            raise ValueError(
                "inputs are indices of signals, but this kernel has no patches; use kernel.on(patches)"
            )
        return self.patches

    def _of_inputs(self, x: Shaped[Tensor, "n columns"]) -> Patches:
        """The weighted patches of inputs; an inducing patch is a signal with one patch of multiplicity 1."""
        indices, count = x[:, 0].detach().cpu().round().long(), len(self._patches)
        invalid = indices[(indices >= count) | ((indices < 0) & (x.shape[1] == 1))]
        if len(invalid):
            raise ValueError(f"index {int(invalid[0])}: expected indices of signals from 0 to {count - 1}")
        patches = self._patches.to(x.device)
        patches = replace(
            patches, values=patches.values.to(self.dtype), multiplicity=patches.multiplicity.to(self.dtype)
        )
        signals, single = torch.nonzero(indices >= 0)[:, 0], torch.nonzero(indices < 0)[:, 0]
        weighted = self.weighted(patches.select_signals(indices[signals]))
        if len(single) == 0:
            return weighted
        values, ends = x[single, 1:].to(self.dtype), torch.arange(len(single) + 1)
        inducing = Patches(values, values.new_ones(len(single)), ends, ends[:-1])
        order = torch.argsort(torch.cat([signals, single]))
        return Patches.concatenate([weighted, inducing]).select_signals(order)
