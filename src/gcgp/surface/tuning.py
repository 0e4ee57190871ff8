"""Lengthscales and the worth of location, tried on a part of the training signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gcgp.inference.selection import Point, pattern_search
from gcgp.surface.assembly import Draft

Lengthscales = dict[str, float]
Loss = Callable[[Sequence[Draft], Sequence[Lengthscales]], float]

FIRST_MULTIPLIER = -1.0
"""log2 of the lengthscale over the median distance of patches, where the search for it starts."""
MULTIPLIER_STEP = 0.5
LOCATION_STEP = 1.0
OCTAVE_MUST_GAIN = 0.01
"""Below the median distance a lengthscale is halved only for this gain (nats a signal), not for noise."""
MOST_OCTAVES = 4.0
"""No lengthscale is more than this far from the median distance."""
LOCATION_MUST_GAIN = 0.01
"""Location is kept if it lowers the loss by this much (nats a signal)."""


@dataclass(frozen=True)
class Tuned:
    """Drafts, with location or without, and the lengthscales of each."""

    drafts: Sequence[Draft]
    lengthscales: Sequence[Lengthscales]


def tune(
    drafts: Sequence[Draft], lengthscale: float | str, location: bool | float | str, loss: Loss
) -> Tuned:
    """The lengthscales with the least loss; with location "auto", also whether location counts.

    `lengthscale` and `location` are the estimator's options: what is given as a number is not searched.
    """
    named = isinstance(drafts[0].kernel, str)
    free_bins = MULTIPLIER_STEP if named and lengthscale == "auto" else 0.0
    free_location = LOCATION_STEP if named and isinstance(location, (bool, str)) else 0.0

    def scales(drafts: Sequence[Draft], point: Point) -> list[Lengthscales]:
        every = [draft.lengthscales(*(2**exponent for exponent in point)) for draft in drafts]
        for own in every:
            if not isinstance(lengthscale, str):
                own["bins"] = float(lengthscale)
            if "location" in own and not isinstance(location, (bool, str)):
                own["location"] = float(location)
        return every

    def search(drafts: Sequence[Draft], start: Point, step: Point) -> tuple[Point, float]:
        if not any(step):
            return start, loss(drafts, scales(drafts, start)) if location == "auto" else 0.0

        def toll(point: Point) -> float:
            return OCTAVE_MUST_GAIN * sum(max(0.0, -exponent) for exponent in point)

        def tried(point: Point) -> float:
            if max(map(abs, point)) > MOST_OCTAVES:
                return float("inf")
            return loss(drafts, scales(drafts, point)) + toll(point)

        point, value = pattern_search(tried, start, [step], diagonals=False)
        return point, value - toll(point)

    start = FIRST_MULTIPLIER
    if "location" in drafts[0].columns and location != "auto":
        point, _ = search(drafts, (start, 0.0), (free_bins, free_location))
        return Tuned(drafts, scales(drafts, point))
    plain = [draft.without_location() for draft in drafts]
    point, least = search(plain, (start,), (free_bins,))
    if "location" in drafts[0].columns:
        located, lower = search(drafts, (point[0], 0.0), (free_bins, free_location))
        if lower < least - LOCATION_MUST_GAIN:
            return Tuned(drafts, scales(drafts, located))
    return Tuned(plain, scales(plain, point))
