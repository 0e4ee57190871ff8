"""Classification of meshes from end to end: motion and renumbering of a mesh change no prediction."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from sklearn.pipeline import make_pipeline

import gcgp
from gcgp import GCGPClassifier, GeometryVectors, Mesh, PatchKernel, Signals, articulated_bodies
from gcgp.weighting import Polar, Radial

BODIES = articulated_bodies(persons=3, poses=4, vertices=220, random_state=1)
TRAINING = np.flatnonzero(BODIES.poses < 3)
UNSEEN = [BODIES.meshes[n] for n in np.flatnonzero(BODIES.poses == 3)]
WEIGHTINGS = {
    "radial": "auto",
    "16 rays": "polar",
    "angles": Polar([0.1, 0.2], 6, 0.06),
}


@pytest.fixture(scope="module", params=WEIGHTINGS)
def model(request):
    classifier = GCGPClassifier(WEIGHTINGS[request.param], n_inducing=60)
    pipeline = make_pipeline(GeometryVectors(eigenpairs=40), classifier)
    return pipeline.fit([BODIES.meshes[n] for n in TRAINING], BODIES.persons[TRAINING])


def renumbered(mesh, rng):
    order = rng.permutation(len(mesh.vertices))
    faces = np.argsort(order)[mesh.faces][rng.permutation(len(mesh.faces))]
    rolled = [np.roll(face, rng.integers(3)) for face in faces]
    return Mesh(mesh.vertices[order], rolled), order


def test_persons_are_classified_in_an_unseen_pose(model):
    assert model.score(UNSEEN, np.arange(3)) == 1.0


def test_motion_and_renumbering_change_no_prediction(model):
    rng = np.random.default_rng(0)
    moved = []
    for mesh in UNSEEN:
        other, _ = renumbered(mesh, rng)
        rotated = Rotation.random(random_state=1).apply(np.array(other.vertices))
        moved.append(Mesh(rotated + np.array([3.0, -1.0, 0.5]), other.faces))
    np.testing.assert_allclose(model.predict_proba(moved), model.predict_proba(UNSEEN), atol=1e-4)


def test_duplicate_faces_change_no_prediction(model):
    repeated = [Mesh(mesh.vertices, np.concatenate([mesh.faces, mesh.faces[:20, ::-1]])) for mesh in UNSEEN]
    np.testing.assert_allclose(model.predict_proba(repeated), model.predict_proba(UNSEEN), atol=1e-6)


def test_evidence_is_renumbered_with_its_vertices(model):
    describe, classify = model[:-1], model[-1]
    other, order = renumbered(UNSEEN[0], np.random.default_rng(1))
    mean, std = classify.evidence(describe.transform(UNSEEN[:1]))[0]
    moved_mean, moved_std = classify.evidence(describe.transform([other]))[0]
    np.testing.assert_allclose(moved_mean, mean[order], atol=1e-3 * np.abs(mean).max())
    np.testing.assert_allclose(moved_std, std[order], atol=1e-2 * std.max())
    latent = classify.predict_latent(describe.transform(UNSEEN[:1]))[0]
    np.testing.assert_allclose(mean.sum(axis=0), latent, rtol=1e-3, atol=5e-3)  # in float32


def test_a_loaded_pipeline_predicts_the_same(model, tmp_path):
    gcgp.save(model, tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(loaded.predict_proba(UNSEEN), model.predict_proba(UNSEEN))


def test_meshes_of_other_sizes_can_be_predicted(model):
    coarse = [gcgp.decimate(mesh, 150) for mesh in UNSEEN]
    assert model.predict_proba(coarse).shape == (3, 3)


def test_rotation_averages_need_directions():
    signals = Signals.on_meshes([np.zeros(220)] * 2, UNSEEN[:2])
    model = GCGPClassifier(Radial([0.0, 0.1]), kernel=PatchKernel(rotation_average=True))
    with pytest.raises(ValueError, match=r"rotation_average=True: Radial.* has no equally spaced directions"):
        model.fit(signals, [0, 1])
