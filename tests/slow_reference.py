"""Slow, obvious references: double loops over patches, and dense Gaussian conditioning."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor

from gcgp.patches import Patches


def _with(kernel: Kernel, **values: object) -> Kernel:
    kernel = kernel.double()
    for name, value in values.items():
        setattr(kernel, name, torch.as_tensor(value, dtype=torch.float64))
    return kernel


def example_kernel(name: str) -> Kernel:
    """A kernel on patches of three columns, in float64."""
    ard = [0.5, 0.9, 1.7]
    match name:
        case "rbf":
            return _with(RBFKernel(), lengthscale=0.8)
        case "rbf ard":
            return _with(RBFKernel(ard_num_dims=3), lengthscale=ard)
        case "matern12":
            return _with(MaternKernel(nu=0.5), lengthscale=0.8)
        case "matern32":
            return _with(MaternKernel(nu=1.5), lengthscale=1.3)
        case "matern52":
            return _with(MaternKernel(nu=2.5), lengthscale=0.8)
        case "matern52 ard":
            return _with(MaternKernel(nu=2.5, ard_num_dims=3), lengthscale=ard)
        case "scaled rbf":
            return _with(ScaleKernel(example_kernel("rbf ard")), outputscale=2.5)
        case "scaled matern12":
            return _with(ScaleKernel(example_kernel("matern12")), outputscale=0.3)
        case "scaled matern32":
            return _with(ScaleKernel(example_kernel("matern32")), outputscale=0.3)
        case "scaled matern52":
            return _with(ScaleKernel(example_kernel("matern52 ard")), outputscale=0.3)
        case "twice scaled":
            return _with(ScaleKernel(example_kernel("scaled rbf")), outputscale=1.5)
        case "scaled on two columns":
            part = _with(RBFKernel(active_dims=[0, 2]), lengthscale=0.7)
            return _with(ScaleKernel(part), outputscale=1.8)
        case "rational quadratic":
            return _with(RQKernel(ard_num_dims=3), lengthscale=ard, alpha=1.4)
        case "product":
            left = _with(MaternKernel(nu=1.5, active_dims=[0, 1]), lengthscale=0.8)
            right = _with(RBFKernel(active_dims=[2]), lengthscale=1.1)
            return ProductKernel(left, right).double()
        case "sum":
            return AdditiveKernel(example_kernel("rbf ard"), example_kernel("linear")).double()
        case "product with linear":
            return ProductKernel(example_kernel("rbf ard"), example_kernel("linear")).double()
        case "linear":
            return _with(LinearKernel(), variance=0.6)
    raise ValueError(name)


DISTANCE_KERNELS = (
    "rbf",
    "rbf ard",
    "matern12",
    "matern32",
    "matern52",
    "matern52 ard",
    "scaled rbf",
    "scaled matern12",
    "scaled matern32",
    "scaled matern52",
    "twice scaled",
)
GENERIC_KERNELS = (
    "scaled on two columns",
    "rational quadratic",
    "product",
    "product with linear",
    "sum",
    "linear",
)
KERNELS = DISTANCE_KERNELS + GENERIC_KERNELS


def ragged_patches(
    counts: Sequence[int], dim: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Patches:
    """Normal patches with normal multiplicities, about half of them negative."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(counts)
    values = torch.randn(total, dim, generator=generator, dtype=torch.float64)
    multiplicity = torch.randn(total, generator=generator, dtype=torch.float64)
    offsets = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()])
    return Patches(values.to(dtype), multiplicity.to(dtype), offsets, torch.arange(total))


def pair_value(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """GPyTorch's k_g of two patches."""
    with torch.no_grad():
        return kernel(x[None], y[None]).to_dense()[0, 0]


def loop_kfu(kernel: Kernel, patches: Patches, inducing: Tensor) -> Tensor:
    """Σ_v m_v k_g(Z[v], U), pair by pair."""
    out = torch.zeros(len(patches), len(inducing), dtype=torch.float64)
    for n in range(len(patches)):
        for v in range(int(patches.offsets[n]), int(patches.offsets[n + 1])):
            for m in range(len(inducing)):
                value = pair_value(kernel, patches.values[v], inducing[m])
                out[n, m] += patches.multiplicity[v] * value
    return out


def loop_kff(kernel: Kernel, left: Patches, right: Patches) -> Tensor:
    """Σ_v Σ_v' m_v m_v' k_g(Z[v], Z'[v']), pair by pair."""
    columns = []
    for n in range(len(right)):
        rows = slice(int(right.offsets[n]), int(right.offsets[n + 1]))
        column = torch.zeros(len(left), dtype=torch.float64)
        for value, multiplicity in zip(right.values[rows], right.multiplicity[rows], strict=True):
            column += multiplicity * loop_kfu(kernel, left, value[None])[:, 0]
        columns.append(column)
    return torch.stack(columns, dim=1)


def dense_prediction(
    features: Tensor, targets: Tensor, noise: Tensor, variance: float, where: Tensor
) -> tuple[Tensor, Tensor]:
    """Condition a Gaussian with covariance s²ΦΦᵀ on noisy targets; its mean and variance at `where`."""
    covariance = variance * features @ features.T + torch.diag(noise)
    cross = variance * where @ features.T
    mean = cross @ torch.linalg.solve(covariance, targets)
    explained = (cross * torch.linalg.solve(covariance, cross.T).T).sum(dim=1)
    return mean, variance * where.square().sum(dim=1) - explained


def dense_bound(features: Tensor, residual: Tensor, targets: Tensor, noise: Tensor, variance: float) -> float:
    """log N(t | 0, s²ΦΦᵀ + D) − ½ s² Σ r/σ²."""
    covariance = variance * features @ features.T + torch.diag(noise)
    marginal = torch.distributions.MultivariateNormal(torch.zeros_like(targets), covariance)
    return float(marginal.log_prob(targets) - 0.5 * variance * (residual / noise).sum())
