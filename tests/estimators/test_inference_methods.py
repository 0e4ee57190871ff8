"""Inference methods of the estimators: refinement, natural gradients, SVGP, and their checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import gcgp
from gcgp import (
    SVGP,
    Gaussian,
    GCGPClassifier,
    GCGPRegressor,
    NaturalGradient,
    Patch,
    PatchKernel,
    Runtime,
    Signals,
)
from gcgp.inference import Statistics
from gcgp.weighting import Box, Radial

SMALL = {
    "n_inducing": 15,
    "kernel": PatchKernel(lengthscale=1.0),
    "patch": Patch(position=False, bin_counts=False),
}
FLOAT64 = Runtime(dtype="float64")


@pytest.fixture(scope="module")
def digits():
    data = load_digits(n_class=3)
    return data.images[:60] / 16, data.target[:60]


@pytest.fixture(scope="module")
def unseen():
    data = load_digits(n_class=3)
    return data.images[300:420] / 16, data.target[300:420]


def loss(model, images, labels):
    return -np.log(model.predict_proba(images)[np.arange(len(labels)), labels]).mean()


@pytest.mark.parametrize("likelihood", ["auto", "anchored", "softmax", "robust-max"])
def test_every_likelihood_classifies_digits(likelihood, digits, unseen):
    model = GCGPClassifier(Box(3), inference="natural-gradient", likelihood=likelihood, **SMALL).fit(*digits)
    probabilities = model.predict_proba(unseen[0])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    assert model.score(*unseen) > 0.9
    assert loss(model, *unseen) < 1.0
    assert {step.stage for step in model.history_} == {"natural-gradient"}
    one_by_one = np.concatenate([model.predict_proba(image[None]) for image in unseen[0][:5]])
    np.testing.assert_allclose(one_by_one, probabilities[:5], atol=1e-6)


def test_refined_means_classify_digits_better(unseen, tmp_path):
    data = load_digits()  # sorted by writer
    train, test = ((data.images[part::2] / 16, data.target[part::2]) for part in (0, 1))
    closed = GCGPClassifier(Box(3), **SMALL).fit(*train)
    model = GCGPClassifier(Box(3), inference="refined", **SMALL).fit(*train)
    assert model.softmax_weight_ > 0
    assert model.score(*test) > closed.score(*test)
    assert loss(model, *test) < loss(closed, *test)
    np.testing.assert_array_equal(model.posterior_.roots, closed.posterior_.roots)
    before, after = (step.value for step in model.history_ if step.stage == "refined")
    assert after > before
    model.save(tmp_path / "model")
    loaded = gcgp.load(tmp_path / "model")
    assert loaded.softmax_weight_ == model.softmax_weight_
    np.testing.assert_array_equal(loaded.predict_proba(unseen[0]), model.predict_proba(unseen[0]))


def test_the_bound_selects_the_variance_on_request(digits):
    options = {"likelihood": "softmax", **SMALL}
    by_bound = GCGPClassifier(Box(3), inference=NaturalGradient(objective="bound"), **options).fit(*digits)
    by_default = GCGPClassifier(Box(3), inference="natural-gradient", **options).fit(*digits)
    assert by_bound.bound_ >= by_default.bound_ - 0.1
    given = options | {"kernel": PatchKernel(lengthscale=1.0, variance=3.0)}
    with_variance = GCGPClassifier(Box(3), inference="natural-gradient", **given).fit(*digits)
    assert with_variance.variance_ == pytest.approx(3.0)


def test_natural_gradients_with_gaussian_noise_give_the_closed_form(digits):
    targets = digits[0][:, 2:5].sum(axis=(1, 2))
    closed, variational = (
        GCGPRegressor(Box(3), inference=inference, runtime=FLOAT64, **SMALL).fit(digits[0], targets)
        for inference in ("closed-form", "natural-gradient")
    )
    np.testing.assert_allclose(
        variational.predict(digits[0], return_std=True), closed.predict(digits[0], return_std=True), rtol=1e-6
    )
    assert variational.bound_ == pytest.approx(closed.bound_, rel=1e-6)


def test_prior_variances_of_large_images_are_exact():
    images = np.random.default_rng(0).random((30, 16, 16))
    targets = images.max(axis=(1, 2))
    model = GCGPRegressor(
        Box(3),
        inference="natural-gradient",
        likelihood=Gaussian(noise=0.1),
        runtime=FLOAT64,
        **(SMALL | {"kernel": PatchKernel(lengthscale=1.0, variance=5.0)}),
    ).fit(images, targets)
    statistics = Statistics.empty(1, model.features_.size)
    centered = torch.from_numpy(targets - targets.mean())
    for chunk in model.features_.chunks(Signals.from_images(images)):
        statistics.add(chunk.features, torch.zeros(30, dtype=torch.int64), centered, chunk.residual)
    assert model.bound_ == pytest.approx(float(Gaussian(0.1).bound(statistics, 5.0)), rel=1e-9)


def test_svgp_raises_the_bound_and_learns_all_parameters(digits, unseen):
    start = Radial([0.0, 1.0], 0.7)
    svgp = SVGP(batch_size=16, learning_rate=0.05, epochs=20)
    model = GCGPClassifier(start, inference=svgp, **SMALL).fit(*digits)
    values = [step.value for step in model.history_]
    assert len(values) == 20
    assert values[-1] > values[0]
    (weighting,) = model.weightings_
    assert weighting.radii.tolist() != model.start_weightings_[0].radii.tolist()
    assert float(weighting.radial_width) != pytest.approx(0.7)
    assert model.score(*unseen) > 0.8


def test_svgp_for_regression_learns_the_noise(digits):
    targets = digits[0][:, 2:5].sum(axis=(1, 2))
    svgp = SVGP(batch_size=16, learning_rate=0.1, epochs=5)
    model = GCGPRegressor(Box(3), inference=svgp, **SMALL).fit(digits[0], targets)
    assert model.history_[-1].value > model.history_[0].value
    fixed = GCGPRegressor(
        Box(3), inference=svgp, likelihood=Gaussian(noise=0.5), learn="variance", **SMALL
    ).fit(digits[0], targets)
    assert fixed.noise_ == pytest.approx(0.5)
    assert model.noise_ != pytest.approx(0.5)


def test_a_loaded_variational_model_predicts_the_same(digits, unseen, tmp_path):
    model = GCGPClassifier(
        Box(3),
        likelihood="robust-max",
        inference=SVGP(batch_size=16, epochs=3),
        runtime=Runtime(checkpoint=tmp_path / "run"),
        **SMALL,
    ).fit(*digits)
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(loaded.predict_proba(unseen[0]), model.predict_proba(unseen[0]))
    assert loaded.history_ == model.history_
    assert loaded.n_iter_ == model.n_iter_
    assert repr(loaded.start_weightings_) == repr(model.start_weightings_)


SCRIPT = """
    import os, signal, sys
    import numpy as np
    from sklearn.datasets import load_digits
    from gcgp import SVGP, GCGPClassifier, Learn, Patch, PatchKernel, Runtime
    from gcgp._runtime.checkpoint import Checkpoint
    from gcgp.weighting import Radial

    folder, die_at = sys.argv[1], int(sys.argv[2])
    saves = 0

    def save(self, stage, state, save=Checkpoint.save):
        global saves
        saves += 1
        if saves == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        save(self, stage, state)

    Checkpoint.save, Checkpoint.due = save, lambda self, stage: True
    data = load_digits(n_class=3)
    results = {}
    for name, options in (
        ("svgp", dict(inference=SVGP(batch_size=16, learning_rate=0.02, epochs=3))),
        ("learned", dict(inference="natural-gradient", learn=Learn(max_iter=4))),
    ):
        model = GCGPClassifier(
            Radial([0.0, 1.0], 0.7), n_inducing=10, patch=Patch(position=False),
            kernel=PatchKernel(lengthscale=1.0), runtime=Runtime(checkpoint=os.path.join(folder, name)),
            **options,
        ).fit(data.images[:40] / 16, data.target[:40])
        results[name + " values"] = [step.value for step in model.history_]
        results[name + " probabilities"] = model.predict_proba(data.images[50:60] / 16)
        results[name + " saves"] = saves
    np.savez(os.path.join(folder, "results.npz"), **results)
"""


def test_a_killed_fit_resumes_with_the_same_result(tmp_path):
    script = tmp_path / "fit.py"
    script.write_text(textwrap.dedent(SCRIPT))

    def run(name, die_at=0):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, script, folder, str(die_at)], env=environment, check=False)
        assert done.returncode == (-signal.SIGKILL if die_at else 0)
        return None if die_at else dict(np.load(folder / "results.npz"))

    straight = run("straight")
    half = int(straight["svgp saves"]) // 2
    run("killed", half)  # during Adam
    remaining = int(straight["learned saves"]) - half
    run("killed", remaining - 2)  # near the end of the natural gradient steps
    resumed = run("killed")
    assert int(resumed["learned saves"]) < remaining
    for key in straight:
        if not key.endswith("saves"):
            np.testing.assert_array_equal(resumed[key], straight[key], err_msg=key)


def test_a_checkpoint_of_other_data_is_refused(digits, tmp_path):
    def model():
        svgp, runtime = SVGP(batch_size=16, epochs=3), Runtime(checkpoint=tmp_path / "run")
        return GCGPClassifier(Box(3), inference=svgp, runtime=runtime, **SMALL)

    first, again = model().fit(*digits), model().fit(*digits)
    assert [step.value for step in again.history_] == [step.value for step in first.history_]
    with pytest.raises(ValueError, match="another fit"):
        model().fit(digits[0][::-1].copy(), digits[1][::-1])
