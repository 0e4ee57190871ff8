"""Square image patches: with them the model is the convolutional GP of van der Wilk et al. (2017)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gcgp.weighting.base import Weighting


class Box(Weighting):
    """One bin for each pixel of a square of `side` × `side`, row by row. Nothing to learn.

    With `inside`, only squares that lie wholly in the image count; otherwise those at the border are
    filled up with zeros.

    >>> Box(side=5).bins
    25
    """

    coordinates = ("offset",)

    def __init__(self, side: int = 5, inside: bool = True) -> None:
        super().__init__(normalize=False)
        if side < 1:
            raise ValueError(f"Box: side={side!r} must be at least 1")
        self.side = side
        self.inside = inside
        self.complete = inside

    @property
    def bins(self) -> int:
        """Pixels of the square."""
        return self.side**2

    @property
    def reach(self) -> float:
        """To the corners of the square, by straight-line distance."""
        return math.sqrt(2) * (self.side // 2) * (1 + 1e-9)

    def forward(self, offset: Float[Tensor, "pairs k"]) -> Float[Tensor, "pairs bins"]:  # type: ignore[override]
        """1 where the neighbor is the bin's pixel, else 0; k must be 2 (x, y)."""
        if offset.shape[1] != 2:
            raise ValueError(
                f"Box: the coordinates have {offset.shape[1]} dimensions, but a square needs 2 (x, y)"
            )
        place = offset + (self.side - 1) // 2
        within = ((place >= 0) & (place < self.side) & (place == place.round())).all(dim=1)
        number = place[:, 1] * self.side + place[:, 0]
        hit = number[:, None] == torch.arange(self.bins, dtype=offset.dtype, device=offset.device)
        return (hit & within[:, None]).to(offset.dtype)
