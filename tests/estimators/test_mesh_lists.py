"""Estimators fitted to lists of meshes without values."""

import numpy as np
import pytest
import trimesh
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import gcgp
from gcgp import GCGPClassifier, GCGPRegressor, GeometryVectors, WaveKernelSignature, articulated_bodies

BODIES = articulated_bodies(persons=3, poses=4, vertices=220, random_state=1)
TRAINING, UNSEEN = np.flatnonzero(BODIES.poses < 3), np.flatnonzero(BODIES.poses == 3)
MESHES, LABELS = [BODIES.meshes[n] for n in TRAINING], BODIES.persons[TRAINING]
OTHERS = [BODIES.meshes[n] for n in UNSEEN]
SMALL = {"n_inducing": 40, "search": None}


@pytest.fixture(scope="module")
def model():
    descriptors = [WaveKernelSignature(eigenpairs=40, scale="area"), GeometryVectors(eigenpairs=40)]
    return GCGPClassifier(descriptor=descriptors, n_inducing=60).fit(MESHES, LABELS)


def test_persons_are_classified_in_an_unseen_pose(model):
    assert model.score(OTHERS, BODIES.persons[UNSEEN]) == 1.0
    np.testing.assert_allclose(model.predict_proba(OTHERS).sum(axis=1), 1.0)


def test_the_same_signals_give_the_same_prediction(model):
    signals = model.descriptor_.transform(OTHERS)
    assert np.array_equal(model.predict_proba(signals), model.predict_proba(OTHERS))


def test_evidence_sums_to_the_latent_mean(model):
    mean, _ = model.evidence(OTHERS[:1])[0]
    assert mean.shape == (220, 3)
    np.testing.assert_allclose(mean.sum(axis=0), model.predict_latent(OTHERS[:1])[0], rtol=1e-3, atol=5e-3)


def test_a_loaded_model_predicts_the_same(model, tmp_path):
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(loaded.predict_proba(OTHERS), model.predict_proba(OTHERS))
    assert repr(loaded.descriptor_) == repr(model.descriptor_)
    assert repr(loaded.descriptor) == repr(model.descriptor)


def test_trimesh_objects_and_arrays_of_objects_are_meshes(model):
    objects = [trimesh.Trimesh(mesh.vertices, mesh.faces, process=False) for mesh in OTHERS]
    expected = model.predict_proba(OTHERS)
    np.testing.assert_allclose(model.predict_proba(objects), expected, atol=1e-9)
    assert np.array_equal(model.predict_proba(np.array(OTHERS, dtype=object)), expected)


def test_it_is_the_pipeline_of_its_descriptor_and_classifier():
    descriptor = GeometryVectors(eigenpairs=40, scale="area")
    direct = GCGPClassifier(descriptor=descriptor, **SMALL).fit(MESHES, LABELS)
    pipeline = make_pipeline(descriptor, GCGPClassifier(**SMALL)).fit(MESHES, LABELS)
    assert np.array_equal(direct.predict_proba(OTHERS), pipeline.predict_proba(OTHERS))


def test_scikit_learn_clones_searches_and_validates():
    estimator = GCGPClassifier(descriptor=GeometryVectors(eigenpairs=20), **SMALL)
    copy = clone(estimator)
    assert copy.descriptor is not estimator.descriptor
    assert copy.get_params()["descriptor__eigenpairs"] == 20
    search = GridSearchCV(estimator, {"descriptor__scale": [None, "area"]}, cv=3).fit(MESHES, LABELS)
    assert search.best_score_ > 0.5
    assert (cross_val_score(estimator, MESHES, LABELS, cv=3) >= 1 / 3).all()


def test_regression_on_meshes():
    sizes = [mesh.size for mesh in MESHES]
    model = GCGPRegressor(descriptor=WaveKernelSignature(eigenpairs=30), **SMALL).fit(MESHES, sizes)
    assert model.score(OTHERS, [mesh.size for mesh in OTHERS]) > 0.5


def test_labels_are_checked_before_spectra_are_computed(monkeypatch):
    monkeypatch.setattr("gcgp.descriptors.base.laplace_beltrami", lambda *arguments: 1 / 0)
    with pytest.raises(ValueError, match="2 labels for 9 signals"):
        GCGPClassifier().fit(MESHES, [0, 1])


def test_other_items_are_named(model):
    with pytest.raises(ValueError, match=r"X\[2\]: expected a Mesh, got str"):
        GCGPClassifier().fit([*MESHES[:2], "mesh.off"], [0, 1, 0])
    with pytest.raises(ValueError, match=r"X\[1\]: expected a Mesh, got int"):
        model.predict([OTHERS[0], 3])
    with pytest.raises(ValueError, match="got meshes, which have no values"):
        GCGPClassifier().fit(OTHERS[0], [0])


def test_a_model_of_signals_does_not_predict_meshes():
    signals = GeometryVectors(eigenpairs=20).fit_transform(MESHES)
    fitted = GCGPClassifier(**SMALL).fit(signals, LABELS)
    with pytest.raises(ValueError, match="got meshes, which have no values"):
        fitted.predict(OTHERS)
