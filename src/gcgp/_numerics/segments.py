"""Ragged arrays: segments stored one after the other; segment `i` is `offsets[i]:offsets[i + 1]`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike


def offsets_from_counts(counts: ArrayLike) -> Int[np.ndarray, "segments_plus_1"]:
    """Offsets of segments with these lengths.

    >>> offsets_from_counts([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def join_offsets(parts: Sequence[Int[np.ndarray, "_"]]) -> Int[np.ndarray, "segments_plus_1"]:
    """Offsets of several ragged arrays stored one after the other."""
    return offsets_from_counts(np.concatenate([np.diff(part) for part in parts]))


def repeat_starts(offsets: Int[np.ndarray, "segments_plus_1"]) -> Int[np.ndarray, "elements"]:
    """For each element, the position at which its segment starts."""
    return np.repeat(offsets[:-1], np.diff(offsets))


def segment_of(offsets: Int[np.ndarray, "segments_plus_1"], position: int | np.integer) -> tuple[int, int]:
    """The segment that contains a flat position, and the position within it."""
    segment = int(np.searchsorted(offsets, position, side="right")) - 1
    return segment, int(position - offsets[segment])


def take_segments(
    offsets: Int[np.ndarray, "segments_plus_1"], indices: Int[np.ndarray, "chosen"]
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "chosen_plus_1"]]:
    """Flat positions of the chosen segments, one after the other, and the offsets of the result."""
    counts = np.diff(offsets)[indices]
    taken = offsets_from_counts(counts)
    return np.arange(taken[-1]) + np.repeat(offsets[:-1][indices] - taken[:-1], counts), taken
