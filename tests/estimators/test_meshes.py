"""Classifying meshes from end to end: what moves and renumbers a mesh changes no prediction."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from sklearn.pipeline import make_pipeline

import gcgp
from gcgp import GCGPClassifier, GeometryVectors, Mesh, Signals, articulated_bodies
from gcgp.patches import Convolution
from gcgp.selection import term_specs as assembly
from gcgp.selection.term_specs import TermSpec
from gcgp.weighting import Polar, Radial

BODIES = articulated_bodies(persons=3, poses=4, vertices=220, random_state=1)
LEARNED = np.flatnonzero(BODIES.poses < 3)
UNSEEN = [BODIES.meshes[n] for n in np.flatnonzero(BODIES.poses == 3)]
WEIGHTINGS = {
    "radial": "auto",
    "16 rays": "polar",
    "angles": Polar([0.1, 0.2], 6, 0.06),
}


@pytest.fixture(scope="module", params=WEIGHTINGS)
def model(request):
    classifier = GCGPClassifier(WEIGHTINGS[request.param], n_inducing=60, progress=False)
    pipeline = make_pipeline(GeometryVectors(eigenpairs=40), classifier)
    return pipeline.fit([BODIES.meshes[n] for n in LEARNED], BODIES.persons[LEARNED])


def renumbered(mesh, random):
    order = random.permutation(len(mesh.vertices))
    faces = np.argsort(order)[mesh.faces][random.permutation(len(mesh.faces))]
    turned = [np.roll(face, random.integers(3)) for face in faces]
    return Mesh(mesh.vertices[order], turned), order


def test_persons_are_told_apart(model):
    assert model.score(UNSEEN, np.arange(3)) == 1.0


def test_moving_and_renumbering_a_mesh_changes_no_prediction(model):
    random = np.random.default_rng(0)
    moved = []
    for mesh in UNSEEN:
        other, _ = renumbered(mesh, random)
        turned = Rotation.random(random_state=1).apply(np.array(other.vertices))
        moved.append(Mesh(turned + np.array([3.0, -1.0, 0.5]), other.faces))
    np.testing.assert_allclose(model.predict_proba(moved), model.predict_proba(UNSEEN), atol=1e-4)


def test_duplicate_faces_change_no_prediction(model):
    repeated = [Mesh(mesh.vertices, np.concatenate([mesh.faces, mesh.faces[:20, ::-1]])) for mesh in UNSEEN]
    np.testing.assert_allclose(model.predict_proba(repeated), model.predict_proba(UNSEEN), atol=1e-6)


def test_evidence_moves_with_its_vertex(model):
    describe, classify = model[:-1], model[-1]
    other, order = renumbered(UNSEEN[0], np.random.default_rng(1))
    mean, std = classify.evidence(describe.transform(UNSEEN[:1]))[0]
    moved_mean, moved_std = classify.evidence(describe.transform([other]))[0]
    np.testing.assert_allclose(moved_mean, mean[order], atol=1e-3 * np.abs(mean).max())
    np.testing.assert_allclose(moved_std, std[order], atol=1e-2 * std.max())
    latent = classify.predict_latent(describe.transform(UNSEEN[:1]))[0]
    np.testing.assert_allclose(mean.sum(axis=0), latent, rtol=1e-3, atol=5e-3)  # in float32


def test_a_pipeline_comes_back_from_its_file(model, tmp_path):
    gcgp.save(model, tmp_path / "model.gcgp")
    again = gcgp.load(tmp_path / "model.gcgp")
    assert np.array_equal(again.predict_proba(UNSEEN), model.predict_proba(UNSEEN))


def test_meshes_of_any_size_can_be_predicted(model):
    coarse = [gcgp.decimate(mesh, 150) for mesh in UNSEEN]
    assert model.predict_proba(coarse).shape == (3, 3)


def test_pooling_needs_directions():
    signals = Signals.on_meshes([np.zeros(220)] * 2, UNSEEN[:2])
    model = GCGPClassifier(Radial([0.0, 0.1]), pool_rotations=True, progress=False)
    with pytest.raises(ValueError, match="pool_rotations=True: Radial"):
        model.fit(signals, [0, 1])


@pytest.mark.parametrize("option", ["area_weighted", "pool_rotations"])
def test_unknown_values_of_options_are_named(option):
    with pytest.raises(ValueError, match=f"{option}='sometimes'"):
        GCGPClassifier(**{option: "sometimes"}).fit(np.zeros((2, 4, 4)), [0, 1])


def test_meshes_without_values_need_a_descriptor():
    with pytest.raises(ValueError, match="descriptor"):
        GCGPClassifier().fit(UNSEEN, [0, 1, 2])


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_patches_to_try_on_are_drawn_and_stand_for_all(aggregate, monkeypatch):
    monkeypatch.setattr(assembly, "TRIAL_PATCHES", 50)
    signals = GeometryVectors(eigenpairs=40).fit_transform(UNSEEN)
    convolution = Convolution(Radial([0.0, 0.1], 0.05), area_weighted=True, dtype=torch.float64)
    with torch.no_grad():
        whole = convolution.patches(signals)
    made = TermSpec.make(convolution, signals, 1, "rbf", aggregate, None, False, 1, np.random.default_rng(0))
    assert made.trial.offsets.tolist() == [0, 50, 100, 150]
    torch.testing.assert_close(made.trial.values, whole.values[made.trial.vertices])
    per_signal = 220 if aggregate == "sum" else 1
    expected = whole.multiplicity[made.trial.vertices] * per_signal / 50
    torch.testing.assert_close(made.trial.multiplicity, expected)
