"""Training signals by their features, for methods that need each signal and not only sums."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.features import Chunk
from gcgp.inference.shapes import PerSignal, Rows
from gcgp.inference.training_set import TrainingSet

DATASET_ROWS = 4096
"""Signals per run."""


Indices = TypeVar("Indices", Tensor, np.ndarray)


@dataclass(frozen=True)
class FeatureDataset:
    """Features and observations of the signals of this process."""

    features: Float[Tensor, "N M"]
    residual: Float[Tensor, "N"]
    observations: Num[Tensor, "N"]
    """Labels or regression targets."""
    processes: ProcessGroup = SINGLE_PROCESS
    first: int = 0
    """Index of the first signal of this process among those of all processes."""
    total: int | None = None
    """Number of signals of all processes; None: as many as there are here."""

    @classmethod
    def allocate(cls, size: int, data: TrainingSet, dtype: torch.dtype, memory: int) -> FeatureDataset:
        """Room for `size` features per signal, to be filled; beyond `memory` bytes in an unnamed file."""
        shape = (len(data.signals), size)
        if shape[0] * size * dtype.itemsize > memory:
            with tempfile.TemporaryFile() as file:
                kind = str(dtype).removeprefix("torch.")
                features = torch.from_numpy(np.memmap(file, dtype=kind, mode="w+", shape=shape))
        else:
            features = torch.zeros(shape, dtype=dtype)
        residual = torch.zeros(shape[0], dtype=torch.float64)
        return cls(features, residual, data.observations, data.processes, data.first, data.count)

    def fill(self, chunk: Chunk) -> None:
        """Store the features of a run of signals."""
        self.features[chunk.run], self.residual[chunk.run] = chunk.features, chunk.unexplained

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def count(self) -> int:
        """Number of signals of all processes."""
        return len(self) if self.total is None else self.total

    def reduce(self, tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The sum over all processes, in place."""
        self.processes.sum(tensor)
        return tensor

    def local(self, indices: Indices) -> Indices:
        """Rows of those of the signals with these indices that belong to this process."""
        return indices[(indices >= self.first) & (indices < self.first + len(self))] - self.first

    def rows(self, rows: slice | Int[Tensor, "n"] | Int[np.ndarray, "n"]) -> tuple[Rows, PerSignal]:
        """Features and residuals of some signals of this process, in float64."""
        return self.features[rows].double(), self.residual[rows].double()

    def runs(self) -> Iterator[slice]:
        """Consecutive slices of signals."""
        for start in range(0, len(self), DATASET_ROWS):
            yield slice(start, min(len(self), start + DATASET_ROWS))
