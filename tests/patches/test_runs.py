"""Runs of signals that fit a budget: patches computed run by run are those computed at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcgp._runtime.memory import runs
from gcgp.domain import Signals
from gcgp.patches import Convolution, Patches
from gcgp.weighting import Radial
from random_graphs import small


@small
@given(st.lists(st.integers(0, 20), max_size=30), st.integers(0, 50))
def test_runs_cover_all_items_in_order_within_the_budget(cost, budget):
    cut = list(runs(np.array(cost, dtype=np.float64), float(budget)))
    assert [i for run in cut for i in range(run.start, run.stop)] == list(range(len(cost)))
    for run in cut:
        assert sum(cost[run]) <= budget or run.stop - run.start == 1
        assert run.stop == len(cost) or sum(cost[run.start : run.stop + 1]) > budget


def test_an_item_beyond_the_budget_is_a_separate_run():
    cut = list(runs(np.array([1.0, 9.0, 1.0, 2.0, 3.0]), 3.0))
    assert [(run.start, run.stop) for run in cut] == [(0, 1), (1, 2), (2, 4), (4, 5)]


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
