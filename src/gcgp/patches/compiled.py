"""Compiled loops of the patch stage: weighted sums over ragged neighbourhoods, and repeated rows.

By hand, because torch's sparse products need one matrix per bin and signal and do not run in parallel.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, nogil=True, parallel=True)
def weighted_sums(weights, row_offsets, neighbours, rows, bases, values):  # type: ignore[no-untyped-def]
    """Σ_v' weights[pair, b] · values[base + v', c] for each output row, as `[row, channel, bin]`."""
    bins, channels = weights.shape[1], values.shape[1]
    out = np.zeros((len(rows), channels, bins), dtype=values.dtype)
    for i in prange(len(rows)):
        for pair in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
            vertex = bases[i] + neighbours[pair]
            for c in range(channels):
                value = values[vertex, c]
                if value != 0:
                    for b in range(bins):
                        out[i, c, b] += weights[pair, b] * value
    return out


@njit(cache=True, nogil=True)
def weighted_sums_pullback(gradient, weights, row_offsets, neighbours, rows, bases, values):  # type: ignore[no-untyped-def]
    """The gradient with respect to the weights; rows may share pairs, so it runs in one thread."""
    pulled = np.zeros_like(weights)
    for i in range(len(rows)):
        for pair in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
            vertex = bases[i] + neighbours[pair]
            for c in range(values.shape[1]):
                for b in range(weights.shape[1]):
                    pulled[pair, b] += gradient[i, c, b] * values[vertex, c]
    return pulled


@njit(cache=True, nogil=True, parallel=True)
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
