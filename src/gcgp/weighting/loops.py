"""Compiled loops of the weighting stage: Gaussian bins over one coordinate.

One pass over the pairs of vertices, where torch needs eight passes over arrays of pairs × bins.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from gcgp._numerics.exponential import exponential
from gcgp._runtime.fork import parallel_njit

PAIRS_PER_TASK = 4096
PAIRS_IN_CACHE = 64
EMPTY_BIN_EXPONENT = np.float32(-40.0)
"""Smaller exponents, nine widths from the center of a bin, give weight 0: products of such weights would be
subnormal numbers, which are slow."""
MAX_DIFFERENCE = np.float32(1e18)
"""Limit of differences of coordinates: wrapping an infinite difference would give NaN."""
HALF, ONE = np.float32(0.5), np.float32(1)


@njit(inline="always")
def in_widths(coordinate, center, inverse_width, period, inverse_period):  # type: ignore[no-untyped-def]
    """The difference of a coordinate and a center in widths, wrapped at a period that is not 0."""
    difference = min(coordinate - center, MAX_DIFFERENCE)
    difference -= period * np.floor(difference * inverse_period + HALF)
    return difference * inverse_width


@njit(inline="always")
def inverse(value):  # type: ignore[no-untyped-def]
    """1 / value in float32; 0 for 0."""
    return np.float32(0 if value == 0 else 1 / value)


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def gaussian_bins(coordinate, centers, width, period):  # type: ignore[no-untyped-def]
    """exp(−½((c − μ_k) / σ)²) in float32, `[pairs, K]`; differences wrap at a period that is not 0.

    A NaN coordinate has weight 1 in every bin, an infinite one weight 0.
    """
    bins = len(centers)
    out = np.empty((len(coordinate), bins), dtype=np.float32)
    inverse_width, inverse_period = inverse(width), inverse(period)
    period = np.float32(period)
    for task in prange((len(coordinate) + PAIRS_PER_TASK - 1) // PAIRS_PER_TASK):
        weights = np.empty(PAIRS_IN_CACHE, dtype=np.float32)
        end = min(len(coordinate), (task + 1) * PAIRS_PER_TASK)
        for start in range(task * PAIRS_PER_TASK, end, PAIRS_IN_CACHE):
            count = min(PAIRS_IN_CACHE, end - start)
            block = coordinate[start : start + count]
            for k in range(bins):
                for i in range(count):
                    d = in_widths(block[i], centers[k], inverse_width, period, inverse_period)
                    exponent = -HALF * d * d
                    weights[i] = exponential(exponent) if exponent > EMPTY_BIN_EXPONENT else np.float32(0)
                for i in range(count):
                    out[start + i, k] = weights[i]
            for i in range(count):
                if np.isnan(block[i]):
                    out[start + i, :] = ONE
    return out


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def gaussian_bins_pullback(gradient, weights, coordinate, centers, width, period):  # type: ignore[no-untyped-def]
    """Gradients with respect to the centers and the width, in float64, given that of the weights."""
    bins = len(centers)
    tasks = (len(coordinate) + PAIRS_PER_TASK - 1) // PAIRS_PER_TASK
    first, second = np.zeros((tasks, bins)), np.zeros((tasks, bins))
    inverse_width, inverse_period = inverse(width), inverse(period)
    period = np.float32(period)
    for task in prange(tasks):
        some_first, some_second = np.zeros(bins, dtype=np.float32), np.zeros(bins, dtype=np.float32)
        for i in range(task * PAIRS_PER_TASK, min(len(coordinate), (task + 1) * PAIRS_PER_TASK)):
            if np.isnan(coordinate[i]):
                continue
            for k in range(bins):
                d = in_widths(coordinate[i], centers[k], inverse_width, period, inverse_period)
                e = gradient[i, k] * weights[i, k] * d
                some_first[k] += e
                some_second[k] += e * d
            if i % 64 == 63:  # sums of many terms would be inaccurate in float32
                for k in range(bins):
                    first[task, k] += some_first[k]
                    second[task, k] += some_second[k]
                    some_first[k] = some_second[k] = 0
        for k in range(bins):
            first[task, k] += some_first[k]
            second[task, k] += some_second[k]
    return first.sum(axis=0) / width, second.sum() / width
