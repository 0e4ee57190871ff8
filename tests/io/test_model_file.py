"""Saving and loading of estimators and pipelines."""

import copy
import errno
import pickle
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import joblib
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gcgp
from gcgp import (
    Aggregate,
    Anisotropic,
    Box,
    ClosedForm,
    GaussianMixture,
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    HeatKernelSignature,
    Mesh,
    Patch,
    PatchKernel,
    Polar,
    Radial,
    RobustMax,
    Runtime,
    Signals,
    Softmax,
    WaveKernelSignature,
    Weighting,
)
from gcgp.domain.base import Domains
from gcgp.domain.grids import Grids
from gcgp.inference.method import InferenceMethod

IMAGES = np.random.default_rng(0).random((20, 6, 6))
LABELS = np.arange(20) % 3
KERNEL = PatchKernel(lengthscale=0.4, variance=3.0)
FAST = {
    "n_inducing": 8,
    "kernel": KERNEL,
    "patch": Patch(position=False),
    "runtime": Runtime(progress=False),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gcgp"


@pytest.fixture(scope="module")
def fitted():
    return GCGPClassifier(**FAST).fit(IMAGES, LABELS)


def assert_same_predictions(loaded, model, X):
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for result, expected in zip(
        loaded.predict_latent(X, return_std=True), model.predict_latent(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(loaded.evidence(X).std, model.evidence(X).std)
    assert repr(loaded.get_params()) == repr(model.get_params())


def assert_same_after_reload(model, X, path):
    model.save(path)
    loaded = gcgp.load(path)
    assert_same_predictions(loaded, model, X)
    return loaded


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weighting": Polar([1, 2], 4), "patch": Patch(position=2.0, bin_counts=True)},
        {"weighting": Radial([0, 1])},
        {"weighting": Box(3), "aggregate": "sum", "runtime": Runtime(dtype="float32")},
        {"weighting": Anisotropic([0, 2], 4), "runtime": None},
        {"weighting": GaussianMixture([[0.0, 0.0], [1.0, 1.0]], on=["offset"], reach=2)},
        {"weighting": [Polar([1], 4), "box"]},
        {"kernel": PatchKernel("matern32", 0.4, 3.0), "patch": Patch(position=3.0)},
        {"kernel": PatchKernel(ScaleKernel(RBFKernel() + MaternKernel(nu=1.5)), 0.4, 3.0)},
        {"aggregate": Aggregate(vertex_weights=np.linspace(0.5, 1.5, 36))},
        {"inducing": "greedy", "chart": "path"},
        {"inference": "natural-gradient", "likelihood": RobustMax(0.01)},
        {"random_state": np.random.RandomState(0)},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_loaded_model_predicts_bit_for_bit_the_same(options, path):
    model = GCGPClassifier(**(FAST | options)).fit(IMAGES, LABELS)
    if "random_state" in options:
        model.set_params(random_state=None)  # a RandomState is not saved
    loaded = assert_same_after_reload(model, IMAGES, path)
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.alpha_ == model.alpha_
    assert repr(loaded.likelihood_) == repr(model.likelihood_)
    assert loaded.domain_signature_ == model.domain_signature_


def test_regressor(path):
    model = GCGPRegressor(**FAST).fit(IMAGES, IMAGES.sum(axis=(1, 2)))
    loaded = assert_same_after_reload(model, IMAGES, path)
    assert loaded.intercept_ == model.intercept_
    assert loaded.noise_ == model.noise_


@pytest.fixture(scope="module")
def learned():
    model = GCGPRegressor(Polar([1, 2], 4), **FAST, learn=gcgp.Learn(["radii"], max_iter=1))
    return model.fit(IMAGES, LABELS)


def test_learned_model(learned, path):
    loaded = assert_same_after_reload(learned, IMAGES, path)
    assert loaded.history_ == learned.history_
    for result, expected in zip(loaded.start_weightings_, learned.start_weightings_, strict=True):
        assert repr(result) == repr(expected)
    assert loaded.weightings_[0].get_params() == learned.weightings_[0].get_params()


def test_vertex_weights_that_several_terms_share(path):
    options = FAST | {"aggregate": Aggregate(vertex_weights=np.linspace(1, 2, 36).tolist())}
    model = GCGPClassifier([Polar([1], 2), Radial([1.0])], **options).fit(IMAGES, LABELS)
    assert_same_after_reload(model, IMAGES, path)


def test_graphs(path):
    values = np.random.default_rng(0).random((20, 5, 2))
    signals = Signals.on_graph(values, [[0, 1], [1, 2], [3, 4]])
    model = GCGPClassifier(**FAST).fit(signals, LABELS)
    assert_same_after_reload(model, signals, path)


@pytest.mark.parametrize(
    "labels",
    [["a", "b"], [True, False], [("x", 1), ("y", None)], [1.5, 2.5], [np.int8(1), np.int8(2)], [0, "zero"]],
    ids=str,
)
def test_labels_are_preserved(labels, path):
    model = GCGPClassifier(**FAST).fit(IMAGES, labels * 10)
    model.save(path)
    loaded = gcgp.load(path)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.classes_.dtype == model.classes_.dtype
    assert [type(label) for label in loaded.classes_] == [type(label) for label in model.classes_]


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("name", ["fitted", "learned"])
def test_pickle(name, protocol, request):
    model = request.getfixturevalue(name)
    assert_same_predictions(pickle.loads(pickle.dumps(model, protocol)), model, IMAGES)
    unfitted = pickle.loads(pickle.dumps(clone(model), protocol))
    assert repr(unfitted) == repr(model)


@pytest.mark.parametrize("name", ["fitted", "learned"])
def test_joblib(name, request, path):
    model = request.getfixturevalue(name)
    joblib.dump(model, path)
    loaded = joblib.load(path)
    assert_same_predictions(loaded, model, IMAGES)
    assert_same_after_reload(loaded, IMAGES, path)


class TestUserDefinedClasses:
    def test_weighting(self, path):
        class Ramp(Weighting):
            coordinates = ("rho",)
            bins = 1
            reach = 3.0

            def __init__(self, slope: float = 0.5, normalize: bool = True) -> None:
                super().__init__(normalize)
                self.learnable("slope", slope, positive=True)

            def forward(self, rho):
                return torch.exp(-self.slope * rho)[:, None]

        model = GCGPClassifier(Ramp(0.7), **FAST).fit(IMAGES, LABELS)
        assert_same_after_reload(model, IMAGES, path)
        Ramp.__name__ = "NotImported"
        with pytest.raises(ValueError, match=r"Weighting 'Ramp', which is not part of gcgp; import"):
            gcgp.load(path)

    def test_a_class_of_the_same_name_does_not_replace_one_of_the_library(self, path):
        model = GCGPClassifier(Polar([1], 4), **FAST).fit(IMAGES, LABELS)
        own = type("Polar", (Polar,), {"__module__": "elsewhere"})
        for family in (Polar, own):
            model.weighting = family([1], 4)
            model.fit(IMAGES, LABELS).save(path)
            loaded = gcgp.load(path)
            assert type(loaded.weighting) is family
            assert type(loaded.weightings_[0]) is family

    def test_two_classes_of_one_name_are_distinguished_by_their_modules(self, path):
        families = [type("Ring", (Radial,), {"__module__": name}) for name in ("one", "two")]
        for family in families:
            GCGPClassifier(family([0, 1]), **FAST).fit(IMAGES, LABELS).save(path)
            assert type(gcgp.load(path).weighting) is family

    def test_a_class_that_has_moved_is_used_with_a_warning(self, path):
        family = type("Moved", (Radial,), {"__module__": "before"})
        GCGPClassifier(family([0, 1]), **FAST).fit(IMAGES, LABELS).save(path)
        family.__module__ = "after"
        with pytest.warns(UserWarning, match=r"defined in before\.Moved .* after\.Moved is used"):
            assert type(gcgp.load(path).weighting) is family

    def test_domain(self, path, monkeypatch):
        monkeypatch.setattr(Domains, "kinds", dict(Domains.kinds))

        class Torus(Grids):
            def take(self, indices):
                return Torus(self.shapes[indices])

            def signature(self, chart_kinds, fixed_vertices):
                return super().signature(chart_kinds, fixed_vertices) | {"periods": [6, 6], "kind": "flat"}

        signals = Signals.from_images(IMAGES)
        signals = replace(signals, domains=Torus(signals.domains.shapes))
        model = GCGPClassifier(**FAST).fit(signals, LABELS)
        loaded = assert_same_after_reload(model, signals, path)
        assert loaded.domain_ == "Torus"
        assert loaded.domain_signature_["periods"] == [6, 6]
        del Domains.kinds["Torus"]
        with pytest.raises(ValueError, match=r"domain_ = 'Torus': .*import the module that defines"):
            gcgp.load(path)

    def test_likelihood_and_inference_method(self, path):
        @dataclass(eq=False, repr=False)
        class Tempered(Softmax):
            temperature: float = 2.0
            name = "softmax"

            def probabilities(self, mean, variance):
                return super().probabilities(mean / self.temperature, variance)

        @dataclass(eq=False, repr=False)
        class TemperedForm(InferenceMethod):
            temperature: float = 3.0
            likelihoods: ClassVar[tuple[str, ...]] = ("dirichlet",)

            def fit(self, problem):
                result = ClosedForm().fit(problem)
                return replace(result, likelihood=Tempered(temperature=self.temperature))

        model = GCGPClassifier(**FAST, inference=TemperedForm(5.0)).fit(IMAGES, LABELS)
        loaded = assert_same_after_reload(model, IMAGES, path)
        assert type(loaded.inference) is TemperedForm
        assert loaded.likelihood_.temperature == 5.0
        np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))
        Tempered.__name__ = "NotImported"
        with pytest.raises(ValueError, match=r"fitted.likelihood_: the model uses the Options 'Tempered'"):
            gcgp.load(path)


def test_the_checkpoint_is_not_saved(path, tmp_path):
    checkpoint = tmp_path / "run.checkpoint"
    model = GCGPClassifier(**(FAST | {"runtime": Runtime(checkpoint=checkpoint)})).fit(IMAGES, LABELS)
    model.save(path)
    assert gcgp.load(path).runtime.checkpoint is None
    assert model.runtime.checkpoint == checkpoint


def test_a_device_that_is_missing_becomes_the_cpu(fitted, path):
    model = copy.copy(fitted)
    model.runtime = Runtime(device="xpu:7", memory_limit="1 GB")
    with pytest.raises(ValueError, match="no such device"):
        model.predict(IMAGES)
    model.save(path)
    loaded = gcgp.load(path)
    assert repr(loaded.runtime) == repr(Runtime(memory_limit="1 GB"))
    np.testing.assert_array_equal(loaded.predict(IMAGES), fitted.predict(IMAGES))


def test_a_model_that_could_not_be_loaded_is_not_written(fitted, path):
    model = copy.deepcopy(fitted)
    model.posterior_.weights[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"model\.gcgp: the model cannot be written.*weights.*not finite"):
        model.save(path)
    assert not path.exists()


def test_saved_by_the_function(fitted, path):
    gcgp.save(fitted, path)
    np.testing.assert_array_equal(gcgp.load(path).predict_proba(IMAGES), fitted.predict_proba(IMAGES))


class TestPipelines:
    corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0], [0, 0, -1]])
    faces = np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]])
    stretch = np.random.default_rng(0).uniform(0.5, 2, (10, 1, 3))

    @pytest.fixture
    def meshes(self):
        return [Mesh(self.corners * factors, self.faces) for factors in self.stretch]

    @pytest.mark.parametrize(
        "descriptor",
        [
            GeometryVectors(3, n_splines=5, percentile=90.0),
            HeatKernelSignature(5, scale="area"),
            WaveKernelSignature(4, standardize=False),
        ],
        ids=str,
    )
    def test_a_pipeline_predicts_bit_for_bit_the_same(self, descriptor, meshes, path):
        last = GCGPClassifier(Radial([0.0, 0.5]), **FAST)
        model = Pipeline([("shape", descriptor), ("who", last)]).fit(meshes, ["a", "b"] * 5)
        gcgp.save(model, path)
        loaded = gcgp.load(path)
        assert type(loaded) is Pipeline
        assert list(loaded.named_steps) == ["shape", "who"]
        np.testing.assert_array_equal(loaded.predict_proba(meshes), model.predict_proba(meshes))
        np.testing.assert_array_equal(loaded.predict(meshes), model.predict(meshes))
        for name in (name for name in vars(descriptor) if name.endswith("_")):
            result, expected = getattr(loaded["shape"], name), getattr(descriptor, name)
            assert type(result) is type(expected)
            np.testing.assert_array_equal(result, expected)

    def test_a_user_defined_descriptor(self, meshes, path):
        class Doubled(GeometryVectors):
            def transform(self, X):
                signals = super().transform(X)
                return replace(signals, values=2 * signals.values)

        model = make_pipeline(Doubled(3), GCGPClassifier(Radial([0.5]), **FAST)).fit(meshes, [0, 1] * 5)
        gcgp.save(model, path)
        loaded = gcgp.load(path)
        assert type(loaded[0]) is Doubled
        np.testing.assert_array_equal(loaded.predict_proba(meshes), model.predict_proba(meshes))
        Doubled.__name__ = "NotImported"
        with pytest.raises(ValueError, match=r"steps\[0\]: the model uses the SpectralDescriptor 'Doubled'"):
            gcgp.load(path)

    def test_a_regressor(self, meshes, path):
        targets = [mesh.area for mesh in meshes]
        model = make_pipeline(GeometryVectors(), GCGPRegressor(Polar([0.5], 4), **FAST)).fit(meshes, targets)
        gcgp.save(model, path)
        for result, expected in zip(
            gcgp.load(path).predict(meshes, return_std=True),
            model.predict(meshes, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(result, expected)

    def test_a_single_estimator_in_a_pipeline(self, fitted, path):
        gcgp.save(make_pipeline(fitted), path)
        loaded = gcgp.load(path)
        assert type(loaded) is Pipeline
        np.testing.assert_array_equal(loaded.predict_proba(IMAGES), fitted.predict_proba(IMAGES))

    @pytest.mark.parametrize(
        ("steps", "message"),
        [
            (
                [("log", FunctionTransformer()), ("gp", GCGPClassifier(**FAST))],
                "step 'log': a FunctionTransformer cannot be written",
            ),
            ([("skip", "passthrough"), ("gp", GCGPClassifier(**FAST))], "step 'skip': a str cannot be"),
            ([("shape", GeometryVectors())], "step 'shape': a GeometryVectors cannot be .* only GCGPClass"),
        ],
        ids=["transformer", "passthrough", "descriptor"],
    )
    def test_unknown_steps(self, steps, message, path):
        with pytest.raises(ValueError, match=message):
            gcgp.save(Pipeline(steps), path)
        assert list(path.parent.iterdir()) == []

    def test_not_fitted(self, meshes, path):
        half = make_pipeline(GeometryVectors().fit(meshes), GCGPClassifier(**FAST))
        for model in (make_pipeline(GeometryVectors(), GCGPClassifier(**FAST)), half):
            with pytest.raises(NotFittedError):
                gcgp.save(model, path)
        assert list(path.parent.iterdir()) == []

    def test_other_objects(self, path):
        with pytest.raises(ValueError, match=r"^a dict cannot be written"):
            gcgp.save({}, path)


def test_not_fitted(path):
    with pytest.raises(ValueError, match="not fitted"):
        GCGPClassifier().save(path)
    assert not path.exists()


def test_a_model_that_cannot_be_written_leaves_the_old_file(fitted, path):
    class OwnKernel(RBFKernel):
        pass

    fitted.save(path)
    before = path.read_bytes()
    own_kernel = GCGPClassifier(**(FAST | {"kernel": OwnKernel()})).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match="OwnKernel cannot be written"):
        own_kernel.save(path)
    sets = GCGPClassifier(**FAST).fit(IMAGES, [frozenset({1}), frozenset({2})] * 10)
    with pytest.raises(ValueError, match="frozenset"):
        sets.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_reported_with_the_path(fitted, path, full_disk):
    with pytest.raises(OSError, match=re.escape(str(path))) as caught:
        fitted.save(path)
    assert caught.value.errno == errno.EFBIG
    assert list(path.parent.iterdir()) == []
