"""The convolutions of MoNet and ChebNet: what PyG's layers compute, by compiled sums over neighbors.

By hand because the networks' runs take longer than all of ours. For MoNet PyG holds, for each edge, as many
numbers as Gaussians × channels that come out; here neighbors are summed before they are multiplied. Edges
must be in the order of their second vertices, those that see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from gcgp.kernel.engine.loops import exponential

EDGES_AT_ONCE = 64
"""In the cache, so that exponentials are computed several at a time."""


def mixed(
    layer: Any,
    values: Float[Tensor, "vertices channels"],
    edges: Int[Tensor, "2 edges"],
    pseudo: Float[Tensor, "edges D"],
) -> Float[Tensor, "vertices out"]:
    """What PyG's `GMMConv` gives: the mean over neighbors, and a product for the vertex itself."""
    counts, offsets = _neighbors(edges, len(values))
    weights = Gaussians.apply(pseudo, layer.mu, layer.sigma)
    sums = WeightedSums.apply(values, weights, edges[0], offsets)
    taps = layer.g.view(values.shape[1], layer.kernel_size, -1).transpose(0, 1).flatten(0, 1)
    means = sums.flatten(1) @ taps / counts.clamp_min(1)[:, None]
    return means + layer.root(values) + layer.bias


def chebyshev(
    layer: Any, values: Float[Tensor, "vertices channels"], edges: Int[Tensor, "2 edges"]
) -> Float[Tensor, "vertices out"]:
    """What PyG's `ChebConv` gives: T_k(L − 1) of the Laplacian L, T_k = 2(L − 1)T_{k-1} − T_{k-2}."""
    counts, offsets = _neighbors(edges, len(values))
    weights = -counts[edges].clamp_min(1).rsqrt().prod(dim=0)[:, None]

    def shifted(signal: Tensor) -> Tensor:
        return WeightedSums.apply(signal, weights, edges[0], offsets)[:, 0]

    terms = [values, shifted(values)]
    while len(terms) < len(layer.lins):
        terms.append(2 * shifted(terms[-1]) - terms[-2])
    taps = torch.cat([linear.weight for linear in layer.lins], dim=1)
    return torch.cat(terms[: len(layer.lins)], dim=1) @ taps.T + layer.bias


def _neighbors(edges: Int[Tensor, "2 edges"], vertices: int) -> tuple[Tensor, Tensor]:
    """How many edges each vertex sees along, and where they begin."""
    counts = torch.bincount(edges[1], minlength=vertices)
    return counts, torch.nn.functional.pad(counts.cumsum(0), (1, 0))


class Gaussians(torch.autograd.Function):
    """exp(−½ Σ_d (u_d − μ_kd)² / σ_kd²) of each edge and Gaussian."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, pseudo: Float[Tensor, "edges D"], mu: Float[Tensor, "K D"], sigma: Float[Tensor, "K D"]
    ) -> Float[Tensor, "edges K"]:
        given = [part.detach().contiguous().numpy() for part in (pseudo, mu.T, sigma.T)]
        weights = _gaussians(*given)
        ctx.save_for_backward(pseudo, mu, sigma)
        ctx.weights = weights
        return torch.from_numpy(weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Float[Tensor, "edges K"]) -> Any:  # noqa: D102
        pseudo, mu, sigma = ctx.saved_tensors
        moments = _moments(pull.contiguous().numpy(), ctx.weights, pseudo.contiguous().numpy())
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
        seen: Int[Tensor, "edges"],
        offsets: Int[Tensor, "vertices_plus_1"],
    ) -> Float[Tensor, "vertices K channels"]:
        given = [part.detach().contiguous().numpy() for part in (values, weights, seen, offsets)]
        ctx.given = given
        return torch.from_numpy(_summed(*given))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Float[Tensor, "vertices K channels"]) -> Any:  # noqa: D102
        to_values, to_weights = _pulled(*ctx.given, pull.contiguous().numpy())
        return torch.from_numpy(to_values), torch.from_numpy(to_weights), None, None


@njit(cache=True, fastmath={"contract", "reassoc"})
def _gaussians(pseudo, mu, sigma):  # type: ignore[no-untyped-def]
    """Means and widths are `[D, K]`."""
    dims, kernels = mu.shape
    weights = np.empty((len(pseudo), kernels), np.float32)
    scale = np.sqrt(np.float32(0.5)) / sigma
    some = np.empty((dims, EDGES_AT_ONCE), np.float32)
    squares = np.empty(EDGES_AT_ONCE, np.float32)
    for start in range(0, len(pseudo), EDGES_AT_ONCE):
        count = min(EDGES_AT_ONCE, len(pseudo) - start)
        for d in range(dims):
            for i in range(count):
                some[d, i] = pseudo[start + i, d]
        for k in range(kernels):
            squares[:] = 0
            for d in range(dims):
                own, center, factor = some[d], mu[d, k], scale[d, k]
                for i in range(count):
                    apart = (own[i] - center) * factor
                    squares[i] += apart * apart
            for i in range(count):
                squares[i] = exponential(-squares[i])
            for i in range(count):
                weights[start + i, k] = squares[i]
    return weights


@njit(cache=True, fastmath={"contract", "reassoc"})
def _moments(pull, weights, pseudo):  # type: ignore[no-untyped-def]
    """Σ_e p_ek and, for each coordinate u, Σ_e p_ek u and Σ_e p_ek u², where p is the pulled weight.

    Derivatives are differences of these, for which sums of floats would not do.
    """
    count, dims = weights.shape[1], pseudo.shape[1]
    total, first, second = np.zeros(count), np.zeros((dims, count)), np.zeros((dims, count))
    pulled = np.empty(count)
    for e in range(len(weights)):
        for k in range(count):
            pulled[k] = pull[e, k] * weights[e, k]
            total[k] += pulled[k]
        for d in range(dims):
            u = np.float64(pseudo[e, d])
            for k in range(count):
                first[d, k] += pulled[k] * u
                second[d, k] += pulled[k] * (u * u)
    return total, first, second


@njit(cache=True, fastmath=True)
def _summed(values, weights, seen, offsets):  # type: ignore[no-untyped-def]
    sums = np.zeros((len(offsets) - 1, weights.shape[1], values.shape[1]), values.dtype)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbor = values[seen[e]]
            for k in range(weights.shape[1]):
                weight = weights[e, k]
                for c in range(len(neighbor)):
                    sums[v, k, c] += weight * neighbor[c]
    return sums


@njit(cache=True, fastmath=True)
def _pulled(values, weights, seen, offsets, pull):  # type: ignore[no-untyped-def]
    """The gradients with respect to values and weights."""
    to_values, to_weights = np.zeros_like(values), np.zeros_like(weights)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbor, to_neighbor = values[seen[e]], to_values[seen[e]]
            for k in range(weights.shape[1]):
                weight, own, total = weights[e, k], pull[v, k], values.dtype.type(0)
                for c in range(len(neighbor)):
                    total += own[c] * neighbor[c]
                    to_neighbor[c] += weight * own[c]
                to_weights[e, k] = total
    return to_values, to_weights
