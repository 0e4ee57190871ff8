"""What all stages of a fit share: memory, random numbers, device, history, checkpoint and progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.history import History
from gcgp.inference.features import CPU


class Progress:
    """A progress bar with named stages; `bar` is a `tqdm` bar, or None for none."""

    def __init__(self, bar: Any = None) -> None:
        self.bar = bar

    def stage(self, name: str, total: int | None = None, unit: str = "signals") -> None:
        """Begin a stage; with a total, the bar shows the rate and the remaining time."""
        if self.bar is not None:
            self.bar.set_description(name, refresh=False)
            self.bar.total, self.bar.unit = total, f" {unit}"
            self.bar.reset(total)

    def update(self, count: int = 1) -> None:
        """Advance the present stage."""
        if self.bar is not None:
            self.bar.update(count)


@dataclass(frozen=True)
class FitContext:
    """Resources of one fit."""

    rng: np.random.Generator
    memory: int
    """Bytes that the patches of a run of signals may take; learning keeps as much between epochs."""
    dtype: torch.dtype = torch.float32
    """Of patches and kernel values."""
    device: torch.device = CPU
    """Where kernels are summed over patches."""
    history: History = field(default_factory=History)
    checkpoint: Checkpoint | None = None
    progress: Progress = field(default_factory=Progress)
