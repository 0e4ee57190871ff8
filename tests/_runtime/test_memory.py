"""Memory limits as users write them, and runs of items within a budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcgp._runtime.memory import as_bytes, runs
from random_graphs import small


@pytest.mark.parametrize(
    ("text", "expected"), [(5, 5), ("12", 12), ("1.5 KB", 1500), ("2mb", 2_000_000), ("1 GiB", 2**30)]
)
def test_memory_limits(text, expected):
    assert as_bytes(text) == expected


@pytest.mark.parametrize("text", [0, -1, "0 MB", "MB", True, None, 1.5, "5 TB"])
def test_invalid_memory_limits(text):
    with pytest.raises(ValueError, match="memory_limit"):
        as_bytes(text)


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
