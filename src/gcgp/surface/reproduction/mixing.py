"""MoNet's convolution: what PyG's `GMMConv` computes, in an order that takes far less time and memory.

By hand because MoNet's runs take longer than all of ours: PyG holds, for each edge, as many numbers as
Gaussians × channels that come out. Here neighbours are summed before they are multiplied, by compiled loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable


def mixed(
    layer: Any,
    values: Float[Tensor, "vertices channels"],
    edges: Int[Tensor, "2 edges"],
    pseudo: Float[Tensor, "edges D"],
) -> Float[Tensor, "vertices out"]:
    """What PyG's `GMMConv` gives: the mean over neighbours, and a product for the vertex itself.

    Edges must be in the order of their second vertices, those that see.
    """
    counts = torch.bincount(edges[1], minlength=len(values))
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    weights = Gaussians.apply(pseudo, layer.mu, layer.sigma)
    sums = WeightedSums.apply(values, weights, edges[0], offsets)
    taps = layer.g.view(values.shape[1], layer.kernel_size, -1).transpose(0, 1).flatten(0, 1)
    means = sums.flatten(1) @ taps / counts.clamp_min(1)[:, None]
    return means + layer.root(values) + layer.bias


class Gaussians(torch.autograd.Function):
    """exp(−½ Σ_d (u_d − μ_kd)² / σ_kd²) of each edge and Gaussian; its gradients are products of matrices."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, pseudo: Float[Tensor, "edges D"], mu: Float[Tensor, "K D"], sigma: Float[Tensor, "K D"]
    ) -> Float[Tensor, "edges K"]:
        weights = pseudo.new_zeros(len(pseudo), len(mu))
        for u, centre, width in zip(pseudo.T, mu.T, sigma.T, strict=True):
            weights += ((u[:, None] - centre) / width).square_()
        weights.mul_(-0.5).exp_()
        ctx.save_for_backward(pseudo, mu, sigma, weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Float[Tensor, "edges K"]) -> Any:  # noqa: D102
        pseudo, mu, sigma, weights = ctx.saved_tensors
        pulled, u = (pull * weights).T.double(), pseudo.double()  # differences of sums: floats would not do
        total, first, second = pulled.sum(dim=1)[:, None], pulled @ u, pulled @ u.square()
        to_mu = (first - mu * total) / sigma**2
        to_sigma = (second - 2 * mu * first + mu**2 * total) / sigma**3
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


@njit(cache=True, fastmath=True)
def _summed(values, weights, seen, offsets):  # type: ignore[no-untyped-def]
    sums = np.zeros((len(offsets) - 1, weights.shape[1], values.shape[1]), values.dtype)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbour = values[seen[e]]
            for k in range(weights.shape[1]):
                weight = weights[e, k]
                for c in range(len(neighbour)):
                    sums[v, k, c] += weight * neighbour[c]
    return sums


@njit(cache=True, fastmath=True)
def _pulled(values, weights, seen, offsets, pull):  # type: ignore[no-untyped-def]
    """The gradients with respect to values and weights."""
    to_values, to_weights = np.zeros_like(values), np.zeros_like(weights)
    for v in range(len(offsets) - 1):
        for e in range(offsets[v], offsets[v + 1]):
            neighbour, to_neighbour = values[seen[e]], to_values[seen[e]]
            for k in range(weights.shape[1]):
                weight, own, total = weights[e, k], pull[v, k], values.dtype.type(0)
                for c in range(len(neighbour)):
                    total += own[c] * neighbour[c]
                    to_neighbour[c] += weight * own[c]
                to_weights[e, k] = total
    return to_values, to_weights
