"""Term specifications: patches of trial signals, and their typical distances."""

import numpy as np
import pytest
import torch

from gcgp import Box, GeometryVectors, Layer, Signals, articulated_bodies
from gcgp.layers import fit_layers
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution
from gcgp.selection.term_specs import TermSpec
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
