"""An order of signals by what they are, so that random draws do not depend on how they were numbered."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.processes import ProcessGroup
from gcgp.domain import Signals
from gcgp.patches.convolution import chart_rows, runs

VERTICES_AT_ONCE = 1 << 20
NEIGHBOUR_ROUNDS = 3
DIGITS = 9
"""Decimals to which keys are compared: the order of summation changes the last digits."""


def content_order(
    signals: Signals, targets: Float[np.ndarray, "N"], processes: ProcessGroup, seed: int
) -> Int[np.ndarray, "N"]:
    """The numbers of all signals of all processes, sorted by a key of their content, then by target.

    The key is a sum over vertices of a random function of values, position and neighbors, so it does not
    depend on the numbering of vertices. Signals are those of this process, targets those of all.
    """
    keys = np.concatenate(processes.gather(_keys(signals, _channel_units(signals, processes), seed)))
    return np.lexsort((targets, np.round(keys, DIGITS)))


def _channel_units(signals: Signals, processes: ProcessGroup) -> Float[np.ndarray, "channels"]:
    """The geometric mean of the magnitudes of each channel's values that are not zero."""
    logarithms, counts = np.zeros(signals.channels), np.zeros(signals.channels)
    for start in range(0, len(signals.values), VERTICES_AT_ONCE):
        magnitudes = np.abs(signals.values[start : start + VERTICES_AT_ONCE].astype(np.float64))
        present = magnitudes > 0
        logarithms += np.log(magnitudes, where=present, out=np.zeros_like(magnitudes)).sum(axis=0)
        counts += present.sum(axis=0)
    sums = np.sum(processes.gather(np.stack([logarithms, counts])), axis=0)
    return np.exp(sums[0] / np.maximum(sums[1], 1))


def _keys(signals: Signals, units: Float[np.ndarray, "channels"], seed: int) -> Float[np.ndarray, "N"]:
    keys = [
        _keys_of_run(signals[run], units, np.random.default_rng(seed))
        for run in runs(signals.vertex_counts.astype(np.float64), VERTICES_AT_ONCE)
    ]
    return np.concatenate(keys)


def _keys_of_run(
    signals: Signals, units: Float[np.ndarray, "channels"], rng: np.random.Generator
) -> Float[np.ndarray, "n"]:
    phases = signals.values.astype(np.float64) / units @ rng.normal(size=signals.channels) + 1.0
    rows, positions = chart_rows(signals), signals.domains.positions
    if positions is not None:
        phases += (positions @ rng.normal(size=positions.shape[1]))[rows]
    features = np.cos(phases)
    neighbor_sums = getattr(signals.domains, "neighbor_sums", None)
    if neighbor_sums is not None and len(signals.domains) == len(signals):
        for _ in range(NEIGHBOUR_ROUNDS):
            on_domains = np.empty_like(features)
            on_domains[rows] = features
            features = np.cos(phases + neighbor_sums(on_domains)[rows])
    return np.add.reduceat(features, signals.offsets[:-1])
