"""Warnings about meshes whose sizes suggest other units."""

import re

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from gcgp import GCGPClassifier, GeometryVectors, MeshUnitWarning, PatchKernel, Radial, Signals
from gcgp.mesh.mesh import Mesh
from tests.mesh_shapes import bumpy_sphere

MESHES = [bumpy_sphere(1, seed) for seed in range(6)]
LABELS = [0, 1] * 3
FIXED = {"n_inducing": 10, "kernel": PatchKernel(lengthscale=1.0, variance=10.0)}


def on_meshes(meshes):
    return Signals.on_meshes([mesh.vertices[:, :1] / mesh.size for mesh in meshes], meshes)


@pytest.fixture(scope="module")
def model():
    return GCGPClassifier(Radial([0.0, 0.5]), **FIXED).fit(on_meshes(MESHES), LABELS)


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_a_mesh_to_predict_in_other_units_is_named_with_both_sizes(model, factor):
    sizes = [mesh.size for mesh in MESHES]
    mixed = [MESHES[0], Mesh(MESHES[1].vertices * factor, MESHES[1].faces, name="scan 7")]
    message = (
        f"X[1], mesh 'scan 7', has size {factor * MESHES[1].size:.3g}, but those of the training meshes are "
        f"{min(sizes):.3g} to {max(sizes):.3g}"
    )
    with pytest.warns(MeshUnitWarning, match=re.escape(message)):
        model.predict_proba(on_meshes(mixed))


def test_sizes_that_differ_less_give_no_warning(model):
    model.predict(on_meshes([mesh.scaled(factor) for mesh, factor in zip(MESHES, (1, 5, 0.2), strict=False)]))


def test_a_training_mesh_in_other_units_is_named_with_both_sizes():
    mixed = [*MESHES[:-1], MESHES[-1].scaled(1000.0)]
    median = np.median([mesh.size for mesh in mixed])
    message = f"X[5] has size {mixed[5].size:.3g}, but the median of the training meshes is {median:.3g}"
    with pytest.warns(MeshUnitWarning, match=re.escape(message)):
        GCGPClassifier(Radial([0.0, 0.5]), **FIXED).fit(on_meshes(mixed), LABELS)


def test_signals_that_share_a_mesh_are_counted_one_by_one():
    signals = Signals.concatenate([on_meshes(MESHES), on_meshes([MESHES[0].scaled(100.0)])])[
        [0, 0, 1, 2, 6, 3]
    ]
    with pytest.warns(MeshUnitWarning, match=r"X\[4\] has size"):
        GCGPClassifier(Radial([0.0, 0.5]), **FIXED).fit(signals, LABELS)


def test_meshes_without_area_have_no_size_to_compare(model):
    flat = Mesh(np.zeros((3, 3)), [[0, 1, 2]])
    model.predict(Signals.on_meshes([np.zeros(3)], [flat]))


def test_the_size_does_not_matter_at_area_scale():
    mixed = [*MESHES[:-1], MESHES[-1].scaled(1000.0)]
    model = make_pipeline(GeometryVectors(eigenpairs=20, scale="area"), GCGPClassifier(**FIXED))
    expected = model.fit(MESHES, LABELS).predict_proba(MESHES)
    np.testing.assert_allclose(model.fit(mixed, LABELS).predict_proba(mixed), expected, atol=1e-4)
