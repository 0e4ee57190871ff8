"""Weightings from which learning starts: searched without gradients, which do not lead out of poor ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

from gcgp.domain import Domains
from gcgp.inference.search import SearchPoint, pattern_search
from gcgp.selection.weightings import default_radii, spacing
from gcgp.weighting import Radial, Weighting

ZOOM_STEPS_OCTAVES = (1.0, 0.5)
"""log2 of the factor between two neighborhood sizes that are compared, at first and then."""
MAX_ZOOM_OCTAVES = 3.0
FIRST_RING_OCTAVES: SearchPoint = (0.0, 0.0, -1.0)
"""log2 of lengthscale, radii and width relative to the defaults, where the search for rings starts.

The width, which matters most, is searched first.
"""
RING_STEPS_OCTAVES: SearchPoint = (0.5, 0.5, 1.0)
MIN_GAIN_PER_RING_OCTAVE = 0.01
"""Lengthscale and radii move away from the defaults only for this gain (nats per signal).

Starts are compared with few inducing patches, which favor other neighborhoods than the final model does.
"""
MIN_WIDTH_SPACINGS = 0.5
"""Narrower rings have single vertices in their bins, and gradients by their radii vanish."""

Loss = Callable[[Sequence[Weighting], float, float], float]
"""Nats per signal, the lower the better, of the model with these weightings, one per scale, and lengthscales
multiplied by a number, plus a penalty."""


def search_zoom(weightings: Sequence[Weighting], loss: Loss, *, refine: bool) -> None:
    """Search the best common factor of all lengths; every weighting must have some."""

    def zoomed(point: SearchPoint) -> float:
        if abs(point[0]) > MAX_ZOOM_OCTAVES:
            return float("inf")
        factors = [weighting.zoomed(2 ** point[0]) for weighting in weightings]
        return loss([weighting for weighting in factors if weighting is not None], 1.0, 0.0)

    steps = ZOOM_STEPS_OCTAVES if refine else ZOOM_STEPS_OCTAVES[:1]
    pattern_search(zoomed, (0.0,), [(step,) for step in steps])


def search_rings(weighting: Radial, domains: Domains, chart: str, loss: Loss, *, lengthscale: bool) -> None:
    """Search the best width and size of evenly spaced rings and, if wanted, the lengthscale for them.

    Of rings that start close to each other, two often end at the same radius.
    """
    narrowest = MIN_WIDTH_SPACINGS * spacing(domains, chart)
    _, width = default_radii(domains, chart, len(weighting.radii))
    first = FIRST_RING_OCTAVES
    if width * 2 ** first[2] < narrowest:
        first = (*first[:2], 0.0)

    def rings(point: SearchPoint) -> float:
        if max(abs(x) for x in point) > MAX_ZOOM_OCTAVES:
            return float("inf")
        changed = evenly_spaced(weighting, domains, chart, point[1], point[2])
        if point != first and float(changed.radial_width.detach()) < narrowest:
            return float("inf")
        moved = sum(abs(x - start) for x, start in zip(point[:2], first[:2], strict=True))
        return loss([changed], 2 ** point[0], MIN_GAIN_PER_RING_OCTAVE * moved)

    steps = (RING_STEPS_OCTAVES[0] * lengthscale, *RING_STEPS_OCTAVES[1:])
    pattern_search(rings, first, [steps], diagonals=False)


def has_rings(weighting: Weighting) -> TypeGuard[Radial]:
    """Whether the weighting has at least two rings."""
    return isinstance(weighting, Radial) and len(weighting.radii) > 1


def evenly_spaced(
    weighting: Radial, domains: Domains, chart: str, octaves: float = 0.0, width_octaves: float = 0.0
) -> Radial:
    """The weighting with as many radii as it has, evenly spaced.

    At zero octaves, radii and width are the default ones of the domains; `octaves` scales both, and
    `width_octaves` the width alone.
    """
    radii, width = default_radii(domains, chart, len(weighting.radii))
    factor = 2**octaves
    return weighting.with_radii([factor * radius for radius in radii], factor * width * 2**width_octaves)
