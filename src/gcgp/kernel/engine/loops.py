"""Compiled loops of the kernel stage, for one thread.

By hand, because torch takes two passes over a block for what is one here, and sums it in float32 alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

CHUNK = 128
ROWS_IN_FLOAT32 = 16
"""So many values are added up in float32 before they join the sum in float64."""
LOG2_E = np.float32(1.4426950408889634)
LEAST = np.float32(-87.0)
"""Below this exp(x) is no ordinary float32; such values count as exp(−87) = 2e-38."""
ZERO, HALF = np.float32(0), np.float32(0.5)
# 2^r on [−½, ½] by the polynomial of least relative error, which is 7.5e-8.
C0, C1, C2 = np.float32(1.00000007), np.float32(0.69314697), np.float32(0.2402212)
C3, C4, C5 = np.float32(0.05550713), np.float32(0.00967554), np.float32(0.00132765)


@intrinsic
def with_bits(typing_context, bits):  # type: ignore[no-untyped-def]
    """The float32 that has these bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), code


@njit(inline="always")
def exponential(x):  # type: ignore[no-untyped-def]
    """exp(x) in float32 of x ≤ 0 (or 1, if rounding made x > 0), by instructions that vectorize."""
    z = min(max(x, LEAST), ZERO) * LOG2_E
    n = np.floor(z + HALF)
    r = z - n
    part = C0 + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * C5))))
    return part * with_bits((np.int32(n) + np.int32(127)) << np.int32(23))  # the bits of 2^n


@njit(cache=True, nogil=True, fastmath={"contract"})
def add_exponentials(exponents, multiplicity, signal_of, out):  # type: ignore[no-untyped-def]
    """out[signal_of[i], j] += multiplicity[i] · exp(exponents[i, j]): float32 values, float64 sums."""
    rows, columns = exponents.shape
    some = np.zeros(CHUNK, dtype=np.float32)
    for first in range(0, columns, CHUNK):
        count = min(columns - first, CHUNK)
        held = 0
        for i in range(rows):
            m = multiplicity[i]
            row = exponents[i, first : first + count]
            for j in range(count):
                some[j] += m * exponential(row[j])
            held += 1
            if held == ROWS_IN_FLOAT32 or i + 1 == rows or signal_of[i + 1] != signal_of[i]:
                target = out[signal_of[i], first : first + count]
                for j in range(count):
                    target[j] += some[j]
                    some[j] = 0
                held = 0


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def weigh_exponentials(exponents, gradient, signal_of, multiplicity, sums):  # type: ignore[no-untyped-def]
    """exponents[i, j] becomes multiplicity[i] · gradient[signal_of[i], j] · exp(exponents[i, j]), in float32.

    `sums[i]` becomes the sum over j without the multiplicity.
    """
    rows, columns = exponents.shape
    for i in range(rows):
        m, total = multiplicity[i], np.float64(0)
        for first in range(0, columns, CHUNK):
            count = min(columns - first, CHUNK)
            row = exponents[i, first : first + count]
            factor = gradient[signal_of[i], first : first + count]
            some = np.float32(0)
            for j in range(count):
                value = factor[j] * exponential(row[j])
                some += value
                row[j] = value * m
            total += some
        sums[i] = total


@njit(inline="always")
def mixed(word):  # type: ignore[no-untyped-def]
    """The next number of the SplitMix64 sequence (Steele et al. 2014) after this one."""
    word += np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def draw_rows(magnitude, offsets, draws, seed, numbers):  # type: ignore[no-untyped-def]
    """The rows of each segment or, if it has more, `draws` of them in proportion to their magnitudes.

    Also what the sum over all ordered pairs of different draws is to be multiplied by. Draws depend on the
    seed and the segment's number: NumPy's generators take longer to make than to draw from.
    """
    segments = len(offsets) - 1
    rows = np.empty(np.minimum(np.diff(offsets), draws).sum(), dtype=np.int64)
    mass = np.ones(segments)
    reached = np.empty(np.diff(offsets).max() if segments else 0)
    place = 0
    for n in range(segments):
        start, count = offsets[n], offsets[n + 1] - offsets[n]
        if count <= draws:
            for row in range(count):
                rows[place] = start + row
                place += 1
            continue
        total = 0.0
        for row in range(count):
            total += magnitude[start + row]
            reached[row] = total
        mass[n] = total**2 / (draws * (draws - 1))
        stream = mixed(mixed(np.uint64(seed)) ^ np.uint64(numbers[n]))
        for draw in range(draws):
            uniform = np.float64(mixed(stream ^ mixed(np.uint64(draw))) >> np.uint64(11)) * 2.0**-53
            drawn = np.searchsorted(reached[:count], uniform * total, side="right")
            rows[place] = start + min(drawn, count - 1)
            place += 1
    return rows, mass


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def symmetric_sums(exponents, multiplicity, out):  # type: ignore[no-untyped-def]
    """out[b] = Σ_i Σ_j m_i m_j exp(exponents[b, i, j]) of symmetric exponents: one half of them is read."""
    batch, size, _ = exponents.shape
    for b in range(batch):
        total = np.float64(0)
        for i in range(size):
            m = multiplicity[b, i]
            if m == 0:
                continue
            others = np.float64(0)
            for first in range(i + 1, size, CHUNK):
                last = min(size, first + CHUNK)
                row, weights = exponents[b, i, first:last], multiplicity[b, first:last]
                some = np.float32(0)
                for j in range(last - first):
                    some += weights[j] * exponential(row[j])
                others += some
            total += m * (2 * others + m * exponential(exponents[b, i, i]))
        out[b] = total
