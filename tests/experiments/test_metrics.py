import numpy as np
import pytest

from experiments.metrics import Scores


def test_scores_of_an_example():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.5, 0.5]])
    truth = np.array([0, 1, 1, 0])
    scores = Scores.of(probabilities, truth, bins=10)
    assert scores.error == 0.25
    assert scores.nll == pytest.approx(-np.log([0.9, 0.4, 0.8, 0.5]).mean())
    assert scores.brier == pytest.approx(np.mean([2 * 0.01, 2 * 0.36, 2 * 0.04, 2 * 0.25]))
    # Each confidence is in a different bin: |0.9−1| + |0.6−0| + |0.8−1| + |0.5−1| over four.
    assert scores.ece == pytest.approx((0.1 + 0.6 + 0.2 + 0.5) / 4)


def test_calibrated_probabilities_have_no_calibration_error():
    probabilities = np.tile([0.75, 0.25], (4, 1))
    assert Scores.of(probabilities, np.array([0, 0, 0, 1])).ece == pytest.approx(0)


def test_the_nll_of_a_certain_error_is_finite():
    assert np.isfinite(Scores.of(np.array([[1.0, 0.0]]), np.array([1])).nll)
