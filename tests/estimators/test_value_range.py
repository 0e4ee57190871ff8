"""Values of any scale: the same predictions in other units, and clear errors where squares overflow."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gcgp import GCGPClassifier, GCGPRegressor, Runtime, Signals

DIGITS = load_digits()
TRAIN, TEST = slice(0, 80), slice(100, 140)


def images(factor: float = 1.0) -> np.ndarray:
    return (DIGITS.images / 16 * factor).astype(np.float32)


def fitted(stack: np.ndarray) -> GCGPClassifier:
    return GCGPClassifier("box", n_inducing=40).fit(stack[TRAIN], DIGITS.target[TRAIN])


@pytest.fixture(scope="module")
def model() -> GCGPClassifier:
    return fitted(images())


@pytest.mark.parametrize("factor", [1e-6, 2.0**-30, 1e15])
def test_the_unit_of_the_values_does_not_matter(model, factor):
    expected = model.predict_proba(images()[TEST])
    scaled = images(factor)
    np.testing.assert_allclose(fitted(scaled).predict_proba(scaled[TEST]), expected, atol=1e-3)


def test_the_error_for_a_signal_whose_square_overflows_names_it(model):
    stack = images()[:5].copy()
    stack[3] *= np.float32(1e20)
    with pytest.raises(ValueError, match=r"signal 3, vertex \d+, channel 0: the value is .*e\+\d+"):
        model.predict_proba(stack)
    with pytest.raises(ValueError, match="signal 3, vertex"):
        model.predict(stack)


def test_the_error_for_a_training_pixel_whose_square_overflows_names_it():
    stack = images()[TRAIN].copy()
    stack[7, 2, 1] = -1e20
    with pytest.raises(ValueError, match=r"signal 7, vertex 17, channel 0: the value is -1e\+20"):
        GCGPClassifier().fit(stack, DIGITS.target[TRAIN])


def test_one_extreme_training_pixel_does_not_harm_the_model(model):
    stack = images().copy()
    stack[7, 2, 1] = 1e18
    usual = model.score(images()[TEST], DIGITS.target[TEST])
    assert fitted(stack).score(images()[TEST], DIGITS.target[TEST]) >= usual - 0.05


def test_the_error_for_a_coordinate_whose_square_overflows_names_it():
    positions = [np.zeros((3, 2)), np.array([[0, 0], [0, 1e30], [1, 1]])]
    signals = Signals.from_graphs([[1.0, 2.0, 3.0]] * 2, [[[0, 1]]] * 2, coordinates=positions)
    with pytest.raises(ValueError, match=r"signal 1, vertex 1, axis 1: the coordinate is 1e\+30"):
        GCGPClassifier().fit(signals, [0, 1])


def test_float64_accepts_larger_values():
    stack = images(1.0).astype(np.float64) * 1e25
    model = GCGPClassifier("box", n_inducing=20, runtime=Runtime(dtype="float64"))
    model.fit(stack[TRAIN], DIGITS.target[TRAIN])
    assert np.isfinite(model.predict_proba(stack[TEST])).all()


@pytest.mark.parametrize("estimator", [GCGPClassifier, GCGPRegressor])
def test_values_whose_squares_underflow_are_an_error(estimator):
    with pytest.raises(ValueError, match=r"largest magnitude of all values is .*underflows"):
        estimator().fit(images(1e-40)[TRAIN], DIGITS.target[TRAIN])


@pytest.mark.parametrize(
    ("factor", "match"), [(1e200, r"y\[\d+\] is .*overflows"), (1e-200, "y: .*underflows")]
)
def test_targets_whose_squares_are_out_of_range_are_an_error(factor, match):
    with pytest.raises(ValueError, match=match):
        GCGPRegressor().fit(images()[TRAIN], DIGITS.target[TRAIN] * factor)


def test_values_near_the_largest_float_are_an_error():
    stack = np.full((6, 4, 4), 3.3e38, dtype=np.float32)
    with pytest.raises(ValueError, match="signal 0, vertex 0"):
        GCGPClassifier().fit(stack, [0, 1] * 3)
