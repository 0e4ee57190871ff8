"""One fit: what it is about, and what all its stages share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.processes import ALONE, Ranks
from gcgp.domain import Meshes, Signals
from gcgp.inference.features import CPU
from gcgp.selection.optimizer import History


@dataclass(frozen=True)
class Job:
    """The data of a fit, the memory it may take, its random numbers, and where it notes how far it is.

    Where several processes fit one model, signals are those of this process, and those of all processes, in
    the order of their ranks, have the numbers from 0 to `count`.
    """

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
    ranks: Ranks = ALONE
    first: int = 0
    """Number of the first signal of this process."""
    count: int = 0
    """Signals of all processes."""
    device: torch.device = CPU
    """Where kernels are summed."""
    dtype: torch.dtype = torch.float32
    """Of patches and kernel values."""
    constant: float = 0.0
    """Variance of the kernel's constant term; see `Features`."""

    def part(self, rows: Int[np.ndarray, "n"]) -> Job:
        """The same job on the signals of these numbers, each process with its share of them."""
        whole = self.everywhere(rows)
        own = self.ranks.share(len(rows))
        return replace(
            whole,
            signals=whole.signals[own],
            group=whole.group[own],
            targets=whole.targets[own],
            ranks=self.ranks,
            first=own.start,
        )

    def everywhere(self, rows: Int[np.ndarray, "n"]) -> Job:
        """The job of a process by itself on the signals of these numbers, the same in all processes."""
        places = np.flatnonzero((rows >= self.first) & (rows < self.first + len(self.signals)))
        mine = rows[places] - self.first
        held = places, self.signals[mine], self.group[mine], self.targets[mine]
        parts = [part for part in self.ranks.gathered(held) if len(part[0])]
        order = np.argsort(np.concatenate([part[0] for part in parts]))
        return replace(
            self,
            signals=_side_by_side([part[1] for part in parts])[order],
            group=torch.cat([part[2] for part in parts])[order],
            targets=torch.cat([part[3] for part in parts])[order],
            ranks=ALONE,
            first=0,
            count=len(rows),
        )


def _side_by_side(parts: Sequence[Signals]) -> Signals:
    """All signals; a domain that is the only one in each part stays the only one."""
    if len(parts) == 1:
        return parts[0]
    whole = Signals.concatenate(parts)
    if all(len(part.domains) == 1 and _same(part.domains, parts[0].domains) for part in parts):
        return replace(whole, domains=parts[0].domains, domain_of=np.zeros_like(whole.domain_of))
    return whole


def domain_arrays(domains: Any) -> list[Any]:
    """The arrays, or None, that domains are made of."""
    if isinstance(domains, Meshes):
        return [array for mesh in domains for array in (mesh.vertices, mesh.faces)]
    return [getattr(domains, field.name) for field in fields(domains)]


def _same(left: Any, right: Any) -> bool:
    pairs = zip(domain_arrays(left), domain_arrays(right), strict=True)
    return type(left) is type(right) and all(np.array_equal(a, b) for a, b in pairs)
