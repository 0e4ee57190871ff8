"""The prior variance k(ψ, ψ) of signals: exact, or an unbiased estimate.

A direct estimate of kff has an error of about one percent, which exceeds what inducing patches leave
unexplained. So the unexplained part kff − |φ|² = Σ_v Σ_v' m_v m_v' (k_g − q_g) is estimated instead, where
q_g = k_gU Kuu⁻¹ k_Ug, from two independent samples of patches: its error is relative to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.inference.shapes import PerSignal, Rows
from gcgp.kernel.base import evaluate, prior_variance
from gcgp.kernel.sampling import independent_halves
from gcgp.patches import Patches

if TYPE_CHECKING:
    from gcgp.inference.features import Term

PRIOR_VARIANCE_DRAWS = 128
"""Patches drawn per training signal where an estimate of its prior variance suffices."""
SELF_PAIR_PATCHES = 8
"""Patches of a thinned signal for which k_g − q_g of the patch with itself is computed."""

Whiten = Callable[[Tensor], Tensor]
"""Kfu to features."""


@dataclass(frozen=True)
class Sampling:
    """Signals with more than `draws` patches have their prior variance estimated, from as many draws."""

    draws: int
    seed: int
    indices: Int[np.ndarray, "N"]
    """What is drawn for a signal depends on the seed and the index of the signal."""
    exact: Sequence[int] = ()
    """Rows of signals that are exact all the same."""


def prior_variances(
    term: Term, whiten: Whiten, patches: Patches, features: Float[Tensor, "N M"], sampling: Sampling | None
) -> Float[Tensor, "N"]:
    """k(ψ, ψ) of signals under one term, in float64, given their features."""
    sampled = torch.zeros(0, dtype=torch.int64)
    if sampling is not None:
        large = patches.offsets.diff() > sampling.draws
        large[list(sampling.exact)] = False
        sampled = torch.nonzero(large)[:, 0]
    if sampling is None or len(sampled) == 0:
        return _all_pairs(term, whiten, patches, features)
    rest = torch.nonzero(~large)[:, 0]
    parts = [
        _all_pairs(term, whiten, patches.select_signals(rest), features[rest]),
        _two_samples(term, whiten, patches.select_signals(sampled), features[sampled], sampling, sampled),
    ]
    return torch.cat(parts)[torch.argsort(torch.cat([rest, sampled]))]


def _two_samples(
    term: Term, whiten: Whiten, patches: Patches, features: Rows, sampling: Sampling, rows: Int[Tensor, "n"]
) -> PerSignal:
    """|φ|² plus an estimate of the unexplained part, which is bilinear in two independent samples."""
    halves = independent_halves(patches, sampling.draws, sampling.seed, sampling.indices[rows.numpy()])
    left, right = (whiten(term.kernel.kfu(half, term.inducing).cpu()) for half in halves)
    # 2 xᵀKy = (x + y)ᵀK(x + y) − xᵀKx − yᵀKy
    parts = (_side_by_side(*halves), *halves)
    both, one, other = (term.kernel.kff_diagonal(part).cpu().double() for part in parts)
    return features.square().sum(dim=1) + (both - one - other) / 2 - (left * right).sum(dim=1)


def _side_by_side(left: Patches, right: Patches) -> Patches:
    """The patches of each signal of both, which have the same number of patches in all signals."""
    count, size = len(left), len(left.values) // max(len(left), 1)

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a.unflatten(0, (count, size)), b.unflatten(0, (count, size))], dim=1).flatten(0, 1)

    return Patches(
        joined(left.values, right.values),
        joined(left.multiplicity, right.multiplicity),
        torch.arange(count + 1) * 2 * size,
        joined(left.vertices, right.vertices),
    )


def _all_pairs(
    term: Term, whiten: Whiten, patches: Patches, features: Float[Tensor, "N M"]
) -> Float[Tensor, "N"]:
    """The double sum over patches; where they are a sample of P patches, corrected for self-pairs.

    With S of P patches drawn without replacement and multiplicities scaled accordingly, pairs of different
    patches are underweighted by the factor P(S − 1) / (S(P − 1)), and self-pairs overweighted by P/S.
    """
    whole = term.kernel.kff_diagonal(patches).cpu().double()
    drawn, population = patches.offsets.diff(), patches.population
    if population is None or not bool(((population > drawn) & (drawn > 1)).any()):
        return whole
    thinned = torch.nonzero((population > drawn) & (drawn > 1))[:, 0]
    s, p = drawn[thinned].double(), population[thinned].double()
    unexplained = whole[thinned] - features[thinned].square().sum(dim=1)
    alone = _self_pairs(term, whiten, patches.select_signals(thinned))
    pairs = (unexplained - alone) * s * (p - 1) / (p * (s - 1))
    corrected = whole.clone()
    corrected[thinned] = features[thinned].square().sum(dim=1) + pairs + alone * s / p
    return corrected


def _self_pairs(term: Term, whiten: Whiten, patches: Patches) -> PerSignal:
    """Σ m² (k_g − q_g)(z, z) over the patches of each signal, estimated from a few of them."""
    counts, starts = patches.offsets.diff(), patches.offsets[:-1]
    steps = torch.linspace(0, 1, SELF_PAIR_PATCHES, dtype=torch.float64)
    rows = (starts[:, None] + ((counts[:, None] - 1) * steps).round().long()).flatten()
    values = patches.values[rows]
    kvu = evaluate(term.kernel.base, values.to(term.inducing), term.inducing)
    variances = prior_variance(term.kernel.base, values).cpu().double() - whiten(kvu).square().sum(dim=1)
    weighted = variances * patches.multiplicity[rows].cpu().double().square()
    return weighted.reshape(len(patches), SELF_PAIR_PATCHES).mean(dim=1) * counts
