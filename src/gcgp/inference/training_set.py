"""Training signals with their labels or targets, possibly distributed over several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.domain import Domains, Signals


@dataclass(frozen=True)
class TrainingSet:
    """Training signals and their observations.

    If several processes fit one model, the signals are those of this process. The signals of all processes,
    in the order of their ranks, have the indices 0 to `count` − 1.
    """

    signals: Signals
    group: Int[Tensor, "N"]
    """Class of each signal, or 0 in regression."""
    targets: Float[Tensor, "N"]
    """Regression targets; 1 in classification."""
    groups: int
    """Number of classes; 1 in regression."""
    processes: ProcessGroup
    first: int
    """Index of the first signal of this process."""
    count: int
    """Number of signals of all processes."""

    @property
    def observations(self) -> Num[Tensor, "N"]:
        """The target of each signal, or its class."""
        return self.targets if self.groups == 1 else self.group

    def local(self, indices: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
        """Rows of those of the signals with these indices that belong to this process."""
        return indices[(indices >= self.first) & (indices < self.first + len(self.signals))] - self.first

    def subset(self, indices: Int[np.ndarray, "n"]) -> TrainingSet:
        """The signals with these indices, distributed over the processes."""
        whole, local = self.gathered(indices), self.processes.share(len(indices))
        return replace(
            whole,
            signals=whole.signals[local],
            group=whole.group[local],
            targets=whole.targets[local],
            processes=self.processes,
            first=local.start,
        )

    def gathered(self, indices: Int[np.ndarray, "n"]) -> TrainingSet:
        """The signals with these indices, all of them in every process."""
        positions = np.flatnonzero((indices >= self.first) & (indices < self.first + len(self.signals)))
        rows = indices[positions] - self.first
        local = positions, self.signals[rows], self.group[rows], self.targets[rows]
        parts = [part for part in self.processes.gather(local) if len(part[0])]
        order = np.argsort(np.concatenate([part[0] for part in parts]))
        return replace(
            self,
            signals=_concatenate([part[1] for part in parts])[order],
            group=torch.cat([part[2] for part in parts])[order],
            targets=torch.cat([part[3] for part in parts])[order],
            processes=SINGLE_PROCESS,
            first=0,
            count=len(indices),
        )


def _concatenate(parts: Sequence[Signals]) -> Signals:
    """All signals; if all parts have the same single domain, so has the result."""
    if len(parts) == 1:
        return parts[0]
    whole = Signals.concatenate(parts)
    if all(len(part.domains) == 1 and _equal(part.domains, parts[0].domains) for part in parts):
        return replace(whole, domains=parts[0].domains, domain_of=np.zeros_like(whole.domain_of))
    return whole


def _equal(left: Domains, right: Domains) -> bool:
    pairs = zip(left.arrays(), right.arrays(), strict=True)
    return all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)
