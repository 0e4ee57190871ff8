"""Descriptors Σ_k w(λ_k) φ_k(v)²: geometry vectors, and heat and wave kernel signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.interpolate import BSpline

from gcgp._runtime.errors import check_integer
from gcgp.descriptors.base import FittedValue, SpectralDescriptor
from gcgp.mesh.spectrum import Spectrum

SPLINE_DEGREE = 3
MIN_EIGENVALUE = 1e-6
"""Smaller eigenvalues, at unit area, belong to functions that are constant on each component."""


@dataclass(eq=False, repr=False)
class GeometryVectors(SpectralDescriptor):
    """Geometry vectors g_q(v) = Σ_k β_q(λ_k) φ_k(v)², with cubic B-splines β_q on the band [0, λ_max].

    Litman & Bronstein 2014, "Learning spectral descriptors for deformable shape correspondence". Knots are
    uniform, λ_max / n_splines apart. The first splines extend below 0, so low frequencies have full weight;
    the last one falls to 0 at λ_max, so nothing jumps where the spectrum is cut off. λ_max is a high
    percentile of all training eigenvalues: at 100, few meshes would fill the band.

    Args:
        n_vectors: Number of channels, from the lowest frequencies; four in Walker & Glocker 2019.
        n_splines: Number of splines on the band; `None`: twice `n_vectors`, so that its lower half is used.
        percentile: Percentile of the training eigenvalues, all meshes together, where the band ends.
        eigenpairs, scale, standardize: See `SpectralDescriptor`.

    Attributes:
        band_: λ_max.

    >>> from gcgp import Mesh
    >>> tetrahedron = Mesh(np.eye(4)[:, :3], [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])
    >>> GeometryVectors().fit_transform([tetrahedron, tetrahedron.scaled(2)]).channels
    4
    """

    n_vectors: int = 4
    n_splines: int | None = field(default=None, kw_only=True)
    percentile: float = field(default=95.0, kw_only=True)

    fitted: ClassVar = {"band_": FittedValue(per_channel=False, positive=True)}

    def validate(self) -> None:
        """See `SpectralDescriptor`."""
        super().validate()
        if self.n_splines is not None:
            check_integer("n_splines", self.n_splines, self.n_vectors)
        if not isinstance(self.percentile, (int, float, np.number)) or not 0 < self.percentile <= 100:
            raise ValueError(f"percentile={self.percentile!r} must be above 0 and at most 100")

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        eigenvalues = np.concatenate([spectrum.eigenvalues for spectrum in spectra])
        self.band_ = float(np.percentile(eigenvalues, self.percentile))
        if self.band_ * np.median([spectrum.mass.sum() for spectrum in spectra]) <= MIN_EIGENVALUE:
            raise ValueError(f"eigenpairs={self.eigenpairs}: most training eigenvalues are 0; use more")

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V channels"]:
        splines = self.n_splines or 2 * self.n_vectors
        # The splines that extend beyond the band make the basis complete on it; they are not used.
        knots = np.arange(-SPLINE_DEGREE, splines + SPLINE_DEGREE + 1) * (self.band_ / splines)
        coefficients = np.eye(splines + SPLINE_DEGREE)[:, : self.n_vectors]
        basis = BSpline(knots, coefficients, SPLINE_DEGREE, extrapolate=False)
        return spectrum.eigenfunctions**2 @ np.nan_to_num(basis(spectrum.eigenvalues))


@dataclass(eq=False, repr=False)
class HeatKernelSignature(SpectralDescriptor):
    """Heat that is left at v after time t: h_t(v) = Σ_k exp(−λ_k t) φ_k(v)².

    Sun, Ovsjanikov & Guibas 2009, "A concise and provably informative multi-scale signature based on heat
    diffusion". Times are logarithmically spaced from 4 ln 10 / λ_last to 4 ln 10 / λ_first, as in the paper,
    but with the medians over training meshes of the last and first positive eigenvalue.

    Args:
        n_times: Number of times and of channels.
        eigenpairs, scale, standardize: See `SpectralDescriptor`.

    Attributes:
        times_: `[n_times]`, ascending.
    """

    n_times: int = 8

    fitted: ClassVar = {"times_": FittedValue(positive=True)}

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        first, last = _median_ends(spectra)
        self.times_ = np.geomspace(4 * np.log(10) / last, 4 * np.log(10) / first, self.n_times)

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V channels"]:
        return spectrum.eigenfunctions**2 @ np.exp(-np.outer(spectrum.eigenvalues, self.times_))


@dataclass(eq=False, repr=False)
class WaveKernelSignature(SpectralDescriptor):
    """Probability of a quantum particle of energy near e to be at v: Σ_k w_k φ_k(v)² / Σ_k w_k over λ_k > 0.

    The weights are w_k = exp(−(e − ln λ_k)² / 2σ²) (Aubry, Schlickewei & Cremers 2011, "The wave kernel
    signature: a quantum mechanical approach to shape analysis"). Energies are equally spaced from
    ln λ_first + 2σ to ln λ_last − 2σ, with medians over training meshes. σ is 7/127 of the range of ln λ,
    which for 100 energies are the 7 steps of the paper.

    Args:
        n_energies: Number of energies and of channels.
        eigenpairs, scale, standardize: See `SpectralDescriptor`.

    Attributes:
        energies_: `[n_energies]`, ascending.
        width_: σ.
    """

    n_energies: int = 16

    fitted: ClassVar = {"energies_": FittedValue(), "width_": FittedValue(per_channel=False, positive=True)}

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        low, high = np.log(_median_ends(spectra))
        self.width_ = float(max(7 / 127 * (high - low), 1e-9))
        self.energies_ = np.linspace(low + 2 * self.width_, high - 2 * self.width_, self.n_energies)

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V channels"]:
        positive = _is_positive(spectrum)
        squares = (np.log(spectrum.eigenvalues[positive, None]) - self.energies_) ** 2
        # Relative to the nearest eigenvalue; otherwise all weights could be 0 on a mesh of another size.
        weights = np.exp((squares.min(axis=0, initial=np.inf) - squares) / (2 * self.width_**2))
        return spectrum.eigenfunctions[:, positive] ** 2 @ (weights / weights.sum(axis=0))


def _is_positive(spectrum: Spectrum) -> Bool[np.ndarray, "K"]:
    return spectrum.eigenvalues * spectrum.mass.sum() > MIN_EIGENVALUE


def _median_ends(spectra: Sequence[Spectrum]) -> Float[np.ndarray, "2"]:
    """Medians of the first and of the last positive eigenvalue over the meshes that have any."""
    positive = [spectrum.eigenvalues[_is_positive(spectrum)] for spectrum in spectra]
    ends = [eigenvalues[[0, -1]] for eigenvalues in positive if len(eigenvalues)]
    if not ends:
        raise ValueError("X: no mesh has a positive eigenvalue among its eigenpairs; use more eigenpairs")
    return np.median(ends, axis=0)
