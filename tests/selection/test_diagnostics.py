"""A fit to identical patches warns, states the cause and suggests remedies."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

from gcgp import GCGPClassifier, GCGPRegressor, Patch, PatchKernel, Signals
from gcgp.weighting import Radial

FAST = {"n_inducing": 10, "kernel": PatchKernel(lengthscale=0.5, variance=5.0)}
LABELS = np.arange(12) % 2
REMEDY = 'chart="path", patch=Patch(bin_counts=True)'
RANDOM_VALUES = Signals.on_graph(np.random.default_rng(0).random((12, 4)), [[0, 1], [1, 2], [2, 3]])


def chorded_rings(coordinates=True, values=np.ones):
    """Rings with a chord (class 1) or without (class 0), with random coordinates or none."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 9, len(LABELS))
    edges = [
        [[i, (i + 1) % size] for i in range(size)] + [[0, size // 2]] * int(label)
        for size, label in zip(sizes, LABELS, strict=True)
    ]
    positions = [rng.normal(size=(size, 2)) for size in sizes] if coordinates else None
    return Signals.from_graphs([values(size) for size in sizes], edges, coordinates=positions)


def warning_of(signals, **options):
    with pytest.warns(UserWarning, match="identical") as caught:
        GCGPClassifier(**(FAST | options)).fit(signals, LABELS)
    (warning,) = caught
    return str(warning.message)


SCRIPT = """
import warnings
import numpy as np
from gcgp import GCGPClassifier

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    GCGPClassifier(n_inducing=5).fit(np.ones((4, 4, 4)), [0, 1, 0, 1])  # line 8
assert [(warning.filename, warning.lineno) for warning in caught] == [("<string>", 8)], caught
"""


def test_the_warning_points_to_the_call_of_fit():
    """In a process without shape checks, which add frames to the stack."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_constant_values_on_graphs_with_coordinates():
    message = warning_of(chorded_rings(), patch=Patch(position=False))
    assert "every patch is identical" in message
    assert "the same at every vertex" in message
    assert "edges are not used" in message
    assert REMEDY in message
    assert "degrees" in message


def test_positions_do_not_hide_identical_patches():
    message = warning_of(chorded_rings())
    assert "identical apart from its position" in message
    assert REMEDY in message


def test_the_remedy_works():
    signals = chorded_rings()
    model = GCGPClassifier(chart="path", patch=Patch(bin_counts=True), **FAST).fit(signals, LABELS)
    assert model.score(signals, LABELS) > 0.7


def test_constant_values_and_identical_neighborhoods():
    rings = [[[i, (i + 1) % size] for i in range(size)] for size in (14, 15) * 6]
    signals = Signals.from_graphs([np.ones(len(ring)) for ring in rings], rings)
    message = warning_of(signals, aggregate="mean")
    assert "edges are not used" not in message
    assert 'aggregate="sum"' in message


def test_constant_images():
    message = warning_of(np.ones((12, 5, 5)), patch=Patch(position=False))
    assert "the same at every vertex" in message
    assert "bin_counts" not in message


def test_bins_that_contain_no_vertex():
    patch = Patch(bin_counts=False)
    message = warning_of(RANDOM_VALUES, weighting=Radial([0.5], 0.001), patch=patch)
    assert "no bin of the weighting holds a vertex" in message


def test_one_informative_scale_is_enough():
    weighting = [Radial([0.5], 0.001), Radial([0.0], 0.5)]
    GCGPClassifier(weighting, patch=Patch(bin_counts=False), **FAST).fit(RANDOM_VALUES, LABELS)


@pytest.mark.parametrize("coordinates", [True, False])
def test_no_warning_if_values_differ(coordinates):
    rng = np.random.default_rng(0)
    GCGPClassifier(**FAST).fit(chorded_rings(coordinates, rng.random), LABELS)
    GCGPClassifier(**FAST).fit(np.broadcast_to(LABELS[:, None, None], (12, 4, 4)), LABELS)


def test_no_warning_for_sums_over_signals_of_different_sizes():
    sizes = 2 + np.arange(12)
    signals = Signals.from_graphs([np.ones(size) for size in sizes], [[]] * 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GCGPRegressor(aggregate="sum", **FAST).fit(signals, sizes)
    with pytest.warns(UserWarning, match="identical"):
        GCGPRegressor(aggregate="mean", **FAST).fit(signals, sizes)
    with pytest.warns(UserWarning, match="identical"):
        GCGPRegressor(aggregate="sum", **FAST).fit(signals[[4] * 12], sizes)
