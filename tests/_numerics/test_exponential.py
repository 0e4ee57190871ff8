"""The fast exponential against float64."""

import numpy as np
import pytest
from numba import njit

from gcgp._numerics.exponential import exponential


@njit(fastmath={"contract"})
def exponentials(x):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = exponential(x[i])
    return out


@pytest.mark.parametrize(("least", "error"), [(-1.0, 1.1e-7), (-10.0, 6e-7), (-60.0, 3.6e-6), (-87.0, 4e-6)])
def test_relative_error_is_as_stated(least, error):
    x = np.linspace(least, 0, 300_001).astype(np.float32)
    assert np.abs(exponentials(x) / np.exp(x.astype(float)) - 1).max() < error


def test_zero_is_exact_and_values_outside_the_range_are_clipped():
    x = np.array([0, 1e-3, 5, -87, -88, -1e30, -np.inf], dtype=np.float32)
    values = exponentials(x)
    assert values.dtype == np.float32
    assert values[:3].tolist() == [1, 1, 1]
    assert (values[3:] == values[3]).all()
    assert values[3] >= np.finfo(np.float32).tiny


def test_values_do_not_decrease():
    x = np.linspace(-87, 0, 400_001).astype(np.float32)
    values = exponentials(x).astype(float)
    assert (np.diff(values) >= -3e-7 * values[1:]).all()
