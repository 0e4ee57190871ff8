"""Search for lengthscales, and for whether the position of a vertex counts, on trial signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gcgp.inference.search import DEFAULT_START, SearchPoint, pattern_search
from gcgp.selection.term_specs import Lengthscales, TermSpec
from gcgp.selection.trial import InducingPatches, Trial

FIRST_OCTAVES: SearchPoint = (-1.0, 0.0)
"""log2 of the lengthscales of bins and position relative to the median distances: the mode of a prior."""
PRIOR_STD_OCTAVES = 1.5
"""Standard deviation of the prior. Without signals that can be left out, it decides alone."""
LENGTHSCALE_STEPS_OCTAVES: SearchPoint = (0.5, 1.0)
MAX_OCTAVES_FROM_MEDIAN = 4.0
MIN_GAIN_PER_OCTAVE = 0.01
"""Below the median distance a lengthscale is halved only for this gain (nats per signal), not for noise."""
MIN_GAIN_OF_POSITION = 0.01
"""Position is kept if it lowers the loss by this much (nats per signal)."""

SEARCHED_ABOVE_BEST = 0.02
"""Variance and likelihood are searched again for lengthscales that are at most this much worse (nats)."""


@dataclass(frozen=True)
class Candidate:
    """Term specifications with lengthscales, and the inducing patches with which they were scored."""

    specs: Sequence[TermSpec]
    lengthscales: Sequence[Lengthscales]
    inducing: InducingPatches | None
    """None: the candidate has not been scored."""
    start: SearchPoint
    """Where the next search for likelihood and variance should start."""
    loss: float = 0.0
    """Nats per signal; 0 if nothing was compared."""
    at: SearchPoint = FIRST_OCTAVES
    """Octaves of its lengthscales."""


@dataclass(frozen=True)
class LengthscaleSearch:
    """Pattern search over powers of two of the median distances between patches."""

    trial: Trial
    lengthscale: float | str
    position: bool | float | str
    rng: np.random.Generator
    compared: bool
    """Whether the loss is needed even if there is nothing to search."""

    def lengthscales(self, specs: Sequence[TermSpec], point: SearchPoint) -> list[Lengthscales]:
        """The lengthscales at a point of the search; what the user has given replaces them."""
        all_scales = [spec.lengthscales(*(2**exponent for exponent in point)) for spec in specs]
        for spec, scales in zip(specs, all_scales, strict=True):
            if not isinstance(self.lengthscale, str):
                scales["bins"] = float(self.lengthscale) * spec.bin_units
            if "position" in scales and not isinstance(self.position, (bool, np.bool_, str)):
                scales["position"] = float(self.position)
        return all_scales

    def run(
        self, specs: Sequence[TermSpec], first: SearchPoint, steps: SearchPoint, start: SearchPoint
    ) -> Candidate:
        """The best candidate from the octaves `first`, by moves of `steps`."""
        inducing: InducingPatches | None = None
        lowest = math.inf

        def loss(point: SearchPoint) -> float:
            nonlocal inducing, start, lowest
            scales = self.lengthscales(specs, point)
            if inducing is None:
                inducing = self.trial.inducing(specs, scales, self.rng)
            result = self.trial.score(specs, scales, inducing, start, lowest + SEARCHED_ABOVE_BEST)
            if result.loss < lowest:
                start, lowest = result.next_start, result.loss
            return result.loss

        def penalty(point: SearchPoint) -> float:
            below = sum(max(0.0, -exponent) for exponent in point)
            squares = sum(
                (exponent - mode) ** 2 for exponent, mode in zip(point, FIRST_OCTAVES, strict=False)
            )
            # Signals that can be left out tell more: long lengthscales suit Matérn kernels, for example.
            prior = 0.0 if self.trial.left_out else 0.5 * squares / PRIOR_STD_OCTAVES**2
            return MIN_GAIN_PER_OCTAVE * below + prior

        def penalized(point: SearchPoint) -> float:
            if max(map(abs, point)) > MAX_OCTAVES_FROM_MEDIAN:
                return float("inf")
            return loss(point) + penalty(point)

        if any(steps):
            best, value = pattern_search(penalized, first, [steps], diagonals=False)
            value -= penalty(best)
        else:
            best, value = first, loss(first) if self.compared else 0.0
        at = (*best, *FIRST_OCTAVES[len(best) :])
        return Candidate(specs, self.lengthscales(specs, best), inducing, start, value, at)


def search_lengthscales(
    trial: Trial,
    specs: Sequence[TermSpec],
    lengthscale: float | str,
    position: bool | float | str,
    rng: np.random.Generator,
    *,
    first: SearchPoint = FIRST_OCTAVES,
    steps: SearchPoint = LENGTHSCALE_STEPS_OCTAVES,
    start: SearchPoint = DEFAULT_START,
    compared: bool = False,
) -> Candidate:
    """The lengthscales with the lowest loss and, with position `"auto"`, whether position counts.

    `lengthscale` and `position` are the user's options: what is given as a number is not searched. If
    candidates are to be compared, the loss is computed even if there is nothing to search.
    """
    search = LengthscaleSearch(trial, lengthscale, position, rng, compared or position == "auto")
    named = isinstance(specs[0].kernel, str)
    bins_step = steps[0] if named and lengthscale == "auto" else 0.0
    position_step = steps[1] if named and isinstance(position, (bool, np.bool_, str)) else 0.0
    with_position = "position" in specs[0].columns
    if with_position and position != "auto":
        return search.run(specs, first, (bins_step, position_step), start)
    plain = [spec.without_position() for spec in specs]
    candidate = search.run(plain, first[:1], (bins_step,), start)
    if with_position:
        moves = (bins_step, position_step)
        positioned = search.run(specs, (candidate.at[0], first[1]), moves, candidate.start)
        # Nothing to compare: positions count by default.
        if not trial.left_out or positioned.loss < candidate.loss - MIN_GAIN_OF_POSITION:
            return positioned
        # Likelihood and variance of similar models were searched since.
        return replace(candidate, start=positioned.start)
    return candidate
