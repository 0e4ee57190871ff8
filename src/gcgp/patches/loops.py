"""Compiled loops of the patch stage: weighted sums over ragged neighborhoods, and repeated rows.

By hand, because torch's sparse products need one matrix per bin and signal and do not run in parallel.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from gcgp._runtime.fork import parallel_njit


@parallel_njit(cache=True, nogil=True)
def weighted_sums(radial, angular, row_offsets, neighbors, rows, bases, values):  # type: ignore[no-untyped-def]
    """Σ_v' radial[pair, k] · angular[pair, j] · values[base + v', c], as `[output row, c, k·J + j]`."""
    K, J, channels = radial.shape[1], angular.shape[1], values.shape[1]
    out = np.zeros((len(rows), channels, K * J), dtype=values.dtype)
    for i in prange(len(rows)):
        for pair in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
            vertex = bases[i] + neighbors[pair]
            for c in range(channels):
                value = values[vertex, c]
                if value != 0:
                    for k in range(K):
                        part = radial[pair, k] * value
                        for j in range(J):
                            out[i, c, k * J + j] += part * angular[pair, j]
    return out


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def stencil_sums(images, filters):  # type: ignore[no-untyped-def]
    """Σ_o filters[−o, b] · images[n, c, p + o] with zero padding, as `[n, c, p, b]`.

    Pixels that are zero are passed over, which is why this is not left to a library's convolution. Terms are
    added in the same order at all pixels, so that equal surroundings give equal bits.
    """
    count, channels, height, width = images.shape
    side, _, bins = filters.shape
    radius = side // 2
    rows_of_filters = filters.reshape(side, side * bins)
    out = np.zeros((count, channels, height, width * bins), dtype=images.dtype)
    for n in prange(count):
        for c in range(channels):
            for row in range(height):
                for column in range(width):
                    value = images[n, c, row, column]
                    if value == 0:
                        continue
                    first, last = max(0, column - radius), min(width, column + radius + 1)
                    start = (first - column + radius) * bins
                    for y in range(max(0, row - radius), min(height, row + radius + 1)):
                        target = out[n, c, y, first * bins : last * bins]
                        weights = rows_of_filters[y - row + radius, start : start + len(target)]
                        for i in range(len(target)):
                            target[i] += value * weights[i]
    return out.reshape(count, channels, height * width, bins)


@parallel_njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def weighted_sums_pullback(  # type: ignore[no-untyped-def]
    gradient, radial, angular, row_offsets, by_row, members, neighbors, bases, values
):
    """The gradients with respect to both factors.

    Output rows `members[by_row[r]:by_row[r + 1]]` are those of chart row `r`, which alone touch its pairs.
    """
    K, J, channels = radial.shape[1], angular.shape[1], values.shape[1]
    pulled_radial, pulled_angular = np.zeros_like(radial), np.zeros_like(angular)
    for row in prange(len(row_offsets) - 1):
        of_weights = np.empty(K * J, dtype=radial.dtype)  # of radial × angular, for one pair
        for pair in range(row_offsets[row], row_offsets[row + 1]):
            of_weights[:] = 0
            for place in range(by_row[row], by_row[row + 1]):
                i = members[place]
                vertex = bases[i] + neighbors[pair]
                for c in range(channels):
                    value = values[vertex, c]
                    if value != 0:
                        own = gradient[i, c]
                        for b in range(K * J):
                            of_weights[b] += value * own[b]
            for k in range(K):
                inner, scale = radial[pair, k] * 0, radial[pair, k]
                for j in range(J):
                    inner += of_weights[k * J + j] * angular[pair, j]
                    pulled_angular[pair, j] += of_weights[k * J + j] * scale
                pulled_radial[pair, k] = inner
    return pulled_radial, pulled_angular


@parallel_njit(cache=True, nogil=True)
def first_occurrences(words, offsets):  # type: ignore[no-untyped-def]
    """For each row, the first row of the same segment with the same bits."""
    first = np.arange(len(words))
    for segment in prange(len(offsets) - 1):
        start, stop = offsets[segment], offsets[segment + 1]
        size = 8
        while size < 2 * (stop - start):
            size *= 2
        table = np.full(size, -1)
        for row in range(start, stop):
            code = np.uint64(14695981039346656037)
            for d in range(words.shape[1]):
                code = (code ^ np.uint64(words[row, d])) * np.uint64(1099511628211)
            slot = np.int64((code >> np.uint64(20)) & np.uint64(size - 1))
            while table[slot] >= 0:
                other = table[slot]
                same = True
                for d in range(words.shape[1]):
                    if words[row, d] != words[other, d]:
                        same = False
                        break
                if same:
                    first[row] = other
                    break
                slot = (slot + 1) & (size - 1)
            if table[slot] < 0:
                table[slot] = row
    return first
