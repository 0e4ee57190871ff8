"""Term specifications: patches of trial signals, and their typical distances."""

import numpy as np
import pytest
import torch

from gcgp import GeometryVectors, articulated_bodies
from gcgp.patches import Convolution
from gcgp.selection.term_specs import TermSpec, median_distance
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
