"""The choice of a descriptor and of the scale of meshes."""

import warnings

import numpy as np
import pytest

import gcgp.descriptors.base as descriptors
from gcgp import (
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    Radial,
    SelectionWarning,
    Signals,
    WaveKernelSignature,
)
from tests.mesh_shapes import bumpy_sphere

FAST = {"search": "fast", "n_inducing": 30}
BOTH_SCALES = [GeometryVectors(eigenpairs=20, scale="area"), GeometryVectors(eigenpairs=20)]


def spheres_of_two_sizes(count=12, seed=0):
    """Spheres with bumps: the class is the size."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    shapes = [bumpy_sphere(1, seed + i) for i in range(count)]
    factors = (1 + 0.3 * labels) * np.exp(0.02 * rng.normal(size=count))
    return [mesh.scaled(factor) for mesh, factor in zip(shapes, factors, strict=True)], labels


def spheres_of_any_size(count=12, seed=0):
    """Spheres with small or large bumps, of sizes that have nothing to do with the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    shapes = [bumpy_sphere(1, seed + i, 0.1 + 0.4 * label) for i, label in enumerate(labels)]
    return [
        mesh.scaled(factor) for mesh, factor in zip(shapes, rng.uniform(0.5, 2, count), strict=True)
    ], labels


def test_size_counts_if_it_predicts_labels():
    meshes, labels = spheres_of_two_sizes()
    model = GCGPClassifier(descriptor=BOTH_SCALES, **FAST).fit(meshes, labels)
    assert model.descriptor_.scale is None
    unseen, truth = spheres_of_two_sizes(seed=20)
    assert model.score(unseen, truth) == 1.0
    regressor = GCGPRegressor(descriptor=BOTH_SCALES, **FAST).fit(meshes, [mesh.size for mesh in meshes])
    assert regressor.descriptor_.scale is None


def test_size_is_removed_if_it_is_a_nuisance():
    meshes, labels = spheres_of_any_size()
    model = GCGPClassifier(descriptor=BOTH_SCALES[::-1], **FAST).fit(meshes, labels)
    assert model.descriptor_.scale == "area"


def test_all_candidates_are_recorded_and_each_spectrum_is_computed_once(monkeypatch):
    computed = []
    original = descriptors.laplace_beltrami
    monkeypatch.setattr(
        descriptors, "laplace_beltrami", lambda mesh, n: computed.append(n) or original(mesh, n)
    )
    meshes, labels = spheres_of_two_sizes()
    model = GCGPClassifier(**FAST).fit(meshes, labels)
    assert len(computed) == len(meshes)
    table = model.search_.to_pandas()
    compared = table[table["rung"] == 0]
    assert len(compared) == len(set(compared["descriptor"])) == 6
    assert set(table[table["rung"] > 0]["descriptor"]) == {repr(model.descriptor_)}
    assert model.search_.rows[0]["descriptor"] == "GeometryVectors(scale='area')"
    assert np.isfinite(table["loss"]).all()


def test_one_mesh_per_class_or_no_search_takes_the_default():
    meshes, labels = spheres_of_two_sizes()
    with pytest.warns(SelectionWarning, match="1 training signals"):
        model = GCGPClassifier(**FAST).fit(meshes[:2], labels[:2])
    assert repr(model.descriptor_) == "GeometryVectors(scale='area')"
    model = GCGPClassifier(search=None, n_inducing=30).fit(meshes, labels)
    assert repr(model.descriptor_) == "GeometryVectors(scale='area')"
    assert not model.search_.rows


def test_what_the_user_specifies_is_not_searched():
    meshes, labels = spheres_of_two_sizes()
    given = WaveKernelSignature(8, eigenpairs=20, scale="area")
    model = GCGPClassifier(descriptor=given, **FAST).fit(meshes, labels)
    assert repr(model.descriptor_) == repr(given)
    assert model.descriptor_ is not given  # a clone is fitted
    assert not hasattr(given, "mean_")
    assert "descriptor" not in model.search_.rows[0]
    own_radii = GCGPClassifier(Radial([0.0, 0.3]), **FAST).fit(meshes, labels)
    assert {row["descriptor"] for row in own_radii.search_.rows} == {
        "GeometryVectors()",
        "WaveKernelSignature()",
        "HeatKernelSignature()",
    }


def test_the_order_of_meshes_does_not_matter():
    meshes, labels = spheres_of_two_sizes()
    order = np.random.default_rng(0).permutation(len(meshes))
    first = GCGPClassifier(**FAST).fit(meshes, labels)
    second = GCGPClassifier(**FAST).fit([meshes[i] for i in order], labels[order])
    assert repr(first.descriptor_) == repr(second.descriptor_)
    np.testing.assert_allclose(first.predict_proba(meshes), second.predict_proba(meshes), atol=0.02)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("heat", "descriptor='heat' is not known"),
        (None, "descriptor=None is not known"),
        ([], r"descriptor=\[\]: expected at least one"),
        ([GeometryVectors(), 3], "descriptor=3 is not known"),
        (GeometryVectors(0), "n_vectors=0"),
    ],
)
def test_invalid_options_are_named(option, message):
    meshes, labels = spheres_of_two_sizes(4)
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(descriptor=option).fit(meshes, labels)


def test_values_and_a_descriptor_contradict_each_other():
    meshes, labels = spheres_of_two_sizes(4)
    signals = Signals.on_meshes([mesh.vertices for mesh in meshes], meshes)
    with pytest.raises(ValueError, match="X has values already"):
        GCGPClassifier(descriptor=GeometryVectors()).fit(signals, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SelectionWarning)
        assert GCGPClassifier(n_inducing=5).fit(signals, labels).descriptor_ is None
