"""Compiled loops of the kernel stage.

By hand, because torch takes two passes over a block for what is one here, and sums it in float32 alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

COLUMNS_PER_TASK = 128
ROWS_PER_TASK = 16
ROWS_IN_FLOAT32 = 16
"""So many values are added up in float32 before they join the sum in float64."""
LOG2_E = np.float32(1.4426950408889634)
LEAST = np.float32(-87.0)
"""Below this exp(x) is no ordinary float32; such values count as exp(−87) = 2e-38."""
# 2^r on [−½, ½] by its Taylor series, to 1e-8.
C1, C2, C3 = np.float32(0.6931471805599453), np.float32(0.2402265069591007), np.float32(0.05550410866482158)
C4, C5 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443)
C6, C7 = np.float32(0.00015403530393381608), np.float32(1.525273380405984e-05)


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})
def add_exponentials(exponents, multiplicity, signal_of, out):  # type: ignore[no-untyped-def]
    """out[signal_of[i], j] += multiplicity[i] · exp(exponents[i, j]): float32 values, float64 sums."""
    rows, columns = exponents.shape
    one, half = np.float32(1), np.float32(0.5)
    for task in prange((columns + COLUMNS_PER_TASK - 1) // COLUMNS_PER_TASK):
        first = task * COLUMNS_PER_TASK
        count = min(columns - first, COLUMNS_PER_TASK)
        powers = np.empty(COLUMNS_PER_TASK, dtype=np.int32)
        whole = powers.view(np.float32)  # an exponent field of n + 127 is the number 2^n
        part = np.empty(COLUMNS_PER_TASK, dtype=np.float32)
        some = np.zeros(COLUMNS_PER_TASK, dtype=np.float32)
        held = 0
        for i in range(rows):
            m = multiplicity[i]
            row = exponents[i, first : first + count]
            for j in range(count):
                z = max(row[j], LEAST) * LOG2_E
                n = np.floor(z + half)
                r = z - n
                part[j] = m * (one + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * (C6 + r * C7)))))))
                powers[j] = (np.int32(n) + np.int32(127)) << np.int32(23)
            for j in range(count):
                some[j] += part[j] * whole[j]
            held += 1
            if held == ROWS_IN_FLOAT32 or i + 1 == rows or signal_of[i + 1] != signal_of[i]:
                target = out[signal_of[i], first : first + count]
                for j in range(count):
                    target[j] += some[j]
                    some[j] = 0
                held = 0


@njit(cache=True, nogil=True, parallel=True, fastmath={"contract"})
def weigh_exponentials(exponents, gradient, signal_of, multiplicity, sums):  # type: ignore[no-untyped-def]
    """exponents[i, j] becomes multiplicity[i] · gradient[signal_of[i], j] · exp(exponents[i, j]), in float32.

    `sums[i]` becomes the sum over j without the multiplicity.
    """
    rows, columns = exponents.shape
    one, half = np.float32(1), np.float32(0.5)
    for task in prange((rows + ROWS_PER_TASK - 1) // ROWS_PER_TASK):
        powers = np.empty(COLUMNS_PER_TASK, dtype=np.int32)
        whole = powers.view(np.float32)
        part = np.empty(COLUMNS_PER_TASK, dtype=np.float32)
        for i in range(task * ROWS_PER_TASK, min(rows, (task + 1) * ROWS_PER_TASK)):
            m, total = multiplicity[i], np.float64(0)
            for first in range(0, columns, COLUMNS_PER_TASK):
                count = min(columns - first, COLUMNS_PER_TASK)
                row = exponents[i, first : first + count]
                factor = gradient[signal_of[i], first : first + count]
                for j in range(count):
                    z = max(row[j], LEAST) * LOG2_E
                    n = np.floor(z + half)
                    r = z - n
                    part[j] = one + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * (C5 + r * (C6 + r * C7))))))
                    powers[j] = (np.int32(n) + np.int32(127)) << np.int32(23)
                some = np.float32(0)
                for j in range(count):
                    value = part[j] * whole[j] * factor[j]
                    some += value
                    row[j] = value * m
                total += some
            sums[i] = total
