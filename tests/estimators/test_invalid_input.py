"""Invalid signals, labels and options are errors that name the signal or option and its value."""

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel

from gcgp import (
    SVGP,
    Aggregate,
    Gaussian,
    GCGPClassifier,
    GCGPRegressor,
    Learn,
    Patch,
    PatchKernel,
    Refined,
    RobustMax,
    Runtime,
    Signals,
)

IMAGES = np.random.default_rng(0).random((8, 6, 6))
LABELS = [0, 1] * 4
FAST = {"n_inducing": 5, "kernel": PatchKernel(lengthscale=1.0, variance=1.0), "patch": Patch(position=False)}


def graphs(count=8, channels=1):
    values = np.random.default_rng(0).random((count, 4, channels))
    return Signals.on_graph(values, [[0, 1], [1, 2], [2, 3]])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (IMAGES, LABELS[:7], "y: 7 labels for 8 signals"),
        (IMAGES, [1] * 8, r"one class only \(all 8 labels are 1\); need at least two"),
        (IMAGES, [0, 1, 0, 1, 0, 1, 0, np.nan], r"y\[7\] is nan"),
        (IMAGES, [[0], [1]] * 4, r"y\[0\] is \[0\], which is not hashable"),
        (IMAGES, np.zeros((8, 2)), r"y: expected one label per signal, got shape \(8, 2\)"),
        (
            IMAGES,
            np.zeros(8, dtype=[("a", "f8"), ("b", "i4")]),
            "y: expected one label per signal, got records of dtype",
        ),
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
def test_invalid_training_data(X, y, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**FAST).fit(X, y)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"weighting": "polr"}, "weighting='polr' is not known; expected one of 'auto', 'polar'"),
        ({"weighting": []}, r"weighting=\[\]: expected at least one weighting"),
        ({"chart": "geodesic"}, "kind='geodesic' is not known"),
        ({"kernel": "gauss"}, "kernel='gauss' is not known"),
        ({"kernel": np.zeros(3)}, "kernel=array.* is not known"),
        ({"kernel": RBFKernel(ard_num_dims=100)}, "RBFKernel has ard_num_dims=100, but there are 9 columns"),
        (
            {"kernel": ScaleKernel(RBFKernel(active_dims=[0, 1000]))},
            r"RBFKernel has active_dims \[0, 1000\], but there are 9 columns, 0 to 8, and no column 1000",
        ),
        ({"aggregate": "max"}, "aggregate='max' is not known; expected one of 'auto', 'sum', 'mean'"),
        ({"aggregate": np.zeros(3)}, "aggregate=array.* is not known"),
        ({"inducing": "grid"}, "inducing='grid' is not known"),
        ({"n_inducing": 0}, "n_inducing=0 must be an integer of at least 1"),
        ({"n_inducing": 2.5}, "n_inducing=2.5 must be an integer"),
        ({"patch": "no"}, "patch='no' is not known"),
        ({"likelihood": "probit"}, "likelihood='probit' is not known; expected one of 'dirichlet'"),
        ({"likelihood": np.zeros(3)}, "likelihood=array.* is not known"),
        ({"inference": "exact"}, "inference='exact' is not known; expected one of 'closed-form', 'refined'"),
        ({"inference": None}, "inference=None is not known"),
        ({"runtime": "fast"}, "runtime='fast': expected a Runtime, or None for the defaults"),
    ],
)
def test_invalid_arguments(option, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**(FAST | option)).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengthscale": -1.0}, "lengthscale=-1.0: expected 'auto' or a positive number"),
        ({"lengthscale": 1e-300}, "lengthscale=1e-300: expected a number from"),
        ({"variance": 0}, "variance=0: expected 'auto' or a positive number"),
        ({"variance": 10**400}, "variance=10+: expected 'auto' or a positive number"),
        ({"rotation_average": np.zeros(2)}, "rotation_average=array.* is not known"),
        ({"rotation_average": "sometimes"}, "rotation_average='sometimes' is not known"),
    ],
)
def test_invalid_kernel_options(options, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(kernel=PatchKernel(**options)).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": np.inf}, "position=inf: expected 'auto' or a positive number"),
        ({"position": 1e300}, r"position=1e\+300: expected a number from .*dtype='auto'"),
        ({"bin_counts": "yes"}, "bin_counts='yes' is not known"),
        ({"area_weighted": "sometimes"}, "area_weighted='sometimes' is not known"),
    ],
)
def test_invalid_patch_options(options, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(patch=Patch(**options)).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(36), "vertex_weights are all 0: no vertex would count"),
        ([1.0] * 35 + [-1e300], r"vertex_weights\[35\] is -1e\+300; it must be within"),
        ("x", "vertex_weights must be real numbers, got dtype <U1"),
        ([1.0, 2.0], "signal 0: 36 patches for 2 vertex_weights"),
        ([np.nan] * 36, r"vertex_weights\[0\] is nan"),
    ],
)
def test_invalid_vertex_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(aggregate=Aggregate(vertex_weights=weights), **FAST).fit(IMAGES, LABELS)


def test_vertex_weights_need_one_domain():
    rings = Signals.from_graphs([np.ones(3), np.ones(4)], [[[0, 1], [1, 2]]] * 2)
    model = GCGPClassifier(aggregate=Aggregate(vertex_weights=[1.0] * 3), **FAST)
    with pytest.raises(ValueError, match="signal 1: not on the domain of signal 0, which vertex_weights"):
        model.fit(rings, [0, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype='float16' is not known"),
        ({"memory_limit": "lots"}, "memory_limit='lots': expected bytes"),
        ({"device": "abacus"}, "device='abacus': torch has no such device here"),
        ({"device": "cuda:99"}, "device='cuda:99': torch has no such device here"),
        ({"device": "meta"}, "device='meta': tensors on this device have no values"),
        ({"checkpoint": "no/such/folder/run"}, "checkpoint='no/such/folder/run': the folder does not exist"),
    ],
)
def test_invalid_runtime_options(options, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(runtime=Runtime(**options), **FAST).fit(IMAGES, LABELS)


def test_a_lengthscale_must_be_representable_in_the_dtype():
    model = GCGPClassifier(kernel=PatchKernel(lengthscale=1e300), runtime=Runtime(dtype="float32"))
    with pytest.raises(ValueError, match=r"lengthscale=1e\+300: expected a number from .*dtype='float32'"):
        model.fit(IMAGES, LABELS)


def test_a_checkpoint_needs_an_integer_seed(tmp_path):
    model = GCGPClassifier(runtime=Runtime(checkpoint=tmp_path / "run"), random_state=None)
    with pytest.raises(ValueError, match="random_state=None: with a checkpoint it must be an integer"):
        model.fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("inference", "options", "message"),
    [
        ("svgp", {"batch_size": 0}, "batch_size=0 must be an integer of at least 1"),
        ("svgp", {"epochs": 1.5}, "epochs=1.5 must be an integer of at least 1"),
        ("svgp", {"learning_rate": -1.0}, r"learning_rate=-1\.0: expected a positive number"),
        ("svgp", {"learning_rate": "auto"}, "learning_rate='auto': expected a positive number"),
        ("natural-gradient", {"objective": "elbo"}, "objective='elbo' is not known"),
    ],
)
def test_invalid_inference_options(inference, options, message):
    nested = {f"inference__{name}": value for name, value in options.items()}
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(inference=inference).set_params(**nested).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("likelihood", "inference", "options", "message"),
    [
        ("dirichlet", "closed-form", {"alpha": "big"}, "alpha='big': expected 'auto' or a positive number"),
        ("softmax", "svgp", {"draws": 0}, "draws=0 must be an integer of at least 1"),
        ("robust-max", "svgp", {"epsilon": 2.0}, r"epsilon=2\.0: expected a number between 0 and 1"),
        ("anchored", "natural-gradient", {"weight": -1}, "weight=-1: expected 'auto' or a positive number"),
    ],
)
def test_invalid_likelihood_options(likelihood, inference, options, message):
    model = GCGPClassifier(likelihood=likelihood, inference=inference)
    nested = {f"likelihood__{name}": value for name, value in options.items()}
    with pytest.raises(ValueError, match=message):
        model.set_params(**nested).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("likelihood", "inference", "supported"),
    [
        ("softmax", "closed-form", r"\['dirichlet'\]"),
        (RobustMax(), "refined", r"\['dirichlet'\]"),
        ("dirichlet", "natural-gradient", r"\['anchored', 'softmax', 'robust-max'\]"),
        ("anchored", SVGP(), r"\['softmax', 'robust-max'\]"),
        (Gaussian(), "closed-form", r"\['dirichlet'\]"),
    ],
)
def test_likelihoods_that_the_method_does_not_support_are_listed(likelihood, inference, supported):
    model = GCGPClassifier(likelihood=likelihood, inference=inference)
    with pytest.raises(ValueError, match=f"likelihood=.* does not work with inference=.*one of {supported}"):
        model.fit(IMAGES, LABELS)


@pytest.mark.parametrize("inference", ["refined", Refined()])
def test_refinement_does_not_support_regression(inference):
    methods = r"\['closed-form', 'natural-gradient', 'svgp'\]"
    with pytest.raises(ValueError, match=rf"inference=Refined\(\) does not support regression.*{methods}"):
        GCGPRegressor(inference=inference).fit(IMAGES, LABELS)


def test_learning_options_without_effect_are_refused():
    model = GCGPClassifier(learn=Learn(max_iter=3), inference="svgp")
    with pytest.raises(
        ValueError, match=r"learn=Learn\(max_iter=3\): max_iter has no effect with inference=SVGP"
    ):
        model.fit(IMAGES, LABELS)


def test_what_to_learn_must_be_named():
    with pytest.raises(TypeError, match="learn=3: expected True, None, a name, or a list of names"):
        GCGPClassifier(learn=3, **FAST).fit(IMAGES, LABELS)


def test_a_box_larger_than_the_image():
    with pytest.raises(ValueError, match="no vertex of any signal has a complete patch"):
        GCGPClassifier("box", **FAST).fit(IMAGES[:, :4, :4], LABELS)


def test_position_needs_coordinates():
    model = GCGPClassifier(**(FAST | {"patch": Patch(position=True)}))
    with pytest.raises(ValueError, match="position=True needs domains with coordinates"):
        model.fit(graphs(), LABELS)


def test_polar_bins_need_coordinates():
    with pytest.raises(ValueError, match="'theta' needs graphs with coordinates"):
        GCGPClassifier("polar", **FAST).fit(graphs(), LABELS)


@pytest.fixture(scope="module")
def model():
    return GCGPClassifier(**FAST).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 6, 6, 3)), "X: 3 channels, but training had 1"),
        (graphs(), "X: signals on graphs, but training had grids"),
        (np.full((1, 6, 6), np.inf), r"signal 0: values at \[0, 0\] is inf"),
    ],
)
def test_invalid_data_to_predict(X, message, model):
    for method in (model.predict, model.predict_proba, model.predict_latent, model.evidence):
        with pytest.raises(ValueError, match=message):
            method(X)


@pytest.mark.parametrize(
    "option", [{"patch": Patch(position=2.0)}, {"aggregate": Aggregate(vertex_weights=np.ones(36))}], ids=str
)
def test_images_must_have_the_size_of_training_where_vertices_are_distinguished(option):
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
def test_invalid_targets(y, message):
    with pytest.raises(ValueError, match=message):
        GCGPRegressor(**FAST).fit(IMAGES, y)


def test_invalid_noise():
    with pytest.raises(ValueError, match="noise=-1: expected 'auto' or a positive number"):
        GCGPRegressor(likelihood=Gaussian(noise=-1)).fit(IMAGES, np.arange(8))
