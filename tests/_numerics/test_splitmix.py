"""SplitMix64 against published outputs, and its uniform numbers."""

import numpy as np
import pytest
from numba import njit

from gcgp._numerics.splitmix import GAMMA, splitmix64, uniform


@njit
def stream(seed, count):
    words, uniforms = np.empty(count, dtype=np.uint64), np.empty(count)
    state = np.uint64(seed)
    for i in range(count):
        words[i], uniforms[i] = splitmix64(state), uniform(state)
        state += GAMMA
    return words, uniforms


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_outputs_are_those_of_the_reference_implementation(seed, expected):
    assert stream(seed, 3)[0].tolist() == expected


def test_uniform_numbers_are_the_upper_53_bits():
    words, uniforms = stream(5, 10_000)
    assert uniforms.tolist() == [word // 2**11 / 2**53 for word in words.tolist()]
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    assert abs(uniforms.mean() - 0.5) < 0.02
