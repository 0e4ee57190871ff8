import json
import pickle
import struct

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from safetensors.torch import save_file

import gcgp
from gcgp import GCGPClassifier, GCGPRegressor, Signals
from gcgp.weighting import Anisotropic, Box, Diffusion, GaussianMixture, Polar, Weighting

IMAGES = np.random.default_rng(0).random((20, 6, 6))
LABELS = np.arange(20) % 3
FAST = {"n_inducing": 8, "progress": False, "variance": 3.0, "lengthscale": 0.4, "location": False}


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
        {"weighting": Polar([1, 2], 4), "location": 2.0, "mass": True},
        {"weighting": Diffusion([0, 1])},
        {"weighting": Box(3), "aggregate": "sum", "dtype": "float64"},
        {"weighting": Anisotropic([0, 2], 4)},
        {"weighting": GaussianMixture([[0.0, 0.0], [1.0, 1.0]], on=["offset"], reach=2)},
        {"weighting": [Polar([1], 4), "box"]},
        {"kernel": "matern32", "location": 3.0},
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

        def __init__(self, slope: float = 0.5, normalise: bool = True) -> None:
            super().__init__(normalise)
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

    monkeypatch.setattr("gcgp.surface.model_file.save_file", full_disk)
    with pytest.raises(OSError, match="no space left"):
        model.save(path)
    assert list(path.parent.iterdir()) == []


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
        with pytest.raises(ValueError, match=r"model format 99, but gcgp .* reads 1"):
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
