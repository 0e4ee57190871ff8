"""Every bad input is a ValueError that names the item, the field and the value, before any long work."""

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel

from gcgp import GCGPClassifier, GCGPRegressor, Signals
from gcgp.estimators.validation import as_bytes

IMAGES = np.random.default_rng(0).random((8, 6, 6))
LABELS = [0, 1] * 4
FAST = {"n_inducing": 5, "progress": False, "variance": 1.0, "lengthscale": 1.0, "position": False}


def graphs(count=8, channels=1):
    values = np.random.default_rng(0).random((count, 4, channels))
    return Signals.on_graph(values, [[0, 1], [1, 2], [2, 3]])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (IMAGES, LABELS[:7], "y: 7 labels for 8 signals"),
        (IMAGES, [1] * 8, r"one class only \(all 8 labels are 1\); need two"),
        (IMAGES, [0, 1, 0, 1, 0, 1, 0, np.nan], r"y\[7\] is nan"),
        (IMAGES, [[0], [1]] * 4, r"y\[0\] is \[0\], which is not hashable"),
        (IMAGES, np.zeros((8, 2)), r"y: expected one label per signal, got shape \(8, 2\)"),
        (IMAGES[0], LABELS, r"got a table of shape \(6, 6\)"),
        (
            np.where(np.arange(36).reshape(6, 6) == 9, np.nan, IMAGES),
            LABELS,
            r"signal 0: values at \[9, 0\] is nan",
        ),
        (IMAGES[:0], [], r"0 signals"),
        ([], [], r"0 signals"),
        ("images", LABELS, "expected Signals or an array of images, got str"),
        (IMAGES[:, :, :0], LABELS, "signal 0"),
    ],
)
def test_bad_training_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**FAST).fit(X, y)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"weighting": "polr"}, "weighting='polr' is not known; expected one of 'auto', 'polar'"),
        ({"weighting": []}, r"weighting=\[\]: expected one weighting at least"),
        ({"chart": "geodesic"}, "kind='geodesic' is not known"),
        ({"kernel": "gauss"}, "kernel='gauss' is not known"),
        ({"aggregate": "max"}, "aggregate='max' is not known; expected one of 'sum', 'mean'"),
        ({"inducing": "grid"}, "inducing='grid' is not known"),
        ({"dtype": "float16"}, "dtype='float16' is not known"),
        ({"n_inducing": 0}, "n_inducing=0 must be a whole number of at least 1"),
        ({"n_inducing": 2.5}, "n_inducing=2.5 must be a whole number"),
        ({"lengthscale": -1.0}, "lengthscale=-1.0: expected 'auto' or a positive number"),
        ({"lengthscale": 1e300, "dtype": "float32"}, r"lengthscale=1e\+300: expected a number from .* to"),
        ({"position": 1e300}, r"position=1e\+300: expected a number from .*dtype='auto'"),
        ({"lengthscale": 1e-300}, "lengthscale=1e-300: expected a number from"),
        ({"variance": 0}, "variance=0: expected 'auto' or a positive number"),
        ({"alpha": "big"}, "alpha='big': expected 'auto' or a positive number"),
        ({"position": np.inf}, "position=inf: expected 'auto' or a positive number"),
        ({"bin_counts": "yes"}, "bin_counts='yes' is not known"),
        ({"pool_rotations": np.zeros(2)}, "pool_rotations=array.* is not known"),
        ({"aggregate": np.zeros(3)}, "aggregate=array.* is not known"),
        ({"kernel": np.zeros(3)}, "kernel=array.* is not known"),
        ({"likelihood": np.zeros(3)}, "likelihood=array.* is not known"),
        ({"variance": 10**400}, "variance=10+: expected 'auto' or a positive number"),
        ({"device": "meta"}, "device='meta': tensors of this device hold no numbers"),
        ({"vertex_weights": np.zeros(36)}, "vertex_weights are all 0: no vertex would count"),
        ({"vertex_weights": [1.0] * 35 + [-1e300]}, r"vertex_weights\[35\] is -1e\+300; it must be within"),
        ({"vertex_weights": "x"}, "vertex_weights must be real numbers, got dtype <U1"),
        ({"kernel": RBFKernel(ard_num_dims=100)}, "RBFKernel has ard_num_dims=100, but there are 32 columns"),
        (
            {"kernel": ScaleKernel(RBFKernel(active_dims=[0, 1000]))},
            r"RBFKernel has active_dims \[0, 1000\], but there are 32 columns, 0 to 31, and no column 1000",
        ),
        ({"memory_limit": "lots"}, "memory_limit='lots': expected bytes"),
        ({"device": "abacus"}, "device='abacus': torch has no such device here"),
        ({"device": "cuda:99"}, "device='cuda:99': torch has no such device here"),
        ({"vertex_weights": [1.0, 2.0]}, "signal 0: 36 patches for 2 vertex_weights"),
        ({"vertex_weights": [np.nan] * 36}, r"vertex_weights\[0\] is nan"),
    ],
)
def test_bad_options(option, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**(FAST | option)).fit(IMAGES, LABELS)


def test_what_to_learn_is_named():
    with pytest.raises(TypeError, match="learn=3: expected True, False, a name, or a list of names"):
        GCGPClassifier(learn=3, **FAST).fit(IMAGES, LABELS)


def test_labels_that_are_records():
    with pytest.raises(ValueError, match="y: expected one label per signal, got records of dtype"):
        GCGPClassifier(**FAST).fit(IMAGES, np.zeros(8, dtype=[("a", "f8"), ("b", "i4")]))


def test_box_larger_than_the_image():
    with pytest.raises(ValueError, match="no vertex of any signal has a complete patch"):
        GCGPClassifier("box", **FAST).fit(IMAGES[:, :4, :4], LABELS)


def test_location_of_graphs_without_coordinates():
    with pytest.raises(ValueError, match="position=True needs domains with coordinates"):
        GCGPClassifier(**(FAST | {"position": True})).fit(graphs(), LABELS)


def test_polar_bins_of_graphs_without_coordinates():
    with pytest.raises(ValueError, match="'theta' needs graphs with coordinates"):
        GCGPClassifier("polar", **FAST).fit(graphs(), LABELS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 6, 6, 3)), "X: 3 channels, but training had 1"),
        (graphs(), "X: signals on graphs, but training had grids"),
        (np.full((1, 6, 6), np.inf), r"signal 0: values at \[0, 0\] is inf"),
    ],
)
def test_bad_data_to_predict(X, message):
    model = GCGPClassifier(**FAST).fit(IMAGES, LABELS)
    for method in (model.predict, model.predict_proba, model.predict_latent, model.evidence):
        with pytest.raises(ValueError, match=message):
            method(X)


@pytest.mark.parametrize("option", [{"position": 2.0}, {"vertex_weights": np.ones(36)}])
def test_image_size_where_it_matters(option):
    model = GCGPClassifier(**(FAST | option)).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match=r"image 0 has shape \[7, 6\], but training had \[6, 6\]"):
        model.predict(np.zeros((2, 7, 6)))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0] * 7, "y: 7 labels for 8 signals"),
        ([1.0] * 7 + [np.inf], r"y\[7\] is inf; it must be finite"),
        (["a"] * 8, "targets must be real numbers"),
    ],
)
def test_bad_targets(y, message):
    with pytest.raises(ValueError, match=message):
        GCGPRegressor(**FAST).fit(IMAGES, y)


def test_bad_noise():
    with pytest.raises(ValueError, match="noise=-1: expected 'auto' or a positive number"):
        GCGPRegressor(noise=-1).fit(IMAGES, np.arange(8))


@pytest.mark.parametrize(
    ("text", "expected"), [(5, 5), ("12", 12), ("1.5 KB", 1500), ("2mb", 2_000_000), ("1 GiB", 2**30)]
)
def test_memory_limits(text, expected):
    assert as_bytes(text) == expected


@pytest.mark.parametrize("text", [0, -1, "0 MB", "MB", True, None, 1.5, "5 TB"])
def test_bad_memory_limits(text):
    with pytest.raises(ValueError, match="memory_limit"):
        as_bytes(text)
