"""Metrics of predicted probabilities, and peak memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

PROCESS_STATUS = Path("/proc/self/status")
MIN_PROBABILITY = 1e-12
"""Smaller probabilities count as this one in log likelihoods, which stay finite."""


@dataclass(frozen=True)
class Scores:
    """Scores of class probabilities."""

    error: float
    """Share of signals whose most probable class is wrong."""
    nll: float
    """Mean negative log probability of the true class."""
    brier: float
    """Mean squared distance between the probabilities and the one-hot truth."""
    ece: float
    """Expected calibration error: mean gap between confidence and accuracy, in 15 equal bins."""

    @classmethod
    def of(
        cls, probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"], bins: int = 15
    ) -> Scores:
        """The scores of these probabilities; `truth` contains the column of each true class.

        >>> Scores.of(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])).error
        0.5
        """
        _, confidence, correct = calibration(probabilities, truth, bins)
        return cls(
            error=float(1 - correct.sum() / len(truth)),
            nll=negative_log_likelihood(probabilities, truth),
            brier=float(((probabilities - np.eye(probabilities.shape[1])[truth]) ** 2).sum(axis=1).mean()),
            ece=float(np.abs(confidence - correct).sum() / len(truth)),
        )


def negative_log_likelihood(probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"]) -> float:
    """Mean negative log probability of the true class."""
    true_class = probabilities[np.arange(len(truth)), truth]
    return float(-np.log(np.maximum(true_class, MIN_PROBABILITY)).mean())


def calibration(
    probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"], bins: int = 15
) -> tuple[Float[np.ndarray, "bins"], Float[np.ndarray, "bins"], Float[np.ndarray, "bins"]]:
    """For equal bins of confidence: number of signals, sum of confidences, number of correct predictions."""
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == truth
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    count, total, hits = (
        np.bincount(bin_of, weights, minlength=bins) for weights in (np.ones(len(truth)), confidence, correct)
    )
    return count, total, hits


def peak_memory() -> float:
    """Peak memory of this process in GB; NaN on Windows, where Python does not report it.

    On Linux from `/proc`: the value of `getrusage` starts with the memory of the parent process.
    """
    if PROCESS_STATUS.exists():
        lines = dict(line.split(":", 1) for line in PROCESS_STATUS.read_text().splitlines())
        if "VmHWM" in lines:
            return float(lines["VmHWM"].split()[0]) * 1024 / 1e9
    try:
        import resource
    except ImportError:
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
