from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import trimesh
from scipy.interpolate import BSpline
from scipy.spatial.transform import Rotation
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import gcgp.descriptors.base as module
from gcgp import (
    GCGPClassifier,
    GeometryVectors,
    HeatKernelSignature,
    PatchKernel,
    Signals,
    WaveKernelSignature,
)
from gcgp.descriptors import FittedValue, SpectralDescriptor
from gcgp.descriptors.base import as_meshes
from gcgp.mesh.mesh import Mesh
from gcgp.mesh.spectrum import laplace_beltrami
from gcgp.weighting import Radial

ALL = [GeometryVectors, HeatKernelSignature, WaveKernelSignature]
PLAIN = {"eigenpairs": 30, "standardize": False}


def ellipsoid(radii, subdivisions=2):
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    return Mesh(np.array(ball.vertices) * radii, np.array(ball.faces))


MESHES = [ellipsoid([1, 1.1, 1.5]), ellipsoid([1, 1.3, 2.2]), ellipsoid([1.2, 1.25, 1.3], 1)]


@pytest.fixture(params=ALL)
def descriptor(request):
    return request.param(eigenpairs=30)


def slow(mesh, weight, eigenpairs=30):
    """Σ_k weight(λ_k) φ_k(v)² at each vertex, by two loops."""
    spectrum = laplace_beltrami(mesh, eigenpairs)
    values = np.zeros(len(mesh.vertices))
    for k, eigenvalue in enumerate(spectrum.eigenvalues):
        factor = weight(eigenvalue)
        for v in range(len(mesh.vertices)):
            values[v] += factor * spectrum.eigenfunctions[v, k] ** 2
    return values


def first_above_zero(mesh):
    return laplace_beltrami(mesh, 30).eigenvalues[1]


def last(mesh):
    return laplace_beltrami(mesh, 30).eigenvalues[-1]


class TestGeometryVectors:
    @pytest.mark.parametrize(("vectors", "splines"), [(4, None), (3, 7), (1, 1)])
    def test_against_the_formula(self, vectors, splines):
        model = GeometryVectors(vectors, n_splines=splines, **PLAIN).fit(MESHES)
        found = model.transform(MESHES)
        step = model.band_ / (splines or 8)
        for i, mesh in enumerate(MESHES):
            for q in range(vectors):
                spline = BSpline.basis_element(np.arange(q - 3, q + 2) * step, extrapolate=False)
                expected = slow(mesh, lambda x, spline=spline: np.nan_to_num(spline(x)))
                np.testing.assert_allclose(found[i].values[:, q], expected, rtol=1e-8, atol=1e-12)

    def test_the_band_is_a_percentile_of_the_training_eigenvalues(self):
        pooled = np.concatenate([laplace_beltrami(mesh, 30).eigenvalues for mesh in MESHES[:2]])
        for percentile in (50, 95, 100):
            model = GeometryVectors(percentile=percentile, **PLAIN).fit(MESHES[:2])
            assert model.band_ == pytest.approx(np.percentile(pooled, percentile))

    def test_splines_sum_to_one_at_low_frequencies(self):
        model = GeometryVectors(8, n_splines=8, **PLAIN).fit(MESHES)
        spectrum = laplace_beltrami(MESHES[0], 30)
        low = spectrum.eigenvalues < model.band_ * 5 / 8
        kept = type(spectrum)(spectrum.eigenvalues[low], spectrum.eigenfunctions[:, low], spectrum.mass)
        expected = (kept.eigenfunctions**2).sum(axis=1)
        np.testing.assert_allclose(model._values(kept).sum(axis=1), expected, rtol=1e-10)

    def test_only_zero_eigenvalues(self):
        triangles = np.arange(30).reshape(10, 3)
        apart = Mesh(np.tile(np.eye(3), (10, 1)) + np.repeat(np.arange(10), 3)[:, None], triangles)
        for kind in ALL:
            with pytest.raises(ValueError, match="eigenvalue"):
                kind(eigenpairs=5).fit([apart])


def test_heat_kernel_signature_against_the_formula():
    model = HeatKernelSignature(5, **PLAIN).fit(MESHES)
    ends = [4 * np.log(10) / np.median([end(mesh) for mesh in MESHES]) for end in (last, first_above_zero)]
    np.testing.assert_allclose(model.times_[[0, -1]], ends)
    np.testing.assert_allclose(np.diff(np.log(model.times_)), np.log(ends[1] / ends[0]) / 4)
    found = model.transform(MESHES)
    for i, mesh in enumerate(MESHES):
        for j, time in enumerate(model.times_):
            expected = slow(mesh, lambda x, time=time: np.exp(-x * time))
            np.testing.assert_allclose(found[i].values[:, j], expected, rtol=1e-8)


def test_wave_kernel_signature_against_the_formula():
    model = WaveKernelSignature(5, **PLAIN).fit(MESHES)
    low, high = (np.log(np.median([end(mesh) for mesh in MESHES])) for end in (first_above_zero, last))
    assert model.width_ == pytest.approx((high - low) * 7 / 127)
    ends = [low + 2 * model.width_, high - 2 * model.width_]
    np.testing.assert_allclose(model.energies_, np.linspace(*ends, 5))
    found = model.transform(MESHES)
    for i, mesh in enumerate(MESHES):
        eigenvalues = laplace_beltrami(mesh, 30).eigenvalues[1:]
        for j, energy in enumerate(model.energies_):

            def weight(x, energy=energy):
                return np.exp(-((energy - np.log(x)) ** 2) / (2 * model.width_**2)) if x > 1e-6 else 0.0

            expected = slow(mesh, weight) / sum(map(weight, eigenvalues))
            np.testing.assert_allclose(found[i].values[:, j], expected, rtol=1e-7)


def test_a_mesh_of_another_size_has_finite_values(descriptor):
    descriptor.fit(MESHES)
    for factor in (1e-3, 1e3):
        assert np.isfinite(descriptor.transform([MESHES[0].scaled(factor)]).values).all()


def test_fit_and_transform_is_fit_transform_with_each_spectrum_once(descriptor, monkeypatch):
    expected = clone(descriptor).fit(MESHES).transform(MESHES)
    seen = []

    def counted(mesh, eigenpairs):
        seen.append(mesh)
        return laplace_beltrami(mesh, eigenpairs)

    monkeypatch.setattr(module, "laplace_beltrami", counted)
    found = descriptor.fit_transform(MESHES)
    assert seen == MESHES
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.vertex_counts.tolist() == [len(mesh.vertices) for mesh in MESHES]


def test_standardize(descriptor):
    values = descriptor.fit_transform(MESHES).values
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(values.std(axis=0), 1)
    raw = clone(descriptor).set_params(standardize=False).fit_transform(MESHES).values
    np.testing.assert_allclose(values * descriptor.std_ + descriptor.mean_, raw)
    constant = clone(descriptor).fit_transform([ellipsoid([1, 1, 1], 0)]).values
    np.testing.assert_allclose(constant, 0, atol=1e-6)


def test_size_counts_unless_scaled_away(descriptor):
    large = [mesh.scaled(2.0) for mesh in MESHES]
    kept = descriptor.fit(MESHES)
    assert np.abs(kept.transform(large).values - kept.transform(MESHES).values).max() > 0.1
    gone = clone(descriptor).set_params(scale="area").fit(MESHES)
    np.testing.assert_allclose(gone.transform(large).values, gone.transform(MESHES).values, atol=1e-6)


def test_rotation_translation_and_numbering_change_nothing(descriptor):
    rng = np.random.default_rng(0)
    descriptor.set_params(standardize=False).fit(MESHES)
    for mesh in MESHES:
        order = rng.permutation(len(mesh.vertices))
        turned = Rotation.random(rng=rng).apply(mesh.vertices[order]) + rng.normal(size=3)
        moved = Mesh(turned, np.argsort(order)[mesh.faces])
        before, after = (descriptor.transform([item]).values for item in (mesh, moved))
        np.testing.assert_allclose(after, before[order], rtol=1e-6, atol=1e-9)


def test_contract(descriptor):
    with pytest.raises(NotFittedError):
        descriptor.transform(MESHES)
    with pytest.raises(NotFittedError):
        descriptor.get_feature_names_out()
    before = descriptor.get_params()
    assert descriptor.fit(MESHES) is descriptor
    assert descriptor.get_params() == before
    names = descriptor.get_feature_names_out()
    assert len(set(names)) == descriptor.transform(MESHES).channels
    assert names[0] == type(descriptor).__name__.lower() + "0"
    assert not hasattr(clone(descriptor), "mean_")
    with config_context(transform_output="pandas"):
        assert isinstance(descriptor.fit_transform(MESHES), Signals)


def test_fitted_values_are_declared(descriptor):
    channels = descriptor.fit_transform(MESHES).channels
    assert {name for name in vars(descriptor) if name.endswith("_")} == set(descriptor.fitted)
    for name, declared in descriptor.fitted.items():
        value = np.asarray(getattr(descriptor, name))
        assert value.dtype == float
        assert value.shape == ((channels,) if declared.per_channel else ())
        assert not declared.positive or (value > 0).all()


@dataclass(eq=False, repr=False)
class BandPass(SpectralDescriptor):
    """Squared eigenfunctions of the lowest frequencies, relative to the mean eigenvalue."""

    n_functions: int = 3

    fitted: ClassVar = {"frequency_": FittedValue(per_channel=False, positive=True)}

    def _learn(self, spectra):
        self.frequency_ = float(np.mean([spectrum.eigenvalues.mean() for spectrum in spectra]))

    def _values(self, spectrum):
        return self.frequency_ * spectrum.eigenfunctions[:, 1 : 1 + self.n_functions] ** 2


class TestNewDescriptor:
    def test_values(self):
        descriptor = BandPass(2, eigenpairs=10, standardize=False).fit(MESHES)
        spectra = [laplace_beltrami(mesh, 10) for mesh in MESHES]
        mean = np.mean([spectrum.eigenvalues.mean() for spectrum in spectra])
        signals = descriptor.transform(MESHES[1:])
        np.testing.assert_allclose(signals[0].values, mean * spectra[1].eigenfunctions[:, 1:3] ** 2)
        np.testing.assert_array_equal(descriptor.fit_transform(MESHES)[[1, 2]].values, signals.values)

    def test_parameters(self):
        descriptor = BandPass(5, scale="area")
        expected = {"n_functions": 5, "eigenpairs": 100, "scale": "area", "standardize": True}
        assert descriptor.get_params() == expected
        assert clone(descriptor).get_params() == expected
        assert clone(descriptor).set_params(n_functions=2).fit_transform(MESHES).channels == 2
        assert repr(descriptor) == "BandPass(n_functions=5, scale='area')"

    def test_options_are_checked(self):
        with pytest.raises(ValueError, match="n_functions=0 must be an integer of at least 1"):
            BandPass(0).fit(MESHES)

    def test_fitted_values_of_base_classes_are_included(self):
        assert set(BandPass.fitted) == {"mean_", "std_", "frequency_"}
        assert set(SpectralDescriptor.fitted) == {"mean_", "std_"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (GeometryVectors(0), "n_vectors=0"),
        (GeometryVectors(4, n_splines=3), "n_splines=3 must be an integer of at least 4"),
        (GeometryVectors(percentile=0), "percentile=0"),
        (GeometryVectors(percentile=101), "percentile=101"),
        (GeometryVectors(percentile="high"), "percentile='high'"),
        (GeometryVectors(eigenpairs=1), "eigenpairs=1"),
        (HeatKernelSignature(2.5), r"n_times=2\.5"),
        (WaveKernelSignature(True), "n_energies=True"),
        (HeatKernelSignature(scale="diameter"), "scale='diameter' is not known"),
    ],
)
def test_wrong_options(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(MESHES)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "X: the set is empty"),
        (MESHES[0], "X: expected a list of Mesh, got Mesh"),
        (np.zeros((3, 3)), "X: expected a list of Mesh, got ndarray"),
        ([MESHES[0], "a.ply"], r"X\[1\]: expected a Mesh, got str"),
    ],
)
def test_wrong_input(descriptor, X, message):
    with pytest.raises(ValueError, match=message):
        descriptor.fit(X)
    descriptor.fit(MESHES)
    with pytest.raises(ValueError, match=message):
        descriptor.transform(X)


def test_a_mesh_without_area_is_named(descriptor):
    flat = Mesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], name="flat")
    with pytest.raises(ValueError, match=r"X\[1\]: mesh 'flat': its area is 0"):
        descriptor.fit([MESHES[0], flat])


def test_meshes_come_back_as_they_are():
    assert as_meshes(tuple(MESHES)) == MESHES


def test_a_pipeline_is_cross_validated():
    rng = np.random.default_rng(0)
    shapes = np.tile([[1, 1, 1], [1, 1, 1.8]], (6, 1)) * rng.uniform(0.95, 1.05, (12, 3))
    meshes = [ellipsoid(shape) for shape in shapes]
    model = make_pipeline(
        GeometryVectors(eigenpairs=30),
        GCGPClassifier(Radial([0.0, 0.4]), n_inducing=20, kernel=PatchKernel(lengthscale=1.0, variance=10.0)),
    )
    scores = cross_val_score(model, meshes, ["round", "long"] * 6, cv=3, error_score="raise")
    assert scores.mean() == 1.0
