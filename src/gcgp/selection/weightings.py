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
HOP_WIDTH = 0.5


def spacing(domains: Domains, chart: str) -> float:
    """Distance between neighbors in the units of a chart: 1 for numbers of edges."""
    return 1.0 if chart == "hops" else domains.spacing()


def default_radii(domains: Domains, chart: str, count: int | None = None) -> tuple[list[float], float]:
    """`count` radii and their width in the units of a chart: numbers of edges, or those of `Domains`."""
    if chart == "hops":
        return [k + 1.0 for k in range(count or 3)], HOP_WIDTH
    return domains.default_radii(count)


def resolve_weightings(option: Any, domains: Domains, chart: str) -> list[Weighting]:
    """One weighting per scale, from a name, a weighting, or a list of either."""
    options = option if isinstance(option, (list, tuple)) else [option]
    if not options:
        raise ValueError("weighting=[]: expected at least one weighting")
    return [_weighting(item, domains, chart) for item in options]


def _weighting(option: Any, domains: Domains, chart: str) -> Weighting:
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
    radii, width = default_radii(domains, chart)
    if name == "polar" and domains.offers(f"rays:{DEFAULT_RAYS}"):
        return GeodesicPolar([0.0, *radii], DEFAULT_RAYS, width)
    if name == "polar":
        return Polar(radii, DEFAULT_ANGLES, width)
    if name == "anisotropic":
        return Anisotropic([0.0, radii[-1] / 2], DEFAULT_ANGLES, along=2 * width, across=width / 2)
    return Radial([0.0, *radii], width)


def candidate_weightings(domains: Domains, chart: str, search: str) -> list[tuple[Weighting, ...]]:
    """The weightings that are compared on a kind of domain; each is a tuple of one or more scales.

    Images: squares of 5, 7 and 3 pixels, or a square of 3 pixels and polar bins if no others fit. Other
    domains with two-dimensional coordinates: polar and radial bins. All others: radial bins up to one, two
    and three radii, and a sum of three scales; up to three radii only for numbers of edges. A thorough search
    adds polar bins and sums of two squares on images, and sums of four scales. The first weighting is the
    default of a search on images.
    """
    if domains.one_chart and domains.offers("offset"):
        sides = [side for side in (5, 7, 3) if domains.extent() >= 2 * side]
        boxes: list[tuple[Weighting, ...]] = [(Box(side),) for side in sides]
        if search == "thorough" and len(sides) > 1:
            boxes.append((Box(min(sides)), Box(max(sides))))
        # Polar bins need fewer inducing patches, so that trials with few of them are biased towards these.
        polar = [(_weighting("polar", domains, chart),)] if search == "thorough" or len(sides) < 2 else []
        return [*boxes, *polar]
    if domains.position_dimensions == 2 and chart == "euclidean":
        return [(_weighting(name, domains, chart),) for name in ("polar", "radial")]
    radii, width = default_radii(domains, chart, 3)
    rings = [Radial([0.0, *radii[:count]], width) for count in range(4)]
    scales: list[tuple[Weighting, ...]] = [(ring,) for ring in rings[1:]]
    if chart == "hops" and search == "fast":
        return scales[-1:]
    if domains.costly_charts:
        return scales[-1:] if search == "fast" else scales
    sums = [tuple(rings[:3]), *([tuple(rings)] if search == "thorough" else [])]
    return [*scales, (rings[0],), *sums]
