"""Evidence of vertices: its shape, and that it sums to the latent function."""

import numpy as np
import pytest

from evidence_checks import check_evidence_sums
from example_signals import bars, rings_and_paths
from gcgp import GCGPClassifier, GCGPRegressor, Patch, PatchKernel, Runtime
from gcgp.estimators.evidence import VertexEvidence
from gcgp.weighting import Box

FAST = {"n_inducing": 25, "kernel": PatchKernel(lengthscale=0.5, variance=10.0)}
FLOAT64 = Runtime(dtype="float64")


@pytest.fixture(scope="module")
def images_and_labels():
    return bars()


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_evidence_sums_to_the_latent_mean(dtype, tolerance, aggregate, images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(runtime=Runtime(dtype=dtype), aggregate=aggregate, **FAST)
    check_evidence_sums(model.fit(images[:40], labels[:40]), images[40:], tolerance)


def test_evidence_of_graphs_has_one_row_per_vertex():
    signals, labels = rings_and_paths()
    model = GCGPClassifier(runtime=FLOAT64, **FAST).fit(signals, labels)
    evidence = model.evidence(signals[:7])
    assert len(evidence) == 7
    mean, std = evidence[-1]
    assert mean.shape == std.shape == (signals.vertex_counts[6], 2)
    check_evidence_sums(model, signals, 1e-10)


def test_evidence_is_zero_where_a_vertex_has_no_patch(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(Box(3), patch=Patch(position=False), **FAST).fit(images, labels)
    mean, std = model.evidence(images[:1])[0]
    border = np.ones((9, 9), dtype=bool)
    border[1:-1, 1:-1] = False
    assert (mean[border] == 0).all()
    assert (std[border] == 0).all()
    assert (mean[~border] != 0).any()


def test_evidence_of_a_regressor_sums_to_the_latent_mean():
    images = np.random.default_rng(0).random((40, 8, 8))
    model = GCGPRegressor(runtime=FLOAT64, **FAST).fit(images, images.mean(axis=(1, 2)))
    check_evidence_sums(model, images[:5], 1e-9)
    mean, std = model.evidence(images[:2])[1]
    assert mean.shape == std.shape == (8, 8, 1)


def test_evidence_of_an_image_has_the_shape_of_the_image():
    rows, columns = 2, 3
    mean = np.arange(24.0).reshape(12, 2)
    evidence = VertexEvidence(mean, mean + 0.5, np.array([0, 6, 12]), [(rows, columns)] * 2)
    for signal in (1, -1):
        image_mean, image_std = evidence[signal]
        assert image_mean.shape == image_std.shape == (rows, columns, 2)
        assert image_mean[1, 2].tolist() == mean[6 + 1 * columns + 2].tolist()
    with pytest.raises(IndexError):
        evidence[2]
    assert len(list(evidence)) == len(evidence) == 2
