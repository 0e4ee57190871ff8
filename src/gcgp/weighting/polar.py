"""Bins in polar coordinates (Walker & Glocker 2019, section 3.2), and their radial factor alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from operator import index
from typing import Any, ClassVar, SupportsIndex

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.weighting.base import Weighting

WIDTHS_IN_REACH = 3.0
"""A radial bin is cut off this many widths beyond its center, where its weight is e^-4.5."""


def cut_off(radii: Float[Tensor, "K"], width: Float[Tensor, ""]) -> float:
    """Where the outermost bin ends; a trifle more, lest rounding loses neighbors at exactly that ρ."""
    return (1 + 1e-9) * float((radii.abs().max() + WIDTHS_IN_REACH * width).detach())


def spread(angles: SupportsIndex | Sequence[float], family: str) -> Sequence[float]:
    """So many angles, equally spaced from 0; or the angles themselves."""
    if not isinstance(angles, SupportsIndex):
        return angles
    count = index(angles)
    if count < 1:
        raise ValueError(f"{family}: angles={count} must be at least 1")
    return [2 * math.pi * j / count for j in range(count)]


def radial_weights(
    rho: Float[Tensor, "pairs"], radii: Float[Tensor, "K"], width: Float[Tensor, ""]
) -> Float[Tensor, "pairs K"]:
    """exp(−(ρ − ρ_k)² / 2σ_ρ²)."""
    if _compiled(rho):
        return _GaussianBins.apply(rho, radii, width, 0.0)
    return torch.exp(-0.5 * ((rho[:, None] - radii) / width) ** 2)


def angular_weights(
    theta: Float[Tensor, "pairs"], angles: Float[Tensor, "J"], width: Float[Tensor, ""]
) -> Float[Tensor, "pairs J"]:
    """exp(−(θ − θ_j)² / 2σ_θ²) with angles that wrap; a neighbor without direction is in every bin."""
    if _compiled(theta):
        return _GaussianBins.apply(theta, angles, width, 2 * math.pi)
    nowhere = theta.isnan()[:, None]
    difference = theta.nan_to_num()[:, None] - angles
    wrapped = torch.remainder(difference + math.pi, 2 * math.pi) - math.pi
    return torch.where(nowhere, torch.ones_like(wrapped), torch.exp(-0.5 * (wrapped / width) ** 2))


def _compiled(coordinate: Tensor) -> bool:
    return coordinate.dtype == torch.float32 and coordinate.device.type == "cpu"


class _GaussianBins(torch.autograd.Function):
    """`compiled.gaussian_bins` with its gradient with respect to the centers and the width."""

    @staticmethod
    def forward(ctx: Any, coordinate: Tensor, centers: Tensor, width: Tensor, period: float) -> Tensor:
        from gcgp.weighting.loops import gaussian_bins

        arguments = (coordinate.numpy(), centers.detach().float().numpy(), float(width.detach()), period)
        weights = torch.from_numpy(gaussian_bins(*arguments))
        ctx.save_for_backward(weights)
        ctx.arguments = arguments
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor, None]:
        from gcgp.weighting.loops import gaussian_bins_pullback

        (weights,) = ctx.saved_tensors
        centers, width = gaussian_bins_pullback(
            gradient.contiguous().numpy(), weights.numpy(), *ctx.arguments
        )
        return None, torch.from_numpy(centers).float(), torch.tensor(width, dtype=torch.float32), None


def angular_rotations(radii: int, angles: int) -> Int[Tensor, "J KJ"]:
    """For each turn s, the bin k·J + (j + s) mod J in the place of bin k·J + j."""
    turns, j = torch.arange(angles)[:, None, None], torch.arange(angles)
    return (torch.arange(radii)[:, None] * angles + (j + turns) % angles).flatten(1)


class Radial(Weighting):
    """Rings: K radial bins at `radii` with a common `radial_width`. Needs no directions.

    >>> Radial(radii=[0, 1, 2], radial_width=0.5).bins
    3
    """

    coordinates: ClassVar[tuple[str, ...]] = ("rho",)

    def __init__(
        self,
        radii: Sequence[float] = (0.0, 1.0, 2.0),
        radial_width: float = 0.5,
        normalize: bool = True,
    ) -> None:
        super().__init__(normalize)
        self.learnable("radii", radii)
        self.learnable("radial_width", radial_width, positive=True)

    @property
    def bins(self) -> int:
        """One for each radius."""
        return len(self.radii)

    @property
    def reach(self) -> float:
        """Three widths beyond the outermost radius."""
        return cut_off(self.radii, self.radial_width)

    def with_radii(self, radii: Sequence[float], radial_width: float) -> Radial:
        """A copy with as many bins at other radii, of another width."""
        if len(radii) != len(self.radii):
            raise ValueError(f"radii: {len(radii)} of them for {len(self.radii)} rings")
        copied = copy.deepcopy(self)
        with torch.no_grad():
            copied.raw_radii.copy_(torch.tensor(radii))
            copied.raw_radial_width.fill_(math.log(radial_width))
        return copied

    def forward(self, rho: Float[Tensor, "pairs"]) -> Float[Tensor, "pairs K"]:  # type: ignore[override]
        """Weights in each ring."""
        return radial_weights(rho, self.radii, self.radial_width)


class Polar(Radial):
    """K radial × J angular bins: bin k·J + j lies around radius ρ_k and angle θ_j.

    `angles` is their number (equally spaced from 0) or a list of angles; `angular_width` is half
    their spacing unless given.

    >>> Polar(radii=[1, 3, 5], angles=8).bins
    24
    """

    coordinates = ("rho", "theta")

    def __init__(
        self,
        radii: Sequence[float] = (1.0, 3.0, 5.0),
        angles: SupportsIndex | Sequence[float] = 8,
        radial_width: float = 1.0,
        angular_width: float | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__(radii, radial_width, normalize)
        self.learnable("angles", spread(angles, "Polar"))
        width = math.pi / len(self.angles) if angular_width is None else angular_width
        self.learnable("angular_width", width, positive=True)

    @property
    def bins(self) -> int:
        """Radii times angles."""
        return len(self.radii) * len(self.angles)

    @property
    def rotations(self) -> Int[Tensor, "J KJ"] | None:
        """Those of the angles, if these are equally spaced."""
        gaps = torch.remainder(self.angles.detach().roll(-1) - self.angles.detach(), 2 * math.pi)
        if not torch.allclose(gaps, torch.full_like(gaps, 2 * math.pi / len(gaps)), atol=1e-5):
            return None
        return angular_rotations(len(self.radii), len(self.angles))

    def forward(  # type: ignore[override]
        self, rho: Float[Tensor, "pairs"], theta: Float[Tensor, "pairs"]
    ) -> Float[Tensor, "pairs KJ"]:
        """Radial times angular weight."""
        radial, angular = self.factors(rho, theta)
        return (radial[:, :, None] * angular[:, None, :]).flatten(1)

    def factors(  # type: ignore[override]
        self, rho: Float[Tensor, "pairs"], theta: Float[Tensor, "pairs"]
    ) -> tuple[Float[Tensor, "pairs K"], Float[Tensor, "pairs J"]]:
        """Radial weights and angular weights."""
        radial = radial_weights(rho, self.radii, self.radial_width)
        return radial, angular_weights(theta, self.angles, self.angular_width)


class GeodesicPolar(Radial):
    """K radial × J angular bins on meshes: bin k·J + j lies around radius ρ_k, near ray j.

    As in the paper, the angular weight is exp(−θ_j² / 2σ_θ²), where θ_j is the geodesic distance from ray j,
    one of J that leave the vertex at equal fractions of its total angle. `angular_width` is a length: half
    the distance of neighboring rays at the middle radius unless given. The first ray points along a
    principal direction of curvature (`frame="curvature"`) or the longest edge (`"edge"`).

    >>> GeodesicPolar(radii=[0.02, 0.04], rays=16, radial_width=0.01).bins
    32
    """

    def __init__(
        self,
        radii: Sequence[float],
        rays: int = 16,
        radial_width: float = 1.0,
        angular_width: float | None = None,
        frame: str = "curvature",
        normalize: bool = True,
    ) -> None:
        super().__init__(radii, radial_width, normalize)
        if isinstance(rays, bool) or not isinstance(rays, SupportsIndex) or index(rays) < 1:
            raise ValueError(f"GeodesicPolar: rays={rays!r} must be a whole number of at least 1")
        if frame not in ("curvature", "edge"):
            raise ValueError(f"GeodesicPolar: frame={frame!r} is not known; expected 'curvature' or 'edge'")
        self.rays = index(rays)
        self.frame = frame
        middle = float(self.radii.detach().abs().mean()) or float(self.radial_width.detach())
        width = math.pi * middle / self.rays if angular_width is None else angular_width
        self.learnable("angular_width", width, positive=True)

    def zoomed(self, factor: float) -> Weighting | None:
        """The same bins with all distances multiplied by `factor`, those from the rays too."""
        copied = super().zoomed(factor)
        if copied is not None:
            with torch.no_grad():
                copied.raw_angular_width += math.log(factor)
        return copied

    def with_radii(self, radii: Sequence[float], radial_width: float) -> Radial:
        """A copy with other radii; the width across rays, a length, grows along with their mean."""
        copied = super().with_radii(radii, radial_width)
        before, after = (float(each.radii.detach().abs().mean()) for each in (self, copied))
        if before > 0 and after > 0:
            with torch.no_grad():
                copied.raw_angular_width += math.log(after / before)
        return copied

    @property
    def coordinates(self) -> tuple[str, ...]:  # type: ignore[override]
        """ρ, and the distances from the rays."""
        return ("rho", f"rays:{self.rays}:{self.frame}")

    @property
    def bins(self) -> int:
        """Radii times rays."""
        return len(self.radii) * self.rays

    @property
    def rotations(self) -> Int[Tensor, "J KJ"]:
        """Those of the rays."""
        return angular_rotations(len(self.radii), self.rays)

    def forward(  # type: ignore[override]
        self, rho: Float[Tensor, "pairs"], rays: Float[Tensor, "pairs J"]
    ) -> Float[Tensor, "pairs KJ"]:
        """Radial weight times the weight of the distance from each ray."""
        radial, angular = self.factors(rho, rays)
        return (radial[:, :, None] * angular[:, None, :]).flatten(1)

    def factors(  # type: ignore[override]
        self, rho: Float[Tensor, "pairs"], rays: Float[Tensor, "pairs J"]
    ) -> tuple[Float[Tensor, "pairs K"], Float[Tensor, "pairs J"]]:
        """Radial weights and the weights of the distances from the rays."""
        radial = radial_weights(rho, self.radii, self.radial_width)
        on_ray = radial_weights(rays.flatten(), rays.new_zeros(1), self.angular_width)
        return radial, on_ray.view_as(rays)
