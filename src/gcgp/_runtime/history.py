"""The history of a fit: one step per iteration of an optimizer, also sent to the logger `gcgp`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

logger = logging.getLogger("gcgp")


@dataclass(frozen=True)
class Step:
    """One iteration: its number, stage, objective (nats per signal), and seconds since the start."""

    iteration: int
    stage: str
    value: float
    seconds: float


@dataclass
class History:
    """The steps of a fit. Within a stage the values never decrease."""

    stage: str = ""
    log: bool = True
    """Whether steps are logged; of several processes only the first logs."""
    steps: list[Step] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, value: float) -> None:
        """Record one more iteration and log it at level INFO."""
        step = Step(len(self.steps), self.stage, value, time.perf_counter() - self.started)
        self.steps.append(step)
        if self.log:
            logger.info(
                "%4d  %-8s  %10.4f nats per signal  %7.1f s", step.iteration, step.stage, value, step.seconds
            )

    def note(self, message: str) -> None:
        """Log a message at level INFO."""
        if self.log:
            logger.info("%s: %s", self.stage, message)
