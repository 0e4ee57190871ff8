"""The order of signals and the numbering of vertices do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from gcgp import GCGPClassifier, Signals
from gcgp._runtime.processes import SINGLE_PROCESS
from gcgp.selection.content_order import content_order

COUNT, TRAIN = 160, 120


def graphs(seed: int, labels: bool) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Rings with or without a chord; random values or, with `labels`, one of three categories."""
    rng = np.random.default_rng(seed)
    values, edges, classes = [], [], np.arange(COUNT) % 2
    for chord in classes:
        size = int(rng.integers(8, 14))
        ring = [[i, (i + 1) % size] for i in range(size)]
        edges.append(np.array(ring + [[0, size // 2]] * chord))
        values.append(np.eye(3)[rng.integers(3, size=size)] if labels else rng.normal(1.0, 0.3, (size, 1)))
    return values, edges, classes


def renumbered(
    values: list[np.ndarray], edges: list[np.ndarray], rng: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    orders = [rng.permutation(len(item)) for item in values]
    moved = [item[order] for item, order in zip(values, orders, strict=True)]
    return moved, [np.argsort(order)[item] for item, order in zip(edges, orders, strict=True)]


def probabilities(values: list, edges: list, classes: np.ndarray, order: np.ndarray) -> np.ndarray:
    signals = Signals.from_graphs(values, edges)
    model = GCGPClassifier(n_inducing=2000).fit(signals[order], classes[order])
    return model.predict_proba(signals[TRAIN:])


@pytest.mark.parametrize("labels", [False, True])
def test_reordered_signals_and_renumbered_vertices_change_no_probability(labels):
    values, edges, classes = graphs(0, labels)
    rng = np.random.default_rng(1)
    expected = probabilities(values, edges, classes, np.arange(TRAIN))
    shuffled = probabilities(values, edges, classes, rng.permutation(TRAIN))
    np.testing.assert_allclose(shuffled, expected, atol=0.02)
    moved = probabilities(*renumbered(values, edges, rng), classes, np.arange(TRAIN))
    np.testing.assert_allclose(moved, expected, atol=0.02)


def test_the_content_order_does_not_depend_on_the_given_order():
    values, edges, classes = graphs(0, labels=True)
    rng = np.random.default_rng(0)
    shuffle = rng.permutation(COUNT)
    signals, moved = (
        Signals.from_graphs(*pair) for pair in ((values, edges), renumbered(values, edges, rng))
    )
    order = content_order(signals, classes.astype(float), SINGLE_PROCESS, 0)
    again = content_order(moved[shuffle], classes[shuffle].astype(float), SINGLE_PROCESS, 0)
    np.testing.assert_array_equal(shuffle[again], order)
    assert sorted(order) == list(range(COUNT))
