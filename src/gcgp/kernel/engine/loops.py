"""Compiled loops of the kernel stage, for one thread.

torch needs two passes over a block for each of these, and sums float32 values in float32 only.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gcgp._numerics.exponential import exponential
from gcgp._numerics.splitmix import splitmix64, uniform

COLUMNS_PER_CHUNK = 128
ROWS_IN_FLOAT32 = 16
"""Number of values added in float32 before they are added to the sum in float64."""


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_exponentials(exponents, multiplicity, signal_of, out):  # type: ignore[no-untyped-def]
    """out[signal_of[i], j] += multiplicity[i] · exp(exponents[i, j]): float32 values, float64 sums."""
    rows, columns = exponents.shape
    partial = np.zeros(COLUMNS_PER_CHUNK, dtype=np.float32)
    for first in range(0, columns, COLUMNS_PER_CHUNK):
        count = min(columns - first, COLUMNS_PER_CHUNK)
        added = 0
        for i in range(rows):
            m = multiplicity[i]
            row = exponents[i, first : first + count]
            for j in range(count):
                partial[j] += m * exponential(row[j])
            added += 1
            if added == ROWS_IN_FLOAT32 or i + 1 == rows or signal_of[i + 1] != signal_of[i]:
                target = out[signal_of[i], first : first + count]
                for j in range(count):
                    target[j] += partial[j]
                    partial[j] = 0
                added = 0


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def weigh_exponentials(exponents, gradient, signal_of, multiplicity, sums):  # type: ignore[no-untyped-def]
    """exponents[i, j] becomes multiplicity[i] · gradient[signal_of[i], j] · exp(exponents[i, j]), in float32.

    `sums[i]` becomes the sum over j without the multiplicity.
    """
    rows, columns = exponents.shape
    for i in range(rows):
        m, total = multiplicity[i], np.float64(0)
        for first in range(0, columns, COLUMNS_PER_CHUNK):
            count = min(columns - first, COLUMNS_PER_CHUNK)
            row = exponents[i, first : first + count]
            factor = gradient[signal_of[i], first : first + count]
            partial = np.float32(0)
            for j in range(count):
                value = factor[j] * exponential(row[j])
                partial += value
                row[j] = value * m
            total += partial
        sums[i] = total


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def symmetric_sums(exponents, multiplicity, out):  # type: ignore[no-untyped-def]
    """out[b] = Σ_i Σ_j m_i m_j exp(exponents[b, i, j]) of symmetric exponents, from their upper triangles."""
    batch, size, _ = exponents.shape
    for b in range(batch):
        total = np.float64(0)
        for i in range(size):
            m = multiplicity[b, i]
            if m == 0:
                continue
            above = np.float64(0)
            for first in range(i + 1, size, COLUMNS_PER_CHUNK):
                last = min(size, first + COLUMNS_PER_CHUNK)
                row, weights = exponents[b, i, first:last], multiplicity[b, first:last]
                partial = np.float32(0)
                for j in range(last - first):
                    partial += weights[j] * exponential(row[j])
                above += partial
            total += m * (2 * above + m * exponential(exponents[b, i, i]))
        out[b] = total


@njit(cache=True, nogil=True)
def draw_rows(magnitude, offsets, draws, seed, indices):  # type: ignore[no-untyped-def]
    """Rows `[segments, draws]` drawn in proportion to their magnitudes, and the total magnitude per segment.

    Draws depend on the seed and the index of the segment only. NumPy's generators are slow to seed.
    """
    segments = len(offsets) - 1
    rows = np.empty((segments, draws), dtype=np.int64)
    totals = np.empty(segments)
    cumulative = np.empty(np.diff(offsets).max() if segments else 0)
    for n in range(segments):
        start, count = offsets[n], offsets[n + 1] - offsets[n]
        total = 0.0
        for row in range(count):
            total += magnitude[start + row]
            cumulative[row] = total
        totals[n] = total
        stream = splitmix64(splitmix64(np.uint64(seed)) ^ np.uint64(indices[n]))
        for draw in range(draws):
            threshold = uniform(stream ^ splitmix64(np.uint64(draw))) * total
            drawn = np.searchsorted(cumulative[:count], threshold, side="right")
            rows[n, draw] = start + min(drawn, count - 1)
    return rows, totals
