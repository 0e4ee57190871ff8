"""How good probabilities are, and what it took to get them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class Scores:
    """Of class probabilities against the true classes."""

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
        """The scores of these probabilities; `truth` holds the columns of the true classes.

        >>> Scores.of(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])).error
        0.5
        """
        rows = np.arange(len(truth))
        _, confidence, right = calibration(probabilities, truth, bins)
        return cls(
            error=float(1 - right.sum() / len(truth)),
            nll=float(-np.log(np.maximum(probabilities[rows, truth], 1e-12)).mean()),
            brier=float(((probabilities - np.eye(probabilities.shape[1])[truth]) ** 2).sum(axis=1).mean()),
            ece=float(np.abs(confidence - right).sum() / len(truth)),
        )


def calibration(
    probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"], bins: int = 15
) -> tuple[Float[np.ndarray, "bins"], Float[np.ndarray, "bins"], Float[np.ndarray, "bins"]]:
    """In equal bins of confidence: how many signals, the sum of their confidences, and how many are right."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == truth
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    count, sure, good = (
        np.bincount(which, weights, minlength=bins) for weights in (np.ones(len(truth)), confidence, right)
    )
    return count, sure, good


def peak_memory() -> float:
    """The most memory this process has held, in GB; NaN on Windows, where Python does not tell."""
    try:
        import resource
    except ImportError:
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
