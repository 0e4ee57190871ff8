"""Weightings from which learning starts."""

from __future__ import annotations

import numpy as np
import pytest

from gcgp.domain import Signals
from gcgp.selection.starts import MIN_WIDTH_SPACINGS, evenly_spaced, has_rings, search_rings, search_zoom
from gcgp.weighting import Anisotropic, GeodesicPolar, Polar, Radial

DOMAINS = Signals.from_images(np.zeros((1, 28, 28))).domains


def test_rings_are_evenly_spaced_whatever_the_radii_were():
    weighting = evenly_spaced(Polar([0.0, 0.0, 0.1], 8, 0.1), DOMAINS, "path")
    assert weighting.radii.tolist() == pytest.approx([1.0, 4.0, 7.0])
    narrow = evenly_spaced(weighting, DOMAINS, "path", width_octaves=-1.0, octaves=1.0)
    assert narrow.radii.tolist() == pytest.approx([2.0, 8.0, 14.0])
    assert narrow.radial_width.item() == pytest.approx(weighting.radial_width.item())


def test_only_several_rings_can_be_spread():
    assert has_rings(Radial([0.0, 1.0]))
    assert has_rings(GeodesicPolar([0.0, 1.0]))
    assert not has_rings(Radial([1.0]))
    assert not has_rings(Anisotropic())


@pytest.mark.parametrize("lengthscale", [True, False])
def test_the_search_finds_width_size_and_lengthscale(lengthscale):
    tried = []

    def loss(weightings, factor, penalty):
        (weighting,) = weightings
        size = np.log2(weighting.radii.max().item() / 14)
        width = np.log2(weighting.radial_width.item() / weighting.radii.max().item() * 7 / 2.25)
        tried.append((size**2 + width**2 + (np.log2(factor) - 1) ** 2, size, width, factor))
        return tried[-1][0]

    search_rings(Radial([0.0, 1.0, 2.0]), DOMAINS, "path", loss, lengthscale=lengthscale)
    best = min(tried)
    assert best[1:] == pytest.approx((0.0, 0.0, 2.0 if lengthscale else 1.0), abs=1e-6)
    assert len(set(tried)) == len(tried)


def test_lengthscale_and_radii_move_only_for_a_gain():
    penalties = {}

    def loss(weightings, factor, penalty):
        penalties[round(weightings[0].radii.max().item(), 3), factor] = penalty
        return penalty - 0.015 * np.log2(factor)  # the longer, the better: by more than the penalty

    search_rings(Radial([0.0, 1.0, 2.0]), DOMAINS, "path", loss, lengthscale=True)
    assert penalties[7.0, 1.0] == 0
    assert penalties[7.0, 2.0] == pytest.approx(0.01)
    assert min(penalties.values()) >= 0


def test_rings_do_not_become_narrower_than_gradients_allow():
    widths = []

    def loss(weightings, factor, penalty):
        widths.append(weightings[0].radial_width.item())
        return widths[-1]

    search_rings(Radial([0.0, 1.0, 2.0]), DOMAINS, "path", loss, lengthscale=True)
    assert MIN_WIDTH_SPACINGS <= min(widths) < 2 * MIN_WIDTH_SPACINGS


@pytest.mark.parametrize(("refine", "expected"), [(True, 3.0), (False, 4.0)])
def test_zoom_scales_all_weightings(refine, expected):
    tried = {}

    def loss(weightings, factor, penalty):
        first, second = (weighting.radii.max().item() for weighting in weightings)
        assert second == pytest.approx(2 * first)
        tried[first] = abs(first - 3.0) if refine else abs(first - 3.5)
        return tried[first]

    search_zoom([Radial([0.0, 1.0]), Radial([0.0, 2.0])], loss, refine=refine)
    assert min(tried, key=tried.get) == pytest.approx(expected, rel=0.1)
