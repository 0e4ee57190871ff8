"""Evidence and latent functions through a pipeline of descriptor and model."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import gcgp
from gcgp import GCGPClassifier, GCGPRegressor, GeometryVectors, PatchKernel, articulated_bodies

BODIES = articulated_bodies(persons=2, poses=3, vertices=200, random_state=1)
OPTIONS = {"n_inducing": 20, "kernel": PatchKernel(lengthscale=1.0, variance=10.0)}


@pytest.fixture(scope="module", params=[GCGPClassifier, GCGPRegressor], ids=lambda family: family.__name__)
def pipeline(request):
    descriptor, estimator = GeometryVectors(eigenpairs=20), request.param(**OPTIONS)
    return make_pipeline(descriptor, estimator).fit(BODIES.meshes[:5], BODIES.persons[:5])


def test_evidence_through_a_pipeline_is_that_of_its_steps(pipeline):
    meshes = BODIES.meshes[3:]
    descriptor, estimator = pipeline
    expected = estimator.evidence(descriptor.transform(meshes))
    evidence = gcgp.evidence(pipeline, meshes)
    np.testing.assert_array_equal(evidence.mean, expected.mean)
    np.testing.assert_array_equal(evidence.std, expected.std)
    assert [evidence[n][0].shape[0] for n in range(3)] == [len(mesh.vertices) for mesh in meshes]


def test_latent_functions_through_a_pipeline_are_those_of_its_steps(pipeline):
    meshes = BODIES.meshes[3:]
    descriptor, estimator = pipeline
    expected = estimator.predict_latent(descriptor.transform(meshes), return_std=True)
    for ours, theirs in zip(gcgp.predict_latent(pipeline, meshes, return_std=True), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(gcgp.predict_latent(pipeline, meshes), expected[0])


def test_models_and_pipelines_of_one_step_need_no_transformation(pipeline):
    descriptor, estimator = pipeline
    signals = descriptor.transform(BODIES.meshes[:2])
    expected = estimator.predict_latent(signals)
    for model in (estimator, pipeline[1:], make_pipeline("passthrough", estimator)):
        np.testing.assert_array_equal(gcgp.predict_latent(model, signals), expected)
        np.testing.assert_array_equal(gcgp.evidence(model, signals).mean, estimator.evidence(signals).mean)
