"""Square image patches, with which the model is the convolutional GP of van der Wilk et al. (2017)."""

from __future__ import annotations

import math
from operator import index
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp._runtime.errors import check_integer
from gcgp.weighting.base import ArgumentTypes, Weighting


class Box(Weighting):
    """One bin per pixel of a square of `side` × `side` pixels, row by row; without parameters.

    With `inside`, only squares that lie entirely in the image are used; otherwise squares at the border are
    padded with zeros.

    >>> Box(side=5).bins
    25
    """

    coordinates = ("offset",)
    argument_types: ClassVar[ArgumentTypes] = {"side": int, "inside": bool}

    def __init__(self, side: int = 5, inside: bool = True) -> None:
        super().__init__(normalize=False)
        check_integer("Box: side", side)
        self.side = index(side)
        self.inside = self.complete = bool(inside)

    @property
    def bins(self) -> int:
        """Pixels of the square."""
        return self.side**2

    @property
    def reach(self) -> float:
        """Straight-line distance to the corners of the square."""
        return math.sqrt(2) * (self.side // 2) * (1 + 1e-9)

    def forward(self, offset: Float[Tensor, "pairs k"]) -> Float[Tensor, "pairs bins"]:  # type: ignore[override]
        """1 if the neighbor is the pixel of the bin, else 0; k must be 2 (x, y)."""
        if offset.shape[1] != 2:
            raise ValueError(
                f"Box: the coordinates have {offset.shape[1]} dimensions, but a square needs 2 (x, y)"
            )
        pixel = offset + (self.side - 1) // 2
        within = ((pixel >= 0) & (pixel < self.side) & (pixel == pixel.round())).all(dim=1)
        number = pixel[:, 1] * self.side + pixel[:, 0]
        hit = number[:, None] == torch.arange(self.bins, dtype=offset.dtype, device=offset.device)
        return (hit & within[:, None]).to(offset.dtype)
