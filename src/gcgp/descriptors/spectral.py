"""Descriptors of meshes: scikit-learn transformers from a list of `Mesh` to `Signals`.

All are sums over the Laplace–Beltrami spectrum, Σ_k w(λ_k) φ_k(v)², so they do not change when a surface is
bent without stretching. Size is information: it is kept unless `scale="area"` is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.interpolate import BSpline
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from gcgp._runtime.errors import unknown_option
from gcgp.domain import Signals
from gcgp.domain.adapters import meshes as adapters
from gcgp.domain.adapters.meshes import is_mesh
from gcgp.mesh.mesh import Mesh
from gcgp.mesh.spectrum import Spectrum, laplace_beltrami

DEGREE = 3
"""Of the splines behind geometry vectors."""
ZERO = 1e-6
"""An eigenvalue below this, at unit area, is that of a constant function."""


class SpectralDescriptor(  # type: ignore[call-arg]
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # signals are no table to be made a data frame of
):
    """What the descriptors share: spectra, standardizing, and the scikit-learn contract.

    A subclass learns from the training spectra what it needs (`_learn`) and turns one spectrum into values
    (`_values`). The attributes named in `fitted`, numbers and arrays, are all it needs after training.
    """

    eigenpairs: int
    scale: str | None
    standardize: bool

    mean_: Float[np.ndarray, "d"]
    deviation_: Float[np.ndarray, "d"]

    fitted: ClassVar[tuple[str, ...]] = ("mean_", "deviation_")

    def fit(self, X: Any, y: Any = None) -> SpectralDescriptor:
        """Learn from the spectra of a list of meshes."""
        self._fit(self._spectra(as_meshes(X)))
        return self

    def transform(self, X: Any) -> Signals:
        """The descriptors of a list of meshes, as signals on these meshes."""
        check_is_fitted(self, "mean_")
        meshes = as_meshes(X)
        return self._signals((self._values(spectrum) for spectrum in self._spectra(meshes)), meshes)

    def fit_transform(self, X: Any, y: Any = None) -> Signals:
        """What `fit` and then `transform` give, with each spectrum computed once."""
        meshes = as_meshes(X)
        return self._signals(self._fit(self._spectra(meshes)), meshes)

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _validate_options(self) -> None:
        check_whole("eigenpairs", self.eigenpairs, 2)
        if self.scale not in (None, "area"):
            raise unknown_option("scale", self.scale, ("None", "area"))

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        raise NotImplementedError

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V d"]:
        raise NotImplementedError

    def _fit(self, training: Iterator[Spectrum]) -> list[Float[np.ndarray, "V d"]]:
        """Learn from the spectra; return the values of each, not standardized."""
        self._validate_options()
        spectra = list(training)
        self._learn(spectra)
        values = [self._values(spectrum) for spectrum in spectra]
        pooled = np.concatenate(values)
        self.mean_, self.deviation_ = np.zeros(pooled.shape[1]), np.ones(pooled.shape[1])
        if self.standardize:
            self.mean_ = pooled.mean(axis=0)
            deviation = pooled.std(axis=0)
            constant = deviation <= 1e-9 * np.abs(self.mean_)
            self.deviation_ = np.where(constant, 1.0, deviation)
        return values

    def _spectra(self, meshes: Sequence[Mesh]) -> Iterator[Spectrum]:
        for i, mesh in enumerate(tqdm(meshes, "spectra", unit=" meshes", delay=1, disable=None)):
            try:
                spectrum = laplace_beltrami(mesh, self.eigenpairs)
            except ValueError as error:
                raise ValueError(f"X[{i}]: {error}") from error
            yield spectrum.at_unit_area() if self.scale == "area" else spectrum

    def _signals(self, values: Any, meshes: Sequence[Mesh]) -> Signals:
        return Signals.on_meshes([(item - self.mean_) / self.deviation_ for item in values], meshes)


class GeometryVectors(SpectralDescriptor):
    """Geometry vectors g_q(v) = Σ_k β_q(λ_k) φ_k(v)², with cubic B-splines β_q on the band [0, λ_max].

    Litman & Bronstein 2014, "Learning spectral descriptors for deformable shape correspondence". Knots are
    uniform, λ_max / n_splines apart. The first splines reach below 0, where nothing is, so that low
    frequencies count in full; the last one falls to 0 at λ_max, so that nothing jumps where the spectrum is
    cut off. λ_max is a high percentile of all training eigenvalues: at 100, few meshes would fill the band.

    Args:
        n_vectors: How many are kept, from the lowest frequencies; four in Walker & Glocker 2019.
        n_splines: Number of splines on the band; `None`: twice `n_vectors`, so that the lower half of it is
            kept.
        eigenpairs: Of each mesh.
        percentile: Of the training eigenvalues, all meshes together, where the band ends.
        scale: `None` keeps the size of each mesh; `"area"` scales each to area 1.
        standardize: Whether each channel is centered and scaled to variance 1 over the training vertices.

    Attributes:
        band_: λ_max.
        mean_, deviation_: `[d]`, subtracted from each channel and divided by.

    >>> tetrahedron = Mesh(np.eye(4)[:, :3], [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])
    >>> GeometryVectors().fit_transform([tetrahedron, tetrahedron.scaled(2)]).channels
    4
    """

    fitted = (*SpectralDescriptor.fitted, "band_")

    def __init__(
        self,
        n_vectors: int = 4,
        *,
        n_splines: int | None = None,
        eigenpairs: int = 100,
        percentile: float = 95.0,
        scale: str | None = None,
        standardize: bool = True,
    ) -> None:
        self.n_vectors = n_vectors
        self.n_splines = n_splines
        self.eigenpairs = eigenpairs
        self.percentile = percentile
        self.scale = scale
        self.standardize = standardize

    def _validate_options(self) -> None:
        super()._validate_options()
        check_whole("n_vectors", self.n_vectors, 1)
        if self.n_splines is not None:
            check_whole("n_splines", self.n_splines, self.n_vectors)
        if not isinstance(self.percentile, (int, float, np.number)) or not 0 < self.percentile <= 100:
            raise ValueError(f"percentile={self.percentile!r} must be above 0 and at most 100")

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        eigenvalues = np.concatenate([spectrum.eigenvalues for spectrum in spectra])
        self.band_ = float(np.percentile(eigenvalues, self.percentile))
        if self.band_ * np.median([spectrum.mass.sum() for spectrum in spectra]) <= ZERO:
            raise ValueError(f"eigenpairs={self.eigenpairs}: most training eigenvalues are 0; take more")

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V d"]:
        splines = self.n_splines or 2 * self.n_vectors
        # The three splines that reach beyond the band make the basis complete on it; they are not kept.
        knots = np.arange(-DEGREE, splines + DEGREE + 1) * (self.band_ / splines)
        basis = BSpline(knots, np.eye(splines + DEGREE)[:, : self.n_vectors], DEGREE, extrapolate=False)
        return spectrum.eigenfunctions**2 @ np.nan_to_num(basis(spectrum.eigenvalues))


class HeatKernelSignature(SpectralDescriptor):
    """Heat that is left at v after times t: h_t(v) = Σ_k exp(−λ_k t) φ_k(v)².

    Sun, Ovsjanikov & Guibas 2009, "A concise and provably informative multi-scale signature based on heat
    diffusion". Times are logarithmic from 4 ln 10 / λ_last to 4 ln 10 / λ_first, as there, but the same for
    all meshes: the medians over training meshes of the last and of the first eigenvalue above 0.

    Args:
        n_times: Number of times, and of channels.
        eigenpairs: Of each mesh.
        scale: `None` keeps the size of each mesh; `"area"` scales each to area 1.
        standardize: Whether each channel is centered and scaled to variance 1 over the training vertices.

    Attributes:
        times_: `[n_times]`, ascending.
        mean_, deviation_: `[d]`, subtracted from each channel and divided by.
    """

    fitted = (*SpectralDescriptor.fitted, "times_")

    def __init__(
        self,
        n_times: int = 8,
        *,
        eigenpairs: int = 100,
        scale: str | None = None,
        standardize: bool = True,
    ) -> None:
        self.n_times = n_times
        self.eigenpairs = eigenpairs
        self.scale = scale
        self.standardize = standardize

    def _validate_options(self) -> None:
        super()._validate_options()
        check_whole("n_times", self.n_times, 1)

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        first, last = _median_ends(spectra)
        self.times_ = np.geomspace(4 * np.log(10) / last, 4 * np.log(10) / first, self.n_times)

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V d"]:
        return spectrum.eigenfunctions**2 @ np.exp(-np.outer(spectrum.eigenvalues, self.times_))


class WaveKernelSignature(SpectralDescriptor):
    """How likely a quantum particle of energy near e is at v: Σ_k w_k φ_k(v)² / Σ_k w_k over λ_k > 0.

    The weights are w_k = exp(−(e − ln λ_k)² / 2σ²) (Aubry, Schlickewei & Cremers 2011, "The wave kernel
    signature: a quantum mechanical approach to shape analysis"). Energies are equally spaced from
    ln λ_first + 2σ to ln λ_last − 2σ. There, σ is 7 steps of 100 energies, 7/127 of the range of ln λ; here
    it is so for any number of energies. The ends are medians over training meshes, the same for all meshes.

    Args:
        n_energies: Number of energies, and of channels.
        eigenpairs: Of each mesh.
        scale: `None` keeps the size of each mesh; `"area"` scales each to area 1.
        standardize: Whether each channel is centered and scaled to variance 1 over the training vertices.

    Attributes:
        energies_: `[n_energies]`, ascending.
        width_: σ.
        mean_, deviation_: `[d]`, subtracted from each channel and divided by.
    """

    fitted = (*SpectralDescriptor.fitted, "energies_", "width_")

    def __init__(
        self,
        n_energies: int = 16,
        *,
        eigenpairs: int = 100,
        scale: str | None = None,
        standardize: bool = True,
    ) -> None:
        self.n_energies = n_energies
        self.eigenpairs = eigenpairs
        self.scale = scale
        self.standardize = standardize

    def _validate_options(self) -> None:
        super()._validate_options()
        check_whole("n_energies", self.n_energies, 1)

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        low, high = np.log(_median_ends(spectra))
        self.width_ = float(max(7 / 127 * (high - low), 1e-9))
        self.energies_ = np.linspace(low + 2 * self.width_, high - 2 * self.width_, self.n_energies)

    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V d"]:
        positive = _above_zero(spectrum)
        distance = (np.log(spectrum.eigenvalues[positive, None]) - self.energies_) ** 2
        # Measured from the nearest eigenvalue, or all weights of a mesh of another size could be 0.
        nearest = distance.min(axis=0, initial=np.inf)
        weights = np.exp((nearest - distance) / (2 * self.width_**2))
        return spectrum.eigenfunctions[:, positive] ** 2 @ (weights / weights.sum(axis=0))


def as_meshes(X: Any) -> list[Mesh]:
    """A list of meshes, one at least, from a list or tuple of `Mesh` or of trimesh objects."""
    if not isinstance(X, (list, tuple)):
        raise ValueError(f"X: expected a list of Mesh, got {type(X).__name__}")
    if not X:
        raise ValueError("X: the set is empty (0 meshes)")
    for i, item in enumerate(X):
        if not is_mesh(item):
            raise ValueError(f"X[{i}]: expected a Mesh, got {type(item).__name__}")
    return adapters.as_meshes(X)


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise unless the option is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")


def _above_zero(spectrum: Spectrum) -> np.ndarray:
    """Mask `[K]` of the eigenvalues above 0."""
    return spectrum.eigenvalues * spectrum.mass.sum() > ZERO


def _median_ends(spectra: Sequence[Spectrum]) -> tuple[float, float]:
    """The first eigenvalue above 0 and the last one, as medians over the meshes that have any above 0."""
    ends = [found[[0, -1]] for s in spectra if len(found := s.eigenvalues[_above_zero(s)])]
    if not ends:
        raise ValueError("X: no mesh has an eigenvalue above 0 among its eigenpairs; take more eigenpairs")
    first, last = np.median(ends, axis=0)
    return float(first), float(last)
