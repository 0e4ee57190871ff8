"""Evidence of vertices: how much each vertex contributes to each latent function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class VertexEvidence:
    """The contribution of each vertex to each class (or to the regression function).

    Rows are the vertices of all signals, one signal after the other. `mean` and `std` describe the vertex's
    share of the latent function: g at its patch for `aggregate="sum"`, g divided by the number of patches for
    `"mean"`, and an equal share of the constant term if the kernel has one. The means of the vertices of a
    signal sum to its latent mean.
    """

    mean: Float[np.ndarray, "total_vertices C"]
    std: Float[np.ndarray, "total_vertices C"]
    offsets: Int[np.ndarray, "signals_plus_1"]
    shapes: Sequence[tuple[int, ...]]
    """Of an array with one entry per vertex of each signal: `(H, W)` for images, `(V,)` otherwise."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, signal: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of one signal: `[H, W, C]` for an image, `[V, C]` otherwise."""
        index = range(len(self))[signal]
        rows = slice(self.offsets[index], self.offsets[index + 1])
        shape = (*self.shapes[index], self.mean.shape[1])
        return self.mean[rows].reshape(shape), self.std[rows].reshape(shape)
