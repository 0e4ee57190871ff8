"""Distances between one patch and all rotations of another, by their Fourier transforms over directions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.kernel.base import limited


@dataclass(frozen=True)
class CircularCorrelation:
    """−½|x − y_s|² for all J rotations y_s of y, of patches divided by lengthscales.

    x·y_s, as a function of s, is a sum of correlations over directions, one for each ring of bins, and a
    product of Fourier transforms costs far less than J products of patches. The J real components of the
    transform of x·y_s are products of `left` and `right`, and `waves` makes the values of them.
    """

    left: Float[Tensor, "J P width"]
    right: Float[Tensor, "J width Q"]
    waves: Float[Tensor, "J J"]

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "P dim"],
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
        lengthscale: Float[Tensor, "..."],
        rotations: Int[Tensor, "J dim"],
    ) -> CircularCorrelation | None:
        """Of the rows of x and y; None if the rotations or the lengthscales do not go round in rings."""
        turns, dim = rotations.shape
        if turns == 1:
            return None
        scale = lengthscale.expand(dim)
        fixed = (rotations == torch.arange(dim)).all(dim=0)
        first = torch.nonzero((rotations.min(dim=0).values == torch.arange(dim)) & ~fixed)[:, 0]
        rings = rotations[:, first].T
        in_rings = all(torch.equal(rotations[s][rings], rings.roll(-s, dims=1)) for s in range(turns))
        even = torch.allclose(scale[rings], scale[first][:, None])
        if not in_rings or not even or len(first) * turns + int(fixed.sum()) != dim:
            return None
        # A center that is the same for all turns.
        even_center = center.clone()
        even_center[..., rings] = center[..., rings].mean(dim=-1, keepdim=True)
        x, y = limited((x - even_center) / scale), limited((y - even_center) / scale)
        plain = torch.full((len(x), 1), float(turns), dtype=x.dtype)
        left = [*_components(x[:, rings], mirrored=True)]
        right = [*_components(y[:, rings], mirrored=False)]
        # What does not depend on the turn joins the component that is the same for all of them.
        left[0] = torch.cat([left[0], turns * x[:, fixed], -0.5 * turns * _squares(x), plain], dim=1)
        right[0] = torch.cat([right[0], y[:, fixed], torch.ones(len(y), 1).to(y), -0.5 * _squares(y)], dim=1)
        width = left[0].shape[1]
        pad = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in (*left, *right)]
        return cls(
            torch.stack(pad[:turns]),
            torch.stack(pad[turns:]).transpose(1, 2).contiguous(),
            _waves(turns).to(x.dtype),
        )

    def exponents(self, rows: slice, columns: slice) -> Float[Tensor, "J p q"]:
        """Of some rows of x and y, for all turns."""
        components = torch.bmm(self.left[:, rows], self.right[:, :, columns])
        return (self.waves @ components.flatten(1)).unflatten(1, components.shape[1:])


def _squares(x: Float[Tensor, "P dim"]) -> Float[Tensor, "P 1"]:
    return x.square().sum(dim=1, keepdim=True)


def _components(rings: Float[Tensor, "P rings J"], mirrored: bool) -> list[Float[Tensor, "P two_rings"]]:
    """The factors of the real components of conj(x̂)·ŷ: those of x if mirrored, else those of y."""
    wave = torch.fft.rfft(rings, dim=-1)
    parts = []
    for omega in range(wave.shape[-1]):
        real, imaginary = wave[..., omega].real, wave[..., omega].imag
        parts.append(torch.cat([real, imaginary], dim=1))
        if 0 < 2 * omega < rings.shape[-1]:
            parts.append(
                torch.cat([real, -imaginary], dim=1) if mirrored else torch.cat([imaginary, real], dim=1)
            )
    return parts


def _waves(turns: int) -> Float[Tensor, "J J"]:
    """For each turn, the weight of each real component: the inverse transform."""
    s = torch.arange(turns, dtype=torch.float64)
    columns = []
    for omega in range(turns // 2 + 1):
        angle = 2 * math.pi * omega * s / turns
        if 0 < 2 * omega < turns:
            columns += [2 * angle.cos(), -2 * angle.sin()]
        else:
            columns.append(angle.cos())
    return torch.stack(columns, dim=1) / turns
