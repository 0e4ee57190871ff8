"""A fit on patches that are all identical says so, says why, and suggests what to change."""

import warnings

import numpy as np
import pytest

from gcgp import GCGPClassifier, GCGPRegressor, Signals
from gcgp.weighting import Radial

FAST = {"n_inducing": 10, "progress": False, "variance": 5.0, "lengthscale": 0.5}
LABELS = np.arange(12) % 2
REMEDY = 'chart="path", bin_counts=True'


def chorded_rings(located=True, value=lambda size: np.ones(size)):
    """Rings with a chord (class 1) or without (class 0); at random places if located."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 9, len(LABELS))
    edges = [
        [[i, (i + 1) % size] for i in range(size)] + [[0, size // 2]] * int(label)
        for size, label in zip(sizes, LABELS, strict=True)
    ]
    places = [rng.normal(size=(size, 2)) for size in sizes] if located else None
    return Signals.from_graphs([value(size) for size in sizes], edges, coordinates=places)


def message_of(signals, **options):
    with pytest.warns(UserWarning, match="identical") as caught:
        GCGPClassifier(**(FAST | options)).fit(signals, LABELS)
    (warning,) = caught
    return str(warning.message)


def test_constant_values_on_located_graphs():
    message = message_of(chorded_rings(), position=False)
    assert "every patch is identical" in message
    assert "the same at every vertex" in message
    assert "edges are not used" in message
    assert REMEDY in message
    assert "degrees" in message


def test_location_alone_does_not_hide_it():
    message = message_of(chorded_rings())
    assert "identical apart from its position" in message
    assert REMEDY in message


def test_the_remedy_works():
    signals = chorded_rings()
    model = GCGPClassifier(chart="path", bin_counts=True, **FAST).fit(signals, LABELS)
    assert model.score(signals, LABELS) > 0.7


def test_constant_values_and_neighborhoods_alike():
    rings = [[[i, (i + 1) % size] for i in range(size)] for size in (14, 15) * 6]
    signals = Signals.from_graphs([np.ones(len(ring)) for ring in rings], rings)
    message = message_of(signals)
    assert "edges are not used" not in message
    assert 'aggregate="sum"' in message


def test_images_of_one_value():
    message = message_of(np.ones((12, 5, 5)), position=False)
    assert "the same at every vertex" in message
    assert "bin_counts" not in message


def test_bins_that_hold_no_vertex():
    values = np.random.default_rng(0).random((12, 4))
    signals = Signals.on_graph(values, [[0, 1], [1, 2], [2, 3]])
    message = message_of(signals, weighting=Radial([0.5], 0.001), bin_counts=False)
    assert "no bin of the weighting holds a vertex" in message


def test_one_informative_scale_is_enough():
    values = np.random.default_rng(0).random((12, 4))
    signals = Signals.on_graph(values, [[0, 1], [1, 2], [2, 3]])
    weighting = [Radial([0.5], 0.001), Radial([0.0], 0.5)]
    GCGPClassifier(weighting, bin_counts=False, **FAST).fit(signals, LABELS)


@pytest.mark.parametrize("located", [True, False])
def test_values_that_differ_are_no_cause_for_a_warning(located):
    rng = np.random.default_rng(0)
    GCGPClassifier(**FAST).fit(chorded_rings(located, rng.random), LABELS)
    GCGPClassifier(**FAST).fit(np.broadcast_to(LABELS[:, None, None], (12, 4, 4)), LABELS)


def test_sums_over_signals_of_different_size_are_informative():
    sizes = 2 + np.arange(12)
    signals = Signals.from_graphs([np.ones(size) for size in sizes], [[]] * 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GCGPRegressor(aggregate="sum", **FAST).fit(signals, sizes)
    with pytest.warns(UserWarning, match="identical"):
        GCGPRegressor(aggregate="mean", **FAST).fit(signals, sizes)
    with pytest.warns(UserWarning, match="identical"):
        GCGPRegressor(aggregate="sum", **FAST).fit(signals[[4] * 12], sizes)
