"""Bins around radii and directions (Walker & Glocker 2019, section 3.2), and around radii alone."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from operator import index
from typing import ClassVar, SupportsIndex, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import check_choice, check_integer
from gcgp.weighting.base import ArgumentTypes, BinWeights, Factors, Weighting
from gcgp.weighting.gaussian_bins import angular_weights, radial_weights

WIDTHS_IN_REACH = 3.0
"""A radial bin is cut off this many widths beyond its center, where its weight is e^-4.5."""

PairCoordinate: TypeAlias = Float[Tensor, "pairs"]
RayDistances: TypeAlias = Float[Tensor, "pairs J"]


class Radial(Weighting):
    """Rings: K radial bins at `radii` with a common `radial_width`. Needs no directions.

    >>> Radial(radii=[0, 1, 2], radial_width=0.5).bins
    3
    """

    coordinates: ClassVar[tuple[str, ...]] = ("rho",)
    argument_types: ClassVar[ArgumentTypes] = {"radii": 1, "radial_width": 0}

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
        """One per radius."""
        return len(self.radii)

    @property
    def reach(self) -> float:
        """Three widths beyond the outermost radius."""
        return cutoff(self.radii, self.radial_width)

    def with_radii(self, radii: Sequence[float], radial_width: float) -> Radial:
        """A copy with the same number of bins at other radii, of another width."""
        if len(radii) != len(self.radii):
            raise ValueError(f"radii: expected {len(self.radii)} numbers, got {len(radii)}")
        changed = copy.deepcopy(self)
        with torch.no_grad():
            changed.raw_radii.copy_(torch.tensor(radii))
            changed.raw_radial_width.fill_(math.log(radial_width))
        return changed

    def forward(self, rho: PairCoordinate) -> BinWeights:  # type: ignore[override]
        """Weights in each ring."""
        return radial_weights(rho, self.radii, self.radial_width)


class Polar(Radial):
    """K radial × J angular bins: bin k·J + j lies around radius ρ_k and angle θ_j.

    `angles` is their number (equally spaced from 0) or a list of angles; `angular_width` is by default half
    their spacing.

    >>> Polar(radii=[1, 3, 5], angles=8).bins
    24
    """

    coordinates = ("rho", "theta")
    argument_types: ClassVar[ArgumentTypes] = {"angles": 1, "angular_width": 0}

    def __init__(
        self,
        radii: Sequence[float] = (1.0, 3.0, 5.0),
        angles: SupportsIndex | Sequence[float] = 8,
        radial_width: float = 1.0,
        angular_width: float | None = None,
        normalize: bool = True,
    ) -> None:
        super().__init__(radii, radial_width, normalize)
        self.learnable("angles", equal_angles(angles, "Polar"), given=angles)
        width = math.pi / len(self.angles) if angular_width is None else angular_width
        self.learnable("angular_width", width, positive=True, given=angular_width)

    @property
    def bins(self) -> int:
        """Radii times angles."""
        return len(self.radii) * len(self.angles)

    @property
    def rotations(self) -> Int[Tensor, "J KJ"] | None:
        """Rotations of the angles, if they are equally spaced."""
        gaps = torch.remainder(self.angles.detach().roll(-1) - self.angles.detach(), 2 * math.pi)
        if not torch.allclose(gaps, torch.full_like(gaps, 2 * math.pi / len(gaps)), atol=1e-5):
            return None
        return angular_rotations(len(self.radii), len(self.angles))

    def forward(self, rho: PairCoordinate, theta: PairCoordinate) -> BinWeights:  # type: ignore[override]
        """Radial times angular weight."""
        return _products(*self.factors(rho, theta))

    def factors(self, rho: PairCoordinate, theta: PairCoordinate) -> Factors:  # type: ignore[override]
        """Radial weights and angular weights."""
        return super().forward(rho), angular_weights(theta, self.angles, self.angular_width)


class GeodesicPolar(Radial):
    """K radial × J angular bins on meshes: bin k·J + j lies around radius ρ_k, near ray j.

    As in the paper, the angular weight is exp(−θ_j² / 2σ_θ²), where θ_j is the geodesic distance from ray j,
    one of J that leave the vertex at equal fractions of its total angle. `angular_width` is a length, by
    default half the distance of neighboring rays at the mean radius. The first ray follows a principal
    direction of curvature (`frame="curvature"`) or the longest edge (`"edge"`).

    >>> GeodesicPolar(radii=[0.02, 0.04], rays=16, radial_width=0.01).bins
    32
    """

    argument_types: ClassVar[ArgumentTypes] = {"rays": int, "angular_width": 0, "frame": str}
    length_parameters = (*Radial.length_parameters, "angular_width")

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
        check_integer("GeodesicPolar: rays", rays)
        check_choice("GeodesicPolar: frame", frame, ("curvature", "edge"))
        self.rays = index(rays)
        self.frame = frame
        mean = _mean_radius(self) or float(self.radial_width.detach())
        width = math.pi * mean / self.rays if angular_width is None else angular_width
        self.learnable("angular_width", width, positive=True, given=angular_width)

    def with_radii(self, radii: Sequence[float], radial_width: float) -> Radial:
        """A copy with other radii, whose angular width is scaled like the mean radius."""
        changed = super().with_radii(radii, radial_width)
        before, after = _mean_radius(self), _mean_radius(changed)
        if before > 0 and after > 0:
            with torch.no_grad():
                changed.raw_angular_width += math.log(after / before)
        return changed

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
        """Rotations of the rays."""
        return angular_rotations(len(self.radii), self.rays)

    def forward(self, rho: PairCoordinate, rays: RayDistances) -> BinWeights:  # type: ignore[override]
        """Radial weight times the weight of the distance from each ray."""
        return _products(*self.factors(rho, rays))

    def factors(self, rho: PairCoordinate, rays: RayDistances) -> Factors:  # type: ignore[override]
        """Radial weights and the weights of the distances from the rays."""
        on_ray = radial_weights(rays.flatten(), rays.new_zeros(1), self.angular_width)
        return super().forward(rho), on_ray.view_as(rays)


class Anisotropic(Weighting):
    """Gaussians at distance r along each of J directions, with different widths along and across it.

    In the frame of direction θ_j a neighbor lies at (ρ cos(θ−θ_j), ρ sin(θ−θ_j)); bin k·J + j is a Gaussian
    around (r_k, 0) with widths `along` and `across`. With radius 0 these are the oriented kernels of
    anisotropic diffusion (Boscaini et al. 2016).

    >>> Anisotropic(radii=[0, 3], angles=4).bins
    8
    """

    coordinates = ("rho", "theta")
    argument_types: ClassVar[ArgumentTypes] = {"radii": 1, "angles": 1, "along": 0, "across": 0}

    def __init__(
        self,
        radii: Sequence[float] = (0.0, 3.0),
        angles: SupportsIndex | Sequence[float] = 8,
        along: float = 2.0,
        across: float = 0.8,
        normalize: bool = True,
    ) -> None:
        super().__init__(normalize)
        self.learnable("radii", radii)
        self.learnable("angles", equal_angles(angles, "Anisotropic"), given=angles)
        self.learnable("along", along, positive=True)
        self.learnable("across", across, positive=True)

    @property
    def bins(self) -> int:
        """Radii times angles."""
        return len(self.radii) * len(self.angles)

    @property
    def reach(self) -> float:
        """Three times the larger width beyond the outermost radius."""
        return cutoff(self.radii, torch.maximum(self.along, self.across))

    def forward(self, rho: PairCoordinate, theta: PairCoordinate) -> BinWeights:  # type: ignore[override]
        """Weights under each oriented Gaussian; the center, at ρ = 0, needs no direction."""
        angle = theta.nan_to_num()[:, None] - self.angles
        ahead = (rho[:, None] * angle.cos())[:, None, :] - self.radii[:, None]
        aside = (rho[:, None] * angle.sin())[:, None, :]
        return torch.exp(-0.5 * ((ahead / self.along) ** 2 + (aside / self.across) ** 2)).flatten(1)


def _mean_radius(weighting: Radial) -> float:
    return float(weighting.radii.detach().abs().mean())


def cutoff(radii: Float[Tensor, "K"], width: Float[Tensor, ""]) -> float:
    """The end of the outermost bin, with a margin for neighbors at exactly that distance."""
    return (1 + 1e-9) * float((radii.abs().max() + WIDTHS_IN_REACH * width).detach())


def equal_angles(angles: SupportsIndex | Sequence[float], family: str) -> Sequence[float]:
    """This number of angles, equally spaced from 0; or the angles themselves."""
    if not isinstance(angles, SupportsIndex):
        return angles
    check_integer(f"{family}: angles", angles)
    return [2 * math.pi * j / index(angles) for j in range(index(angles))]


def angular_rotations(radii: int, angles: int) -> Int[Tensor, "J KJ"]:
    """For each rotation by s directions, the bin k·J + (j + s) mod J in the place of bin k·J + j."""
    shifts, j = torch.arange(angles)[:, None, None], torch.arange(angles)
    return (torch.arange(radii)[:, None] * angles + (j + shifts) % angles).flatten(1)


def _products(radial: Float[Tensor, "pairs K"], angular: Float[Tensor, "pairs J"]) -> BinWeights:
    return (radial[:, :, None] * angular[:, None, :]).flatten(1)
