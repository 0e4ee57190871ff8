"""Samples of patches that represent all patches of a signal."""

import numpy as np
import pytest
import torch

from gcgp.kernel.base import evaluate
from gcgp.kernel.sampling import independent_halves
from gcgp.patches import Patches
from slow_reference import example_kernel, loop_kff, ragged_patches


def copies(patches, count):
    """One signal many times; each copy has its own draws."""
    return Patches(
        patches.values.repeat(count, 1),
        patches.multiplicity.repeat(count),
        torch.arange(count + 1) * len(patches.values),
        torch.arange(count * len(patches.values)),
    )


def with_multiplicity(patches, *multiplicity):
    values = torch.tensor(multiplicity, dtype=torch.float64)
    return Patches(patches.values, values, patches.offsets, patches.vertices)


def bilinear(kernel, left, right):
    """mᵀ K m' of the two samples of each signal."""
    count, size = len(left), len(left.values) // len(left)
    values = evaluate(kernel, left.values.view(count, size, -1), right.values.view(count, size, -1))
    return torch.einsum(
        "np,npq,nq->n", left.multiplicity.view(count, size), values, right.multiplicity.view(count, size)
    )


@pytest.mark.parametrize("name", ["rbf", "scaled matern32", "linear", "product"])
@pytest.mark.parametrize("draws", [2, 5])
def test_bilinear_forms_of_the_halves_are_unbiased(name, draws):
    kernel, patches = example_kernel(name), ragged_patches([12])
    with torch.no_grad():
        sampled = bilinear(kernel, *independent_halves(copies(patches, 1000), draws, 0, np.arange(1000)))
    error = sampled.std() / len(sampled) ** 0.5
    assert abs(sampled.mean() - loop_kff(kernel, patches, patches)[0, 0]) < 4 * error


def test_draws_depend_on_the_seed_and_the_index_of_the_signal_only():
    patches = ragged_patches([9, 12, 7])
    whole = independent_halves(patches, 4, 3, np.arange(3))
    for n in range(3):
        part = independent_halves(patches[n : n + 1], 4, 3, np.array([n]))
        for half, of_whole in zip(part, whole, strict=True):
            assert torch.equal(half.values, of_whole[n : n + 1].values)
            assert torch.equal(half.multiplicity, of_whole[n : n + 1].multiplicity)
    other = independent_halves(patches, 4, 4, np.arange(3))
    assert not torch.equal(other[0].vertices, whole[0].vertices)


def test_patches_of_multiplicity_zero_are_never_drawn():
    patches = with_multiplicity(ragged_patches([6]), 1.0, 0.0, -1.0, 0.0, 2.0, 0.0)
    halves = independent_halves(copies(patches, 50), 4, 0, np.arange(50))
    for half in halves:
        assert half.multiplicity.abs().eq(2).all()
        assert set((half.vertices % 6).tolist()) == {0, 2, 4}


def test_a_signal_whose_patches_do_not_count_has_zero_multiplicities():
    halves = independent_halves(with_multiplicity(ragged_patches([6]), *[0.0] * 6), 4, 0, np.arange(1))
    assert all(half.multiplicity.eq(0).all() for half in halves)


@pytest.mark.parametrize("draws", [0, 1, 5, 6])
def test_too_few_or_too_many_draws_are_an_error(draws):
    with pytest.raises(ValueError, match=f"draws={draws}: expected at least 2"):
        independent_halves(ragged_patches([5, 8]), draws, 0, np.arange(2))
