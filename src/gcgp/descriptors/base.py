"""The base class of mesh descriptors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from gcgp._runtime.errors import check_integer, unknown_option
from gcgp.domain import Signals
from gcgp.domain.adapters import meshes as adapters
from gcgp.mesh import Mesh
from gcgp.mesh.scale import normalized
from gcgp.mesh.spectrum import Spectrum, laplace_beltrami


@dataclass(frozen=True)
class FittedValue:
    """What model files check of a fitted attribute: its shape, `[channels]` or a number, and its sign."""

    per_channel: bool = True
    positive: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class SpectralDescriptor(  # type: ignore[call-arg]
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
    ABC,
    auto_wrap_output_keys=None,  # signals cannot become a data frame
):
    """A transformer from a list of meshes to signals whose values follow from the spectrum of each mesh.

    A new descriptor is a dataclass with its options as fields. It implements `_values` and, if it learns from
    the training meshes, `_learn`; the attributes that this sets are listed in `fitted`, for model files.

        @dataclass(eq=False, repr=False)
        class SquaredEigenfunctions(SpectralDescriptor):
            n_functions: int = 3

            def _values(self, spectrum):
                return spectrum.eigenfunctions[:, : self.n_functions] ** 2

    Args:
        eigenpairs: Number of eigenpairs of each mesh.
        scale: `None` keeps the size of each mesh, which is information. `"area"` scales each to area 1: the
            signals are then on the scaled meshes, so that radii of weightings are relative to the square
            root of the area.
        standardize: Whether to center each channel and scale it to variance 1 over the training vertices.

    Attributes:
        mean_, std_: `[channels]`, subtracted from each channel, and its divisor.
    """

    eigenpairs: int = 100
    scale: str | None = None
    standardize: bool = True

    fitted: ClassVar[Mapping[str, FittedValue]] = {"mean_": FittedValue(), "std_": FittedValue(positive=True)}
    """All fitted attributes by name; a subclass lists those that its base class does not have."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.fitted = {**super(cls, cls).fitted, **cls.fitted}

    def validate(self) -> None:
        """Raise a ValueError for the first invalid option; those named `n_*` are positive integers."""
        check_integer("eigenpairs", self.eigenpairs, 2)
        if self.scale not in (None, "area"):
            raise unknown_option("scale", self.scale, ("None", "area"))
        for name, value in self.get_params().items():
            if name.startswith("n_") and value is not None:
                check_integer(name, value)

    def _learn(self, spectra: Sequence[Spectrum]) -> None:
        """Set the fitted attributes of the subclass."""

    @abstractmethod
    def _values(self, spectrum: Spectrum) -> Float[np.ndarray, "V channels"]:
        """The values of a mesh before standardization."""

    def fit(self, X: Any, y: Any = None) -> SpectralDescriptor:
        """Learn from the spectra of a list of meshes."""
        self.validate()
        self._fit(list(self._spectra(as_meshes(X))))
        return self

    def transform(self, X: Any) -> Signals:
        """The descriptors of a list of meshes, as signals on these meshes."""
        check_is_fitted(self, "mean_")
        meshes = as_meshes(X)
        return self._signals(map(self._values, map(self._at_scale, self._spectra(meshes))), meshes)

    def fit_transform(self, X: Any, y: Any = None) -> Signals:
        """The result of `fit` and `transform`, with each spectrum computed once."""
        return fit_transform_all([self], X)[0]

    @property
    def _n_features_out(self) -> int:
        return len(self.mean_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def _fit(self, spectra: Sequence[Spectrum]) -> list[Float[np.ndarray, "V channels"]]:
        """Learn from the spectra of meshes; return the values of each, not standardized."""
        spectra = [self._at_scale(spectrum) for spectrum in spectra]
        self._learn(spectra)
        values = [self._values(spectrum) for spectrum in spectra]
        pooled = np.concatenate(values)
        self.mean_, self.std_ = np.zeros(pooled.shape[1]), np.ones(pooled.shape[1])
        if self.standardize:
            self.mean_, std = pooled.mean(axis=0), pooled.std(axis=0)
            self.std_ = np.where(std <= 1e-9 * np.abs(self.mean_), 1.0, std)  # 1 for constant channels
        return values

    def _at_scale(self, spectrum: Spectrum) -> Spectrum:
        return spectrum.at_unit_area() if self.scale == "area" else spectrum

    def _spectra(self, meshes: Sequence[Mesh]) -> Iterator[Spectrum]:
        """The spectrum of each mesh as it is given."""
        for i, mesh in enumerate(tqdm(meshes, "spectra", unit=" meshes", delay=1, disable=None)):
            try:
                yield laplace_beltrami(mesh, self.eigenpairs)
            except ValueError as error:
                raise ValueError(f"X[{i}]: {error}") from error

    def _signals(self, values: Iterable[np.ndarray], meshes: Sequence[Mesh]) -> Signals:
        standardized = [(item - self.mean_) / self.std_ for item in values]
        if self.scale == "area":
            meshes = [normalized(mesh) for mesh in meshes]
        return Signals.on_meshes(standardized, meshes)


def fit_transform_all(descriptors: Sequence[SpectralDescriptor], X: Any) -> list[Signals]:
    """Fit each descriptor to a list of meshes; their signals, with each spectrum computed once."""
    meshes = as_meshes(X)
    for descriptor in descriptors:
        descriptor.validate()
    values: dict[int, list[np.ndarray]] = {}
    for eigenpairs in sorted({descriptor.eigenpairs for descriptor in descriptors}):
        alike = [i for i, descriptor in enumerate(descriptors) if descriptor.eigenpairs == eigenpairs]
        spectra = list(descriptors[alike[0]]._spectra(meshes))
        values |= {i: descriptors[i]._fit(spectra) for i in alike}
    return [descriptor._signals(values[i], meshes) for i, descriptor in enumerate(descriptors)]


def as_meshes(X: Any) -> list[Mesh]:
    """A non-empty list of meshes from a list, tuple or array of `Mesh` or trimesh objects."""
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        X = X.tolist()
    if not isinstance(X, (list, tuple)):
        raise ValueError(f"X: expected a list of Mesh, got {type(X).__name__}")
    if len(X) == 0:
        raise ValueError("X: the set is empty (0 meshes)")
    for i, item in enumerate(X):
        if not adapters.is_mesh(item):
            raise ValueError(f"X[{i}]: expected a Mesh, got {type(item).__name__}")
    return adapters.as_meshes(X)
