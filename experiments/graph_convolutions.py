"""The convolutions of MoNet and ChebNet: the results of PyG's layers, by compiled sums over neighbors.

Our own code, because runs of networks take longer than all GP runs: for MoNet, PyG stores Gaussians × output
channels numbers per edge, whereas here neighbors are summed before the product. Edges must be sorted by their
second vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from gcgp._numerics.exponential import exponential

EDGES_PER_BLOCK = 64
"""Edges whose exponentials are computed together, by vector instructions."""


def mixture_convolution(
    layer: Any,
    values: Float[Tensor, "vertices channels"],
    edges: Int[Tensor, "2 edges"],
    pseudo: Float[Tensor, "edges D"],
) -> Float[Tensor, "vertices out"]:
    """The result of PyG's `GMMConv`: the mean over neighbors, and a product for the vertex itself."""
    counts, offsets = _neighbors(edges, len(values))
    weights = Gaussians.apply(pseudo, layer.mu, layer.sigma)
    sums = WeightedSums.apply(values, weights, edges[0], offsets)
    taps = layer.g.view(values.shape[1], layer.kernel_size, -1).transpose(0, 1).flatten(0, 1)
    means = sums.flatten(1) @ taps / counts.clamp_min(1)[:, None]
    return means + layer.root(values) + layer.bias


def chebyshev_convolution(
    layer: Any, values: Float[Tensor, "vertices channels"], edges: Int[Tensor, "2 edges"]
) -> Float[Tensor, "vertices out"]:
    """The result of PyG's `ChebConv`: T_k(L − 1) of the Laplacian L, T_k = 2(L − 1)T_{k-1} − T_{k-2}."""
    counts, offsets = _neighbors(edges, len(values))
    weights = -counts[edges].clamp_min(1).rsqrt().prod(dim=0)[:, None]

    def shifted_laplacian(signal: Tensor) -> Tensor:
        return WeightedSums.apply(signal, weights, edges[0], offsets)[:, 0]

    terms = [values, shifted_laplacian(values)]
    while len(terms) < len(layer.lins):
        terms.append(2 * shifted_laplacian(terms[-1]) - terms[-2])
    taps = torch.cat([linear.weight for linear in layer.lins], dim=1)
    return torch.cat(terms[: len(layer.lins)], dim=1) @ taps.T + layer.bias


def _neighbors(edges: Int[Tensor, "2 edges"], vertices: int) -> tuple[Tensor, Tensor]:
    """Number of edges of each vertex, and their offsets."""
    counts = torch.bincount(edges[1], minlength=vertices)
    return counts, torch.nn.functional.pad(counts.cumsum(0), (1, 0))


class Gaussians(torch.autograd.Function):
    """exp(−½ Σ_d (u_d − μ_kd)² / σ_kd²) for each edge and Gaussian k."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, pseudo: Float[Tensor, "edges D"], mu: Float[Tensor, "K D"], sigma: Float[Tensor, "K D"]
    ) -> Float[Tensor, "edges K"]:
        arrays = [part.detach().contiguous().numpy() for part in (pseudo, mu.T, sigma.T)]
        weights = _gaussians(*arrays)
        ctx.save_for_backward(pseudo, mu, sigma)
        ctx.weights = weights
        return torch.from_numpy(weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "edges K"]) -> Any:  # noqa: D102
        pseudo, mu, sigma = ctx.saved_tensors
        moments = _moments(gradient.contiguous().numpy(), ctx.weights, pseudo.contiguous().numpy())
        total, first, second = map(torch.from_numpy, moments)
        to_mu = (first.T - mu * total[:, None]) / sigma**2
        to_sigma = (second.T - 2 * mu * first.T + mu**2 * total[:, None]) / sigma**3
        return None, to_mu.to(mu.dtype), to_sigma.to(sigma.dtype)


class WeightedSums(torch.autograd.Function):
    """Σ_e w_ek ψ(v_e) over the edges e of each vertex, for each Gaussian k."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        values: Float[Tensor, "vertices channels"],
        weights: Float[Tensor, "edges K"],
        neighbors: Int[Tensor, "edges"],
        offsets: Int[Tensor, "vertices_plus_1"],
    ) -> Float[Tensor, "vertices K channels"]:
        arrays = [part.detach().contiguous().numpy() for part in (values, weights, neighbors, offsets)]
        ctx.arrays = arrays
        return torch.from_numpy(_weighted_sums(*arrays))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "vertices K channels"]) -> Any:  # noqa: D102
        to_values, to_weights = _weighted_sums_gradient(*ctx.arrays, gradient.contiguous().numpy())
        return torch.from_numpy(to_values), torch.from_numpy(to_weights), None, None


@njit(cache=True, fastmath={"contract", "reassoc"})
def _gaussians(pseudo, mu, sigma):  # type: ignore[no-untyped-def]
    """Weights of the edges; means and widths are `[D, K]`."""
    dims, kernels = mu.shape
    weights = np.empty((len(pseudo), kernels), np.float32)
    scale = np.sqrt(np.float32(0.5)) / sigma
    block = np.empty((dims, EDGES_PER_BLOCK), np.float32)
    squares = np.empty(EDGES_PER_BLOCK, np.float32)
    for start in range(0, len(pseudo), EDGES_PER_BLOCK):
        count = min(EDGES_PER_BLOCK, len(pseudo) - start)
        for d in range(dims):
            for i in range(count):
                block[d, i] = pseudo[start + i, d]
        for k in range(kernels):
            squares[:] = 0
            for d in range(dims):
                row, center, factor = block[d], mu[d, k], scale[d, k]
                for i in range(count):
                    scaled = (row[i] - center) * factor
                    squares[i] += scaled * scaled
            for i in range(count):
                squares[i] = exponential(-squares[i])
            for i in range(count):
                weights[start + i, k] = squares[i]
    return weights


@njit(cache=True, fastmath={"contract", "reassoc"})
def _moments(gradient, weights, pseudo):  # type: ignore[no-untyped-def]
    """Σ_e p_ek and, for each coordinate u, Σ_e p_ek u and Σ_e p_ek u², where p is gradient times weight.

    In float64, because derivatives are differences of these sums.
    """
    count, dims = weights.shape[1], pseudo.shape[1]
    total, first, second = np.zeros(count), np.zeros((dims, count)), np.zeros((dims, count))
    product = np.empty(count)
    for e in range(len(weights)):
        for k in range(count):
            product[k] = gradient[e, k] * weights[e, k]
            total[k] += product[k]
        for d in range(dims):
            u = np.float64(pseudo[e, d])
            for k in range(count):
                first[d, k] += product[k] * u
                second[d, k] += product[k] * (u * u)
    return total, first, second


@njit(cache=True, fastmath=True)
def _weighted_sums(values, weights, neighbors, offsets):  # type: ignore[no-untyped-def]
    sums = np.zeros((len(offsets) - 1, weights.shape[1], values.shape[1]), values.dtype)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbor = values[neighbors[e]]
            for k in range(weights.shape[1]):
                weight = weights[e, k]
                for c in range(len(neighbor)):
                    sums[v, k, c] += weight * neighbor[c]
    return sums


@njit(cache=True, fastmath=True)
def _weighted_sums_gradient(values, weights, neighbors, offsets, gradient):  # type: ignore[no-untyped-def]
    """The gradients with respect to values and weights."""
    to_values, to_weights = np.zeros_like(values), np.zeros_like(weights)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbor, to_neighbor = values[neighbors[e]], to_values[neighbors[e]]
            for k in range(weights.shape[1]):
                weight, row, total = weights[e, k], gradient[v, k], values.dtype.type(0)
                for c in range(len(neighbor)):
                    total += row[c] * neighbor[c]
                    to_neighbor[c] += weight * row[c]
                to_weights[e, k] = total
    return to_values, to_weights
