"""Compiled loops over patches: weighted sums over ragged neighborhoods, and repeated rows.

torch's sparse products need one matrix per bin and signal and do not run in parallel.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from gcgp._runtime.fork import parallel_njit


@parallel_njit(cache=True, nogil=True)
def weighted_sums(radial, angular, row_offsets, neighbors, rows, starts, values):  # type: ignore[no-untyped-def]
    """Σ_v' radial[pair, k] · angular[pair, j] · values[start + v', c], as `[output row, c, k·J + j]`."""
    K, J, channels = radial.shape[1], angular.shape[1], values.shape[1]
    out = np.zeros((len(rows), channels, K * J), dtype=values.dtype)
    for i in prange(len(rows)):
        for pair in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
            vertex = starts[i] + neighbors[pair]
            for c in range(channels):
                value = values[vertex, c]
                if value != 0:
                    for k in range(K):
                        part = radial[pair, k] * value
                        for j in range(J):
                            out[i, c, k * J + j] += part * angular[pair, j]
    return out


@parallel_njit(cache=True, nogil=True, fastmath={"contract"})
def sparse_convolution(images, filters):  # type: ignore[no-untyped-def]
    """Σ_o filters[−o, b] · images[n, c, p + o] with zero padding, as `[n, c, p, b]`.

    Zero pixels are skipped, which libraries do not do. Terms are added in the same order at all pixels, so
    that equal neighborhoods give equal bits.
    """
    count, channels, height, width = images.shape
    side, _, bins = filters.shape
    radius = side // 2
    filter_rows = filters.reshape(side, side * bins)
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
                        weights = filter_rows[y - row + radius, start : start + len(target)]
                        for i in range(len(target)):
                            target[i] += value * weights[i]
    return out.reshape(count, channels, height * width, bins)


@parallel_njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def weighted_sums_pullback(  # type: ignore[no-untyped-def]
    gradient, radial, angular, row_offsets, row_members, members, neighbors, starts, values
):
    """The gradients with respect to both factors.

    Only output rows `members[row_members[r]:row_members[r + 1]]` depend on the pairs of chart row `r`.
    """
    K, J, channels = radial.shape[1], angular.shape[1], values.shape[1]
    pulled_radial, pulled_angular = np.zeros_like(radial), np.zeros_like(angular)
    for row in prange(len(row_offsets) - 1):
        of_weights = np.empty(K * J, dtype=radial.dtype)  # gradient of radial × angular, for one pair
        for pair in range(row_offsets[row], row_offsets[row + 1]):
            of_weights[:] = 0
            for member in range(row_members[row], row_members[row + 1]):
                i = members[member]
                vertex = starts[i] + neighbors[pair]
                for c in range(channels):
                    value = values[vertex, c]
                    if value != 0:
                        of_sums = gradient[i, c]
                        for b in range(K * J):
                            of_weights[b] += value * of_sums[b]
            for k in range(K):
                inner, scale = radial[pair, k] * 0, radial[pair, k]
                for j in range(J):
                    inner += of_weights[k * J + j] * angular[pair, j]
                    pulled_angular[pair, j] += of_weights[k * J + j] * scale
                pulled_radial[pair, k] = inner
    return pulled_radial, pulled_angular


@parallel_njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def weighted_values_pullback(gradient, weights, row_offsets, neighbors, rows, starts, values):  # type: ignore[no-untyped-def]
    """The gradient with respect to the values; only channels in parallel, because rows share vertices."""
    pulled = np.zeros_like(values)
    for c in prange(values.shape[1]):
        for i in range(len(rows)):
            of_sums = gradient[i, c]
            for pair in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
                total = pulled[0, 0] * 0
                for b in range(weights.shape[1]):
                    total += of_sums[b] * weights[pair, b]
                pulled[starts[i] + neighbors[pair], c] += total
    return pulled


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
