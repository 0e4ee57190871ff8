import errno
import json
import pickle
import re
import struct

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from safetensors.torch import save_file
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gcgp
from gcgp import (
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    HeatKernelSignature,
    Signals,
    WaveKernelSignature,
)
from gcgp.mesh.mesh import Mesh
from gcgp.weighting import Anisotropic, Box, GaussianMixture, Polar, Radial, Weighting

IMAGES = np.random.default_rng(0).random((20, 6, 6))
LABELS = np.arange(20) % 3
FAST = {"n_inducing": 8, "progress": False, "variance": 3.0, "lengthscale": 0.4, "position": False}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.gcgp"


def assert_same_after_reload(model, X, path):
    model.save(path)
    loaded = gcgp.load(path)
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    for mine, its in zip(
        model.predict_latent(X, return_std=True), loaded.predict_latent(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(mine, its)
    np.testing.assert_array_equal(loaded.evidence(X).std, model.evidence(X).std)
    assert repr(loaded.get_params()) == repr(model.get_params())
    return loaded


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weighting": Polar([1, 2], 4), "position": 2.0, "bin_counts": True},
        {"weighting": Radial([0, 1])},
        {"weighting": Box(3), "aggregate": "sum", "dtype": "float64"},
        {"weighting": Anisotropic([0, 2], 4)},
        {"weighting": GaussianMixture([[0.0, 0.0], [1.0, 1.0]], on=["offset"], reach=2)},
        {"weighting": [Polar([1], 4), "box"]},
        {"kernel": "matern32", "position": 3.0},
        {"kernel": ScaleKernel(RBFKernel() + MaternKernel(nu=1.5))},
        {"vertex_weights": np.linspace(0.5, 1.5, 36)},
        {"inducing": "greedy", "chart": "path"},
    ],
    ids=str,
)
def test_loaded_model_predicts_bit_for_bit_the_same(options, path):
    model = GCGPClassifier(**(FAST | options)).fit(IMAGES, LABELS)
    loaded = assert_same_after_reload(model, IMAGES, path)
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.alpha_ == model.alpha_


def test_regressor(path):
    model = GCGPRegressor(**FAST).fit(IMAGES, IMAGES.sum(axis=(1, 2)))
    loaded = assert_same_after_reload(model, IMAGES, path)
    assert loaded.intercept_ == model.intercept_
    assert loaded.noise_ == model.noise_


def test_vertex_weights_that_several_terms_share(path):
    data = np.random.default_rng(0).random((8, 5, 5))
    model = GCGPClassifier(
        [Polar([1], 2), Radial([1.0])], vertex_weights=np.linspace(1, 2, 25), n_inducing=5, position=False
    )
    assert_same_after_reload(model.fit(data, [0, 1] * 4), data, path)


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
def test_labels_survive(labels, path):
    model = GCGPClassifier(**FAST).fit(IMAGES, labels * 10)
    model.save(path)
    loaded = gcgp.load(path)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.classes_.dtype == model.classes_.dtype


def test_a_weighting_of_the_users_own_loads_once_it_is_defined(path):
    class Ramp(Weighting):
        coordinates = ("rho",)

        def __init__(self, slope: float = 0.5, normalize: bool = True) -> None:
            super().__init__(normalize)
            self.learnable("slope", slope, positive=True)

        bins = 1
        reach = 3.0

        def forward(self, rho):
            return torch.exp(-self.slope * rho)[:, None]

    model = GCGPClassifier(Ramp(0.7), **FAST).fit(IMAGES, LABELS)
    assert_same_after_reload(model, IMAGES, path)
    del Weighting.families["Ramp"]
    with pytest.raises(ValueError, match="weighting 'Ramp', which is not part of gcgp"):
        gcgp.load(path)


@pytest.fixture
def own_families(monkeypatch):
    monkeypatch.setattr(Weighting, "families", dict(Weighting.families))


@pytest.mark.usefixtures("own_families")
def test_a_class_of_the_same_name_does_not_replace_one_of_the_library(path):
    library = Polar
    GCGPClassifier(library([1], 4), **FAST).fit(IMAGES, LABELS).save(path)
    own = type("Polar", (Polar,), {"__module__": "elsewhere"})
    loaded = gcgp.load(path)
    assert type(loaded.weighting) is library
    assert type(loaded.features_.terms[0].convolution.weighting) is library
    GCGPClassifier(own([1], 4), **FAST).fit(IMAGES, LABELS).save(path)
    loaded = gcgp.load(path)
    assert type(loaded.weighting) is own
    assert type(loaded.features_.terms[0].convolution.weighting) is own


@pytest.mark.usefixtures("own_families")
def test_two_classes_of_one_name_are_distinguished_by_their_modules(path):
    first, second = (type("Ring", (Radial,), {"__module__": name}) for name in ("one", "two"))
    for family in (first, second):
        GCGPClassifier(family([0, 1]), **FAST).fit(IMAGES, LABELS).save(path)
        assert type(gcgp.load(path).weighting) is family


@pytest.mark.usefixtures("own_families")
def test_a_class_that_has_moved_is_used_with_a_warning(path):
    family = type("Moved", (Radial,), {"__module__": "before"})
    GCGPClassifier(family([0, 1]), **FAST).fit(IMAGES, LABELS).save(path)
    family.__module__ = "after"
    with pytest.warns(UserWarning, match=r"defined in before\.Moved .* after\.Moved is used"):
        assert type(gcgp.load(path).weighting) is family


def test_the_path_of_a_checkpoint_is_not_kept(path, tmp_path):
    model = GCGPClassifier(**FAST, checkpoint=tmp_path / "run.checkpoint").fit(IMAGES, LABELS)
    model.save(path)
    assert gcgp.load(path).checkpoint is None
    assert model.checkpoint == tmp_path / "run.checkpoint"


def test_a_model_that_could_not_be_loaded_is_not_written(path):
    model = GCGPClassifier(**FAST).fit(IMAGES, LABELS)
    model.posterior_.weights[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"model\.gcgp: the model cannot be written.*weights.*not finite"):
        model.save(path)
    assert not path.exists()


def test_saved_by_the_function(path):
    model = GCGPClassifier(**FAST).fit(IMAGES, LABELS)
    gcgp.save(model, path)
    np.testing.assert_array_equal(gcgp.load(path).predict_proba(IMAGES), model.predict_proba(IMAGES))


class TestPipelines:
    corners = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0, 0], [0, -1, 0], [0, 0, -1]])
    faces = ((0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2), (1, 0, 5), (3, 1, 5), (4, 3, 5), (0, 4, 5))
    stretch = np.random.default_rng(0).uniform(0.5, 2, (10, 1, 3))

    @pytest.fixture
    def meshes(self):
        return [Mesh(self.corners * factors, self.faces) for factors in self.stretch]

    @pytest.mark.parametrize(
        "descriptor",
        [
            GeometryVectors(3, n_splines=5, percentile=90.0),
            HeatKernelSignature(5, scale="area"),
            WaveKernelSignature(np.int64(4), standardize=False),
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
        for name in descriptor.fitted:
            mine, its = getattr(descriptor, name), getattr(loaded["shape"], name)
            assert type(mine) is type(its)
            np.testing.assert_array_equal(mine, its)

    def test_a_regressor(self, meshes, path):
        targets = [mesh.area for mesh in meshes]
        model = make_pipeline(GeometryVectors(), GCGPRegressor(Polar([0.5], 4), **FAST)).fit(meshes, targets)
        gcgp.save(model, path)
        for mine, its in zip(
            model.predict(meshes, return_std=True),
            gcgp.load(path).predict(meshes, return_std=True),
            strict=True,
        ):
            np.testing.assert_array_equal(mine, its)

    def test_an_estimator_alone_in_a_pipeline(self, path):
        model = make_pipeline(GCGPClassifier(**FAST)).fit(IMAGES, LABELS)
        gcgp.save(model, path)
        loaded = gcgp.load(path)
        assert type(loaded) is Pipeline
        np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))

    @pytest.mark.parametrize(
        ("steps", "message"),
        [
            (
                [("log", FunctionTransformer()), ("gp", GCGPClassifier(**FAST))],
                "step 'log': a FunctionTransf",
            ),
            ([("skip", "passthrough"), ("gp", GCGPClassifier(**FAST))], "step 'skip': a str cannot be"),
            ([("shape", GeometryVectors())], "step 'shape': a GeometryVectors cannot be .* only GCGPClass"),
        ],
        ids=str,
    )
    def test_a_step_that_is_not_known(self, steps, message, path):
        with pytest.raises(ValueError, match=message):
            gcgp.save(Pipeline(steps), path)
        assert list(path.parent.iterdir()) == []

    def test_not_fitted(self, meshes, path):
        half = make_pipeline(GeometryVectors().fit(meshes), GCGPClassifier(**FAST))
        for model in (make_pipeline(GeometryVectors(), GCGPClassifier(**FAST)), half):
            with pytest.raises(NotFittedError):
                gcgp.save(model, path)
        assert list(path.parent.iterdir()) == []

    def test_something_else(self, path):
        with pytest.raises(ValueError, match=r"^a dict cannot be written"):
            gcgp.save({}, path)


def test_not_fitted(path):
    with pytest.raises(ValueError, match="not fitted"):
        GCGPClassifier().save(path)
    assert not path.exists()


def test_what_cannot_be_written_leaves_the_old_file(path):
    class OwnKernel(RBFKernel):
        pass

    GCGPClassifier(**FAST).fit(IMAGES, LABELS).save(path)
    before = path.read_bytes()
    strange = GCGPClassifier(kernel=OwnKernel(), **FAST).fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match="OwnKernel cannot be written"):
        strange.save(path)
    unsaid = GCGPClassifier(**FAST).fit(IMAGES, [frozenset({1}), frozenset({2})] * 10)
    with pytest.raises(ValueError, match="frozenset"):
        unsaid.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_behind(path, monkeypatch):
    model = GCGPClassifier(**FAST).fit(IMAGES, LABELS)

    def full_disk(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr("gcgp.io.model_file.save_file", full_disk)
    with pytest.raises(OSError, match="no space left"):
        model.save(path)
    assert list(path.parent.iterdir()) == []


@pytest.fixture
def fitted():
    return GCGPClassifier(**FAST).fit(IMAGES, LABELS)


def test_a_full_disk_is_reported_with_the_path(fitted, path, full_disk):
    with pytest.raises(OSError, match=re.escape(str(path))) as found:
        fitted.save(path)
    assert found.value.errno == errno.EFBIG
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_does_not_exist_is_reported_with_the_path(fitted, path):
    with pytest.raises(FileNotFoundError, match=re.escape(str(path.parent / "no" / "model.gcgp"))):
        fitted.save(path.parent / "no" / "model.gcgp")


class TestDamage:
    @pytest.fixture
    def saved(self, path):
        GCGPClassifier(**FAST).fit(IMAGES, LABELS).save(path)
        return path

    def test_cut_off_anywhere(self, saved):
        whole = saved.read_bytes()
        for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
            saved.write_bytes(whole[:length])
            with pytest.raises(ValueError, match="not a gcgp model file, or cut off or damaged"):
                gcgp.load(saved)

    def test_any_flipped_byte(self, saved):
        whole = bytearray(saved.read_bytes())
        header = struct.unpack("<Q", whole[:8])[0]
        places = [0, 8, 8 + header // 2, 8 + header, 8 + header + 1000, len(whole) - 1]
        for place in places:
            damaged = whole.copy()
            damaged[place] ^= 0x55
            saved.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"damaged|no gcgp model|not a gcgp|format"):
                gcgp.load(saved)

    def test_a_newer_format(self, saved):
        content = saved.read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        header["__metadata__"]["version"] = "99"
        text = json.dumps(header).encode()
        saved.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
        with pytest.raises(ValueError, match=r"model format 99, but gcgp .* reads 4"):
            gcgp.load(saved)


def test_foreign_files(path):
    save_file({"x": torch.zeros(3)}, str(path))
    with pytest.raises(ValueError, match="a safetensors file, but no gcgp model"):
        gcgp.load(path)
    path.write_text("hello")
    with pytest.raises(ValueError, match="not a gcgp model file"):
        gcgp.load(path)
    with pytest.raises(FileNotFoundError, match="no model file at"):
        gcgp.load(path.parent / "nowhere")


def test_a_pickle_is_refused_and_not_run(path):
    class Trap:
        def __reduce__(self):
            return (path.with_suffix(".ran").write_text, ("ran",))

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="not a gcgp model file"):
        gcgp.load(path)
    assert not path.with_suffix(".ran").exists()
