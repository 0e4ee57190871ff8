"""A new mesh descriptor: squared eigenfunctions, one channel each."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gcgp
from gcgp import GCGPClassifier, GeometryVectors, PatchKernel, articulated_bodies
from gcgp.descriptors import SpectralDescriptor
from gcgp.descriptors.base import FittedValue
from gcgp.io import classes

BODIES = articulated_bodies(persons=2, poses=4, vertices=200, random_state=1)
TRAINING = np.flatnonzero(BODIES.poses < 3)
UNSEEN = [BODIES.meshes[n] for n in np.flatnonzero(BODIES.poses == 3)]


@dataclass(eq=False, repr=False)
class SquaredEigenfunctions(SpectralDescriptor):
    """φ_k(v)² of the first eigenfunctions that are not constant, relative to their largest training value."""

    n_functions: int = 3
    fitted: ClassVar = {"largest_": FittedValue(positive=True)}

    def _learn(self, spectra):
        squares = [self._squares(spectrum) for spectrum in spectra]
        self.largest_ = np.concatenate(squares).max(axis=0)

    def _values(self, spectrum):
        return self._squares(spectrum) / self.largest_

    def _squares(self, spectrum):
        return spectrum.eigenfunctions[:, 1 : 1 + self.n_functions] ** 2


def fitted(descriptor):
    classifier = GCGPClassifier(n_inducing=20, kernel=PatchKernel(lengthscale=1.0, variance=10.0))
    meshes = [BODIES.meshes[n] for n in TRAINING]
    return make_pipeline(descriptor, classifier).fit(meshes, BODIES.persons[TRAINING])


@pytest.fixture(scope="module")
def pipeline():
    return fitted(SquaredEigenfunctions(eigenpairs=20))


def test_a_pipeline_predicts_and_explains(pipeline):
    assert pipeline[-1].n_features_in_ == 3
    assert pipeline.predict_proba(UNSEEN).shape == (2, 2)
    evidence, latent = gcgp.evidence(pipeline, UNSEEN), gcgp.predict_latent(pipeline, UNSEEN)
    summed = [evidence[n][0].sum(axis=0) for n in range(2)]
    np.testing.assert_allclose(summed, latent, rtol=1e-3, atol=1e-3)


def test_values_are_standardized():
    values = SquaredEigenfunctions(eigenpairs=20).fit_transform(BODIES.meshes).values
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(values.std(axis=0), 1.0, atol=1e-5)


def test_it_follows_the_parameter_contract():
    descriptor = clone(SquaredEigenfunctions(n_functions=5)).set_params(scale="area")
    assert repr(descriptor) == "SquaredEigenfunctions(n_functions=5, scale='area')"
    with pytest.raises(ValueError, match="eigenpairs=1 must be an integer of at least 2"):
        SquaredEigenfunctions(eigenpairs=1).fit(UNSEEN)
    with pytest.raises(ValueError, match="n_functions=0 must be an integer of at least 1"):
        SquaredEigenfunctions(n_functions=0).fit(UNSEEN)


def test_a_saved_pipeline_can_be_loaded(pipeline, tmp_path):
    gcgp.save(pipeline, tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert isinstance(loaded[0], SquaredEigenfunctions)
    np.testing.assert_array_equal(loaded[0].largest_, pipeline[0].largest_)
    np.testing.assert_array_equal(loaded.predict_proba(UNSEEN), pipeline.predict_proba(UNSEEN))


def test_loading_without_the_class_is_a_clear_error(pipeline, tmp_path, monkeypatch):
    gcgp.save(pipeline, tmp_path / "model.gcgp")
    monkeypatch.setattr(classes, "_subclasses", lambda base: iter(()))  # as if it was not imported
    with pytest.raises(ValueError, match=r"'SquaredEigenfunctions'.*import the module that defines it"):
        gcgp.load(tmp_path / "model.gcgp")


def test_saving_another_transformer_is_a_clear_error(tmp_path):
    transformer = FunctionTransformer(GeometryVectors(eigenpairs=20).fit(UNSEEN).transform)
    with pytest.raises(ValueError, match="a FunctionTransformer cannot be written to a model file"):
        gcgp.save(fitted(transformer), tmp_path / "model.gcgp")
