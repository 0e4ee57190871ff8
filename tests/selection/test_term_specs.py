"""Term specifications: patches of trial signals, and their typical distances."""

import numpy as np
import pytest
import torch

from gcgp import Box, GeometryVectors, Layer, Signals, articulated_bodies
from gcgp.layers import fit_layers
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution
from gcgp.selection.term_specs import TermSpec, isometric_coordinates, median_distance
from gcgp.weighting import Radial


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_sampled_trial_patches_represent_all_patches(aggregate):
    meshes = articulated_bodies(persons=3, poses=1, vertices=220, random_state=1).meshes
    signals = GeometryVectors(eigenpairs=40).fit_transform(meshes)
    convolution = Convolution(Radial([0.0, 0.1], 0.05), area_weighted=True, dtype=torch.float64)
    with torch.no_grad():
        all_patches = convolution.patches(signals)
    rng = np.random.default_rng(0)
    trial = TermSpec.build(convolution, signals, 1, "rbf", aggregate, None, False, None, 50, 1, rng).trial
    assert trial.offsets.tolist() == [0, 50, 100, 150]
    torch.testing.assert_close(trial.values, all_patches.values[trial.vertices])
    per_signal = 220 if aggregate == "sum" else 1
    expected = all_patches.multiplicity[trial.vertices] * per_signal / 50
    torch.testing.assert_close(trial.multiplicity, expected)


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


def test_compact_trial_patches_have_the_same_distances_and_scores():
    images = np.random.default_rng(0).random((30, 12, 12))
    signals = Signals.from_images(images)
    chain = fit_layers([Layer(Box(3, inside=False), n_anchors=16, pool="flatten")], signals, torch.float64)
    convolution = layered(Convolution(Box(1), dtype=torch.float64), chain)
    options = (signals, 10, "rbf", "mean", None, False, None, 50, 10**8)
    full, compact = (
        TermSpec.build(convolution, *options, np.random.default_rng(0), compact=flag)
        for flag in (False, True)
    )
    assert not full.compact
    assert compact.compact
    assert full.trial.values.shape == (30, 144 * 16)
    assert compact.trial.values.shape == (30, 29)  # n points span n − 1 dimensions
    torch.testing.assert_close(torch.pdist(compact.trial.values), torch.pdist(full.trial.values))
    assert compact.medians == pytest.approx(full.medians)


@pytest.mark.parametrize("rows", [torch.ones(4, 9), torch.eye(1, 9)])
def test_equal_points_have_coordinates(rows):
    coordinates = isometric_coordinates(rows)
    assert coordinates.shape == (len(rows), 1)
    assert coordinates.abs().max() < 1e-6
