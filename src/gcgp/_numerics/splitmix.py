"""SplitMix64 random numbers (Steele et al. 2014) in compiled loops: any integer is a seed, at no cost."""

from __future__ import annotations

import numpy as np
from numba import njit

GAMMA = np.uint64(0x9E3779B97F4A7C15)


@njit(inline="always")
def splitmix64(state):  # type: ignore[no-untyped-def]
    """The output of the generator in this state; the next state is `state + GAMMA`."""
    word = state + GAMMA
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(inline="always")
def uniform(state):  # type: ignore[no-untyped-def]
    """A uniform float64 in [0, 1) from the generator in this state."""
    return np.float64(splitmix64(state) >> np.uint64(11)) * 2.0**-53
