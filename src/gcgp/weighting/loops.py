"""Compiled loops of the weighting stage: Gaussian bins over one coordinate.

By hand, because torch takes eight passes over arrays of pairs × bins for what is one here.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from gcgp._runtime.fork import parallel_njit

PAIRS_PER_TASK = 4096
PAIRS_AT_ONCE = 64
LOG2_E = np.float32(1.4426950408889634)
LEAST = np.float32(-40.0)
"""Below this, nine widths from its center, a bin is empty: exp(x) counts as 0.

Products of such weights would be no ordinary float32: processors take many times longer with those.
"""
FAR = np.float32(1e18)
"""Differences are no larger than this: infinite ones would make differences that wrap no number."""
# 2^r on [−½, ½] by its Taylor series, to 1e-8.
C1, C2, C3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
C4, C5 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443)
C6, C7 = np.float32(0.00015403530393381608), np.float32(1.525273380405984e-05)


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def gaussian_bins(coordinate, centers, width, period):  # type: ignore[no-untyped-def]
    """exp(−½((c − μ_k) / σ)²) in float32, `[pairs, K]`; differences wrap at a period that is not 0.

    A coordinate that is not a number lies in every bin, an infinite one in none.
    """
    bins = len(centers)
    out = np.empty((len(coordinate), bins), dtype=np.float32)
    inverse = np.float32(1 / width)
    around = np.float32(0 if period == 0 else 1 / period)
    period = np.float32(period)
    nought, half, one = np.float32(0), np.float32(0.5), np.float32(1)
    for task in prange((len(coordinate) + PAIRS_PER_TASK - 1) // PAIRS_PER_TASK):
        powers = np.empty(PAIRS_AT_ONCE, dtype=np.int32)
        whole = powers.view(np.float32)
        part = np.empty(PAIRS_AT_ONCE, dtype=np.float32)
        end = min(len(coordinate), (task + 1) * PAIRS_PER_TASK)
        for start in range(task * PAIRS_PER_TASK, end, PAIRS_AT_ONCE):
            count = min(PAIRS_AT_ONCE, end - start)
            some = coordinate[start : start + count]
            for k in range(bins):
                for i in range(count):
                    d = min(some[i] - centers[k], FAR)
                    d -= period * np.floor(d * around + half)
                    d *= inverse
                    exponent = -half * d * d
                    z = max(exponent, LEAST) * LOG2_E
                    n = np.floor(z + half)
                    r = z - n
                    value = one + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * (C6 + r * C7))))))
                    part[i] = value if exponent > LEAST else nought
                    powers[i] = (np.int32(n) + np.int32(127)) << np.int32(23)
                for i in range(count):
                    out[start + i, k] = part[i] * whole[i]
            for i in range(count):
                if np.isnan(some[i]):
                    out[start + i, :] = one
    return out


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def gaussian_bins_pullback(gradient, weights, coordinate, centers, width, period):  # type: ignore[no-untyped-def]
    """What a gradient with respect to the weights means for the centers and the width, in float64."""
    bins = len(centers)
    tasks = (len(coordinate) + PAIRS_PER_TASK - 1) // PAIRS_PER_TASK
    first, second = np.zeros((tasks, bins)), np.zeros((tasks, bins))
    inverse = np.float32(1 / width)
    around = np.float32(0 if period == 0 else 1 / period)
    period = np.float32(period)
    half = np.float32(0.5)
    for task in prange(tasks):
        some, more = np.zeros(bins, dtype=np.float32), np.zeros(bins, dtype=np.float32)
        for i in range(task * PAIRS_PER_TASK, min(len(coordinate), (task + 1) * PAIRS_PER_TASK)):
            c = coordinate[i]
            if np.isnan(c):
                continue
            for k in range(bins):
                d = min(c - centers[k], FAR)
                d -= period * np.floor(d * around + half)
                d *= inverse
                e = gradient[i, k] * weights[i, k] * d
                some[k] += e
                more[k] += e * d
            if i % 64 == 63:
                for k in range(bins):
                    first[task, k] += some[k]
                    second[task, k] += more[k]
                    some[k] = 0
                    more[k] = 0
        for k in range(bins):
            first[task, k] += some[k]
            second[task, k] += more[k]
    return first.sum(axis=0) / width, second.sum() / width
