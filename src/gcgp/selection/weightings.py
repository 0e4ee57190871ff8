"""Default weightings, derived from the kind of domain."""

from __future__ import annotations

import copy
from typing import Any

from gcgp._runtime.errors import unknown_option
from gcgp.domain import Domains
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial, Weighting

WEIGHTINGS = ("auto", "polar", "radial", "mixture", "anisotropic", "box")
DEFAULT_ANGLES = 8
DEFAULT_RAYS = 16


def resolve_weightings(option: Any, domains: Domains) -> list[Weighting]:
    """One weighting per scale, from a name, a weighting, or a list of either."""
    options = option if isinstance(option, (list, tuple)) else [option]
    if not options:
        raise ValueError("weighting=[]: expected at least one weighting")
    return [_weighting(item, domains) for item in options]


def _weighting(option: Any, domains: Domains) -> Weighting:
    if isinstance(option, Weighting):
        return copy.deepcopy(option)
    if not isinstance(option, str) or option not in WEIGHTINGS:
        raise unknown_option("weighting", option, WEIGHTINGS)
    name = option
    if name == "auto":
        name = "polar" if domains.position_dimensions == 2 else "radial"
    if name == "box":
        return Box()
    if name == "mixture":
        grid = [[a, b] for a in (0.3, 0.6, 0.9) for b in (0.3, 0.6, 0.9)]
        return GaussianMixture(grid, scales=0.2, on=["degree"], reach=domains.spacing())
    radii, width = domains.default_radii()
    if name == "polar" and domains.offers(f"rays:{DEFAULT_RAYS}"):
        return GeodesicPolar([0.0, *radii], DEFAULT_RAYS, width)
    if name == "polar":
        return Polar(radii, DEFAULT_ANGLES, width)
    if name == "anisotropic":
        return Anisotropic([0.0, radii[-1] / 2], DEFAULT_ANGLES, along=2 * width, across=width / 2)
    return Radial([0.0, *radii], width)


def with_default_radii(weighting: Weighting, domains: Domains) -> Weighting | None:
    """The weighting with as many radii as it has, at the default places; None if it has no rings.

    A weighting with a bin at the center keeps it.
    """
    if not isinstance(weighting, Radial):
        return None
    count, centered = len(weighting.radii), float(weighting.radii.detach().abs().min()) == 0.0
    if centered and count == 1:
        return None
    radii, width = domains.default_radii(count - centered)
    return weighting.with_radii([0.0] * centered + radii, width)
