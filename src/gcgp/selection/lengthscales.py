"""Search for lengthscales, and for whether the position of a vertex counts, on trial signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gcgp.inference.search import DEFAULT_START, SearchPoint, pattern_search
from gcgp.selection.term_specs import Lengthscales, TermSpec
from gcgp.selection.trial import InducingPatches, Trial

FIRST_OCTAVE = -1.0
"""log2 of the lengthscale relative to the median distance of patches, where the search starts."""
LENGTHSCALE_STEP_OCTAVES = 0.5
POSITION_STEP_OCTAVES = 1.0
MAX_OCTAVES_FROM_MEDIAN = 4.0
MIN_GAIN_PER_OCTAVE = 0.01
"""Below the median distance a lengthscale is halved only for this gain (nats per signal), not for noise."""
MIN_GAIN_OF_POSITION = 0.01
"""Position is kept if it lowers the loss by this much (nats per signal)."""


@dataclass(frozen=True)
class Candidate:
    """Term specifications with lengthscales, and the inducing patches with which they were scored."""

    specs: Sequence[TermSpec]
    lengthscales: Sequence[Lengthscales]
    inducing: InducingPatches | None
    """None: the candidate has not been scored."""
    start: SearchPoint
    """Where the next search for likelihood and variance should start."""


@dataclass(frozen=True)
class LengthscaleSearch:
    """Pattern search over powers of two of the median distances between patches."""

    trial: Trial
    lengthscale: float | str
    position: bool | float | str
    rng: np.random.Generator

    def lengthscales(self, specs: Sequence[TermSpec], point: SearchPoint) -> list[Lengthscales]:
        """The lengthscales at a point of the search; what the user has given replaces them."""
        all_scales = [spec.lengthscales(*(2**exponent for exponent in point)) for spec in specs]
        for scales in all_scales:
            if not isinstance(self.lengthscale, str):
                scales["bins"] = float(self.lengthscale)
            if "position" in scales and not isinstance(self.position, (bool, np.bool_, str)):
                scales["position"] = float(self.position)
        return all_scales

    def run(
        self, specs: Sequence[TermSpec], first: SearchPoint, steps: SearchPoint, start: SearchPoint
    ) -> tuple[SearchPoint, float, Candidate]:
        """The best point from `first`, its loss, and the candidate there."""
        inducing: InducingPatches | None = None

        def loss(point: SearchPoint) -> float:
            nonlocal inducing, start
            scales = self.lengthscales(specs, point)
            if inducing is None:
                inducing = self.trial.inducing(specs, scales, self.rng)
            result = self.trial.score(specs, scales, inducing, start)
            start = result.next_start
            return result.loss

        def penalty(point: SearchPoint) -> float:
            return MIN_GAIN_PER_OCTAVE * sum(max(0.0, -exponent) for exponent in point)

        def penalized(point: SearchPoint) -> float:
            if max(map(abs, point)) > MAX_OCTAVES_FROM_MEDIAN:
                return float("inf")
            return loss(point) + penalty(point)

        if any(steps):
            best, value = pattern_search(penalized, first, [steps], diagonals=False)
            value -= penalty(best)
        else:
            best, value = first, loss(first) if self.position == "auto" else 0.0
        return best, value, Candidate(specs, self.lengthscales(specs, best), inducing, start)


def search_lengthscales(
    trial: Trial,
    specs: Sequence[TermSpec],
    lengthscale: float | str,
    position: bool | float | str,
    rng: np.random.Generator,
) -> Candidate:
    """The lengthscales with the lowest loss and, with position `"auto"`, whether position counts.

    `lengthscale` and `position` are the user's options: what is given as a number is not searched.
    """
    search = LengthscaleSearch(trial, lengthscale, position, rng)
    named = isinstance(specs[0].kernel, str)
    bins_step = LENGTHSCALE_STEP_OCTAVES if named and lengthscale == "auto" else 0.0
    position_step = POSITION_STEP_OCTAVES if named and isinstance(position, (bool, np.bool_, str)) else 0.0
    with_position = "position" in specs[0].columns
    if with_position and position != "auto":
        _, _, candidate = search.run(specs, (FIRST_OCTAVE, 0.0), (bins_step, position_step), DEFAULT_START)
        return candidate
    plain = [spec.without_position() for spec in specs]
    best, loss, candidate = search.run(plain, (FIRST_OCTAVE,), (bins_step,), DEFAULT_START)
    if with_position:
        first, steps = (best[0], 0.0), (bins_step, position_step)
        _, position_loss, positioned = search.run(specs, first, steps, candidate.start)
        if position_loss < loss - MIN_GAIN_OF_POSITION:
            return positioned
        # Likelihood and variance of similar models were searched since.
        return Candidate(candidate.specs, candidate.lengthscales, candidate.inducing, positioned.start)
    return candidate
