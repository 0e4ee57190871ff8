"""Distances between a patch and all rotations of another, by Fourier transforms over directions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.kernel.base import limited


@dataclass(frozen=True)
class CircularCorrelation:
    """−½|x − y_s|² for the J rotations y_s of y, for patches divided by lengthscales.

    As a function of s, x·y_s is a sum of circular correlations, one per ring of bins, which are products of
    Fourier transforms. Its J real Fourier components are products of `left` and `right`; `inverse` transforms
    them to values. This is much cheaper than J products of patches.
    """

    left: Float[Tensor, "J P width"]
    right: Float[Tensor, "J width Q"]
    inverse: Float[Tensor, "J J"]

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "P dim"],
        y: Float[Tensor, "Q dim"],
        center: Float[Tensor, "*rows dim"],
        lengthscale: Float[Tensor, "..."],
        rotations: Int[Tensor, "J dim"],
    ) -> CircularCorrelation | None:
        """For rows of x and y; None unless rotations are cyclic shifts of rings with equal lengthscales."""
        count, dim = rotations.shape
        if count == 1:
            return None
        scale = lengthscale.expand(dim)
        fixed = (rotations == torch.arange(dim)).all(dim=0)
        first = torch.nonzero((rotations.min(dim=0).values == torch.arange(dim)) & ~fixed)[:, 0]
        rings = rotations[:, first].T
        in_rings = all(torch.equal(rotations[s][rings], rings.roll(-s, dims=1)) for s in range(count))
        even = torch.allclose(scale[rings], scale[first][:, None])
        if not in_rings or not even or len(first) * count + int(fixed.sum()) != dim:
            return None
        invariant_center = center.clone()
        invariant_center[..., rings] = center[..., rings].mean(dim=-1, keepdim=True)
        x, y = limited((x - invariant_center) / scale), limited((y - invariant_center) / scale)
        left = _components(x[:, rings], conjugate=True)
        right = _components(y[:, rings], conjugate=False)
        # Terms that do not depend on the rotation are added to the component of frequency 0.
        counts = torch.full((len(x), 1), float(count), dtype=x.dtype)
        left[0] = torch.cat([left[0], count * x[:, fixed], -0.5 * count * _squares(x), counts], dim=1)
        right[0] = torch.cat([right[0], y[:, fixed], torch.ones(len(y), 1).to(y), -0.5 * _squares(y)], dim=1)
        width = left[0].shape[1]
        padded = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in (*left, *right)]
        return cls(
            torch.stack(padded[:count]),
            torch.stack(padded[count:]).transpose(1, 2).contiguous(),
            _inverse_transform(count).to(x.dtype),
        )

    def exponents(self, rows: slice, columns: slice) -> Float[Tensor, "J p q"]:
        """−½|x − y_s|² of some rows of x and y, for all rotations."""
        components = torch.bmm(self.left[:, rows], self.right[:, :, columns])
        return (self.inverse @ components.flatten(1)).unflatten(1, components.shape[1:])


def _squares(x: Float[Tensor, "P dim"]) -> Float[Tensor, "P 1"]:
    return x.square().sum(dim=1, keepdim=True)


def _components(rings: Float[Tensor, "P rings J"], conjugate: bool) -> list[Float[Tensor, "P two_rings"]]:
    """The factors of the real and imaginary parts of conj(x̂)·ŷ: of x if `conjugate`, else of y."""
    transform = torch.fft.rfft(rings, dim=-1)
    parts = []
    for frequency in range(transform.shape[-1]):
        real, imaginary = transform[..., frequency].real, transform[..., frequency].imag
        parts.append(torch.cat([real, imaginary], dim=1))
        if 0 < 2 * frequency < rings.shape[-1]:
            parts.append(torch.cat([real, -imaginary] if conjugate else [imaginary, real], dim=1))
    return parts


def _inverse_transform(count: int) -> Float[Tensor, "J J"]:
    """The inverse Fourier transform: the weight of each real component for each rotation."""
    s = torch.arange(count, dtype=torch.float64)
    columns = []
    for frequency in range(count // 2 + 1):
        angle = 2 * math.pi * frequency * s / count
        if 0 < 2 * frequency < count:
            columns += [2 * angle.cos(), -2 * angle.sin()]
        else:
            columns.append(angle.cos())
    return torch.stack(columns, dim=1) / count
