"""One fit: what it is about, and what all its stages share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Signals
from gcgp.inference.checkpoint import Checkpoint
from gcgp.inference.climbing import History


@dataclass(frozen=True)
class Job:
    """The data of a fit, the memory it may take, its random numbers, and where it notes how far it is."""

    signals: Signals
    group: Int[Tensor, "N"]
    """Class of each signal, or 0 in regression."""
    targets: Float[Tensor, "N"]
    """In regression; 1 for classes."""
    groups: int
    memory: int
    rng: np.random.Generator
    history: History
    checkpoint: Checkpoint | None = None

    def part(self, rows: Int[np.ndarray, "n"]) -> Job:
        """The same job on some of the signals."""
        return replace(self, signals=self.signals[rows], group=self.group[rows], targets=self.targets[rows])
