"""An order of signals by their content, so that random draws do not depend on how signals are numbered."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from gcgp._runtime.memory import runs
from gcgp._runtime.processes import ProcessGroup
from gcgp.domain import Signals

KEY_VERTICES_PER_RUN = 1 << 20
KEY_NEIGHBOR_ROUNDS = 3
KEY_DECIMALS = 9
"""Decimals to which keys are compared: the order of summation changes the last digits."""


def content_order(
    signals: Signals, targets: Float[np.ndarray, "N"], processes: ProcessGroup, seed: int
) -> Int[np.ndarray, "N"]:
    """Indices of all signals of all processes, sorted by a key of their content, then by target.

    The key is a sum over vertices of a random function of values, position and neighbors, so it does not
    depend on the numbering of vertices. Signals are those of this process, targets those of all.
    """
    keys = np.concatenate(processes.gather(_keys(signals, _channel_units(signals, processes), seed)))
    return np.lexsort((targets, np.round(keys, KEY_DECIMALS)))


def _channel_units(signals: Signals, processes: ProcessGroup) -> Float[np.ndarray, "channels"]:
    """The geometric mean of the magnitudes of the nonzero values of each channel."""
    logarithms, counts = np.zeros(signals.channels), np.zeros(signals.channels)
    for start in range(0, len(signals.values), KEY_VERTICES_PER_RUN):
        magnitudes = np.abs(signals.values[start : start + KEY_VERTICES_PER_RUN].astype(np.float64))
        nonzero = magnitudes > 0
        logarithms += np.log(magnitudes, where=nonzero, out=np.zeros_like(magnitudes)).sum(axis=0)
        counts += nonzero.sum(axis=0)
    sums = np.sum(processes.gather(np.stack([logarithms, counts])), axis=0)
    return np.exp(sums[0] / np.maximum(sums[1], 1))


def _keys(signals: Signals, units: Float[np.ndarray, "channels"], seed: int) -> Float[np.ndarray, "N"]:
    keys = [
        _keys_of_run(signals[run], units, np.random.default_rng(seed))
        for run in runs(signals.vertex_counts.astype(np.float64), KEY_VERTICES_PER_RUN)
    ]
    return np.concatenate(keys)


def _keys_of_run(
    signals: Signals, units: Float[np.ndarray, "channels"], rng: np.random.Generator
) -> Float[np.ndarray, "n"]:
    phases = signals.values.astype(np.float64) / units @ rng.normal(size=signals.channels) + 1.0
    rows, positions = signals.domain_rows, signals.domains.positions
    if positions is not None:
        phases += (positions @ rng.normal(size=positions.shape[1]))[rows]
    features = np.cos(phases)
    if len(signals.domains) == len(signals):
        for _ in range(KEY_NEIGHBOR_ROUNDS):
            on_domains = np.empty_like(features)
            on_domains[rows] = features
            sums = signals.domains.neighbor_sums(on_domains)
            if sums is None:
                break
            features = np.cos(phases + sums[rows])
    return np.add.reduceat(features, signals.offsets[:-1])
