"""Distances between patches: medians, and coordinates in fewer dimensions."""

import numpy as np
import pytest
import torch

from gcgp.selection.patch_distances import isometric_coordinates, median_distance


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_errors_are_not_distances_between_patches(dtype):
    """Otherwise equal bin counts of all vertices of a ring would get a lengthscale of rounding errors."""
    rng = np.random.default_rng(0)
    rows = torch.full((100, 3), 7.3, dtype=dtype)
    rows *= 1 + torch.finfo(dtype).eps * torch.from_numpy(rng.integers(-2, 3, (100, 3))).to(dtype)
    assert (rows != rows[0]).any()
    assert median_distance(rows, rng) == 1.0
    rows[::2] += 0.5
    assert median_distance(rows, rng) == pytest.approx(0.5 * 3**0.5, rel=1e-4)


@pytest.mark.parametrize("rows", [torch.ones(4, 9), torch.eye(1, 9)])
def test_equal_points_have_coordinates(rows):
    coordinates = isometric_coordinates(rows)
    assert coordinates.shape == (len(rows), 1)
    assert coordinates.abs().max() < 1e-6
