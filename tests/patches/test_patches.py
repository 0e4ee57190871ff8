"""Patches: slices and selections of signals, merging of repeated rows, thinning."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcgp.domain import Signals
from gcgp.patches import Convolution, Patches
from gcgp.weighting import Radial
from random_graphs import small


def patches_from(*signals, multiplicity=None, dtype=torch.float64):
    """Patches of signals given as lists of rows."""
    rows = torch.tensor([row for signal in signals for row in signal], dtype=dtype)
    total = len(rows)
    counts = (
        torch.ones(total, dtype=dtype) if multiplicity is None else torch.tensor(multiplicity, dtype=dtype)
    )
    offsets = torch.tensor([0, *np.cumsum([len(signal) for signal in signals])])
    return Patches(rows.reshape(total, -1), counts, offsets, torch.arange(total))


@pytest.fixture
def three():
    return patches_from(
        [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]],
        [[1.0, 2.0]],
        [[5.0, 6.0], [3.0, 4.0], [5.0, 6.0], [5.0, 6.0]],
        multiplicity=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    )


def test_signal_of_each_patch(three):
    assert len(three) == 3
    assert three.signal_of.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("key", "rows", "offsets"),
    [
        (slice(None), slice(0, 8), [0, 3, 4, 8]),
        (slice(0, 1), slice(0, 3), [0, 3]),
        (slice(1, 3), slice(3, 8), [0, 1, 5]),
        (slice(-1, None), slice(4, 8), [0, 4]),
        (slice(1, 99), slice(3, 8), [0, 1, 5]),
        (slice(2, 2), slice(4, 4), [0]),
        (slice(3, None), slice(8, 8), [0]),
        (slice(2, 1), slice(0, 0), [0]),
    ],
)
def test_a_run_of_signals_has_their_patches(three, key, rows, offsets):
    run = three[key]
    assert len(run) == len(offsets) - 1
    assert run.offsets.tolist() == offsets
    torch.testing.assert_close(run.values, three.values[rows])
    torch.testing.assert_close(run.multiplicity, three.multiplicity[rows])
    torch.testing.assert_close(run.vertices, three.vertices[rows])


def test_slices_have_step_one(three):
    with pytest.raises(IndexError, match="runs of signals; the step was 2"):
        three[::2]


def test_identical_patches_of_one_signal_become_one(three):
    merged = three.distinct()
    assert merged.offsets.tolist() == [0, 2, 3, 5]
    assert merged.values.tolist() == [[1, 2], [3, 4], [1, 2], [5, 6], [3, 4]]
    assert merged.multiplicity.tolist() == [3, 3, 4, 20, 6]
    assert merged.vertices.tolist() == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_patches_that_differ_in_the_last_bit_are_not_merged(dtype):
    one = torch.ones(1, dtype=dtype)
    next_after_one = torch.nextafter(one, 2 * one).item()
    patches = patches_from([[1.0, 0.0], [next_after_one, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=dtype)
    merged = patches.distinct()
    assert merged.values.tolist() == [[1.0, 0.0], [next_after_one, 0.0], [0.0, 1.0]]
    assert merged.multiplicity.tolist() == [2.0, 1.0, 1.0]


def test_distinct_patches_are_returned_unchanged():
    patches = patches_from([[1.0], [2.0]], [[1.0]])
    assert patches.distinct() is patches


def test_many_patches_and_many_repeats():
    random = np.random.default_rng(0)
    rows = random.integers(0, 12, size=(3000, 2)).astype(np.float64)
    merged = patches_from(rows[:1000].tolist(), rows[1000:].tolist()).distinct()
    for n, signal in enumerate((rows[:1000], rows[1000:])):
        values, counts = np.unique(signal, axis=0, return_counts=True)
        actual = merged[n : n + 1]
        order = np.lexsort(actual.values.numpy().T[::-1])
        np.testing.assert_array_equal(actual.values[order], values)
        np.testing.assert_array_equal(actual.multiplicity[order], counts)


@small
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-3, 3)), min_size=1, max_size=9),
        min_size=1,
        max_size=4,
    )
)
def test_merging_keeps_sums_over_patches(signals):
    """The last number of each row is its multiplicity."""
    patches = patches_from(
        *([row[:2] for row in signal] for signal in signals),
        multiplicity=[float(row[2]) for signal in signals for row in signal],
    )
    merged = patches.distinct()
    for function in (torch.exp, torch.square, torch.ones_like):
        sums = [
            torch.zeros(len(each), dtype=torch.float64).index_add(
                0, each.signal_of, each.multiplicity * function(each.values).prod(dim=1)
            )
            for each in (patches, merged)
        ]
        torch.testing.assert_close(sums[0], sums[1])
    for n in range(len(signals)):
        rows = merged[n : n + 1].values.tolist()
        assert len(rows) == len({tuple(row) for row in rows})
        assert {tuple(row) for row in rows} == {tuple(map(float, row[:2])) for row in signals[n]}


def test_merging_keeps_gradients():
    weighting = Radial(radii=[0.0, 1.0], radial_width=0.6)
    image = np.zeros((1, 9, 9))
    image[0, 4, 4] = 1.0
    gradients = []
    for merge in (False, True):
        patches = Convolution(weighting, dtype=torch.float64).patches(Signals.from_images(image))
        if merge:
            whole, patches = patches, patches.distinct()
            assert len(patches.values) < len(whole.values)
        weighting.zero_grad()
        (patches.multiplicity * patches.values.square().sum(dim=1)).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in weighting.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_scaling_multiplies_multiplicities_and_nothing_else(three):
    factor = torch.arange(8, dtype=torch.float64)
    scaled = three.scaled(factor)
    torch.testing.assert_close(scaled.multiplicity, three.multiplicity * factor)
    assert scaled.values is three.values
    assert scaled.offsets is three.offsets
    assert scaled.vertices is three.vertices


def test_thinned_patches_represent_all():
    counts = [50, 3, 0, 20]
    values = torch.arange(73, dtype=torch.float64)[:, None]
    offsets = torch.tensor([0, 50, 53, 53, 73])
    patches = Patches(values, torch.rand(73, dtype=torch.float64) + 0.5, offsets, torch.arange(73))
    thin = patches.thinned(10, np.random.default_rng(0))
    assert thin.offsets.diff().tolist() == [10, 3, 0, 10]
    assert torch.equal(thin.values[:, 0].long(), thin.vertices)
    for n, count in enumerate(counts):
        rows = slice(int(thin.offsets[n]), int(thin.offsets[n + 1]))
        assert len(set(thin.vertices[rows].tolist())) == len(thin.vertices[rows])
        factor = count / max(1, min(count, 10))
        expected = patches.multiplicity[thin.vertices[rows]] * factor
        torch.testing.assert_close(thin.multiplicity[rows], expected)
    assert patches.thinned(50, np.random.default_rng(0)) is patches
