"""Patches computed in runs of signals are those computed at once."""

import numpy as np
import pytest
import torch

from gcgp.domain import Signals
from gcgp.patches import Convolution, Patches
from gcgp.weighting import Radial


@pytest.mark.parametrize("memory", [1, 20_000, 10**9])
def test_concatenated_runs_are_the_whole(memory):
    rng = np.random.default_rng(0)
    sizes = [4, 1, 7, 5, 2]
    signals = Signals.from_graphs(
        [rng.random(size) for size in sizes],
        [[[i, i + 1] for i in range(size - 1)] for size in sizes],
    )
    convolution = Convolution(Radial([0, 1]), dtype=torch.float64)
    whole = convolution.patches(signals)
    parts = list(convolution.iterate_runs(signals, memory))
    assert [run.start for run, _ in parts] + [5] == [0] + [run.stop for run, _ in parts]
    joined = Patches.concatenate([part for _, part in parts])
    torch.testing.assert_close(joined.values, whole.values)
    assert joined.offsets.tolist() == whole.offsets.tolist()
    assert joined.vertices.tolist() == whole.vertices.tolist()
