"""Ragged segments, compared with lists of lists."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gcgp._numerics.segments import (
    join_offsets,
    offsets_from_counts,
    repeat_starts,
    segment_of,
    take_segments,
)
from random_graphs import small

counts_of_segments = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def segments_of(offsets):
    return [list(range(a, b)) for a, b in pairwise(offsets)]


@small
@given(counts_of_segments, st.data())
def test_taken_segments_are_those_of_a_list(counts, data):
    offsets = offsets_from_counts(counts)
    indices = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=8))
    positions, taken = take_segments(offsets, np.array(indices, dtype=np.int64))
    chosen = [segments_of(offsets)[i] for i in indices]
    assert positions.tolist() == [position for segment in chosen for position in segment]
    assert np.diff(taken).tolist() == [len(segment) for segment in chosen]


@small
@given(counts_of_segments)
def test_starts_and_segments_of_elements(counts):
    offsets = offsets_from_counts(counts)
    segments = segments_of(offsets)
    assert repeat_starts(offsets).tolist() == [segment[0] for segment in segments for _ in segment]
    for i, segment in enumerate(segments):
        for position in segment:
            assert segment_of(offsets, position) == (i, position - segment[0])


@small
@given(counts_of_segments, counts_of_segments)
def test_joined_offsets_are_those_of_all_counts(first, second):
    joined = join_offsets([offsets_from_counts(first), offsets_from_counts(second)])
    assert joined.tolist() == offsets_from_counts(first + second).tolist()


def test_offsets_are_integers_even_without_segments():
    assert offsets_from_counts([]).tolist() == [0]
    assert offsets_from_counts([]).dtype == np.int64
