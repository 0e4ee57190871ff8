"""Variational inference as the estimators offer it."""

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
from gcgp import GCGPClassifier, GCGPRegressor, Signals
from gcgp._runtime.processes import ProcessGroup
from gcgp.estimators.sharding import check_shards
from gcgp.inference import GaussianRegression, Statistics
from gcgp.plot.signals import draw_learning
from gcgp.weighting import Box, Radial

SMALL = {"n_inducing": 15, "position": False, "bin_counts": False, "lengthscale": 1.0}
PAPER = {"inference": "variational", "optimizer": "paper", "max_iter": 3, "batch_size": 16}


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
def test_every_likelihood_tells_digits_apart(likelihood, digits, unseen):
    model = GCGPClassifier(Box(3), inference="variational", likelihood=likelihood, **SMALL).fit(*digits)
    probabilities = model.predict_proba(unseen[0])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    assert model.score(*unseen) > 0.9
    assert loss(model, *unseen) < 1.0
    assert {step.stage for step in model.history_} == {"natural"}
    one_by_one = np.concatenate([model.predict_proba(image[None]) for image in unseen[0][:5]])
    np.testing.assert_allclose(one_by_one, probabilities[:5], atol=1e-6)


def test_refined_means_tell_digits_apart_better(unseen, tmp_path):
    data = load_digits()  # whose writers come one after the other
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
    back = gcgp.load(tmp_path / "model")
    assert back.softmax_weight_ == model.softmax_weight_
    np.testing.assert_array_equal(back.predict_proba(unseen[0]), model.predict_proba(unseen[0]))


def test_means_of_a_regression_need_no_softmax(digits):
    with pytest.raises(ValueError, match="inference='refined'"):
        GCGPRegressor(inference="refined").fit(digits[0], digits[1])


def test_the_bound_chooses_the_variance_if_asked_to(digits):
    options = {"likelihood": "softmax", "inference": "variational", **SMALL}
    by_bound = GCGPClassifier(Box(3), objective="bound", **options).fit(*digits)
    by_default = GCGPClassifier(Box(3), **options).fit(*digits)
    given = GCGPClassifier(Box(3), variance=3.0, **options).fit(*digits)
    assert by_bound.bound_ >= by_default.bound_ - 0.1
    assert given.variance_ == pytest.approx(3.0)


def test_regression_with_gaussian_noise_is_the_closed_form(digits):
    targets = digits[0][:, 2:5].sum(axis=(1, 2))
    closed = GCGPRegressor(Box(3), dtype="float64", **SMALL).fit(digits[0], targets)
    free = GCGPRegressor(Box(3), dtype="float64", inference="variational", **SMALL).fit(digits[0], targets)
    np.testing.assert_allclose(
        free.predict(digits[0], return_std=True), closed.predict(digits[0], return_std=True), rtol=1e-6
    )
    assert free.bound_ == pytest.approx(closed.bound_, rel=1e-6)


def test_prior_variances_of_large_images_are_exact():
    images = np.random.default_rng(0).random((30, 16, 16))
    targets = images.max(axis=(1, 2))
    model = GCGPRegressor(
        Box(3), dtype="float64", inference="variational", variance=5.0, noise=0.1, **SMALL
    ).fit(images, targets)
    statistics = Statistics.empty(1, model.features_.size)
    centered = torch.from_numpy(targets - targets.mean())
    for chunk in model.features_.chunks(Signals.from_images(images)):
        statistics.add(chunk.features, torch.zeros(30, dtype=torch.int64), centered, chunk.residual)
    assert model.bound_ == pytest.approx(float(GaussianRegression(0.1).bound(statistics, 5.0)), rel=1e-9)


def test_adam_as_in_the_paper_raises_the_bound_and_moves_everything(digits, unseen):
    start = Radial([0.0, 1.0], 0.7)
    options = {**SMALL, **PAPER, "max_iter": 20, "learning_rate": 0.05}
    model = GCGPClassifier(start, **options).fit(*digits)
    values = [step.value for step in model.history_]
    assert len(values) == 20
    assert values[-1] > values[0]
    found = model.features_.terms[0].convolution.weighting
    assert found.radii.tolist() != model.start_weightings_[0].radii.tolist()
    assert float(found.radial_width) != pytest.approx(0.7)
    assert model.score(*unseen) > 0.8


def test_adam_for_regression_learns_the_noise(digits):
    targets = digits[0][:, 2:5].sum(axis=(1, 2))
    options = {**SMALL, **PAPER, "max_iter": 5, "learning_rate": 0.1}
    model = GCGPRegressor(Box(3), **options).fit(digits[0], targets)
    assert model.history_[-1].value > model.history_[0].value
    fixed = GCGPRegressor(Box(3), noise=0.5, learn="variance", **options).fit(digits[0], targets)
    assert fixed.noise_ == pytest.approx(0.5)


def test_a_variational_model_comes_back_from_its_file(digits, unseen, tmp_path):
    options = {**SMALL, **PAPER, "checkpoint": tmp_path / "run"}
    model = GCGPClassifier(Box(3), likelihood="robust-max", **options).fit(*digits)
    model.save(tmp_path / "model.gcgp")
    back = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(back.predict_proba(unseen[0]), model.predict_proba(unseen[0]))
    assert back.history_ == model.history_
    assert back.n_iter_ == model.n_iter_
    assert repr(back.start_weightings_) == repr(model.start_weightings_)


def test_what_was_learned_can_be_drawn(digits, tmp_path):
    start = Radial([0.0, 1.0], 0.7)
    model = GCGPClassifier(start, learn="radii", max_iter=2, **SMALL).fit(*digits)
    draw_learning(model, tmp_path / "learned.png")
    assert (tmp_path / "learned.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="learn"):
        draw_learning(GCGPClassifier(Box(3), **SMALL).fit(*digits), tmp_path / "none.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inference": "exact"}, "inference='exact'"),
        ({"likelihood": "probit"}, "likelihood='probit'"),
        ({"optimizer": "paper"}, "inference='variational'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"learning_rate": -1.0}, r"learning_rate=-1\.0"),
        ({"learning_rate": "auto"}, "learning_rate='auto'"),
        ({"checkpoint": "no/such/folder/run"}, "no/such/folder"),
        ({"checkpoint": "run", "random_state": None}, "random_state=None"),
    ],
)
def test_bad_options_are_named(options, message, digits):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**options).fit(*digits)


SCRIPT = """
    import os, signal, sys
    import numpy as np
    from sklearn.datasets import load_digits
    from gcgp import GCGPClassifier
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
    for way, options in (
        ("paper", dict(optimizer="paper", max_iter=3, batch_size=16, learning_rate=0.02)),
        ("natural", dict(learn=True, max_iter=4)),
    ):
        model = GCGPClassifier(
            Radial([0.0, 1.0], 0.7), n_inducing=10, position=False, lengthscale=1.0,
            inference="variational", checkpoint=os.path.join(folder, way), **options,
        ).fit(data.images[:40] / 16, data.target[:40])
        results[way + " values"] = [step.value for step in model.history_]
        results[way + " probabilities"] = model.predict_proba(data.images[50:60] / 16)
        results[way + " saves"] = saves
    np.savez(os.path.join(folder, "results.npz"), **results)
"""


def test_a_killed_fit_goes_on_as_if_it_had_not_been(tmp_path):
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
    half = int(straight["paper saves"]) // 2
    run("killed", half)  # in the midst of Adam
    left = int(straight["natural saves"]) - half
    run("killed", left - 2)  # near the end of the natural steps
    resumed = run("killed")
    assert int(resumed["natural saves"]) < left
    for key in straight:
        if not key.endswith("saves"):
            np.testing.assert_array_equal(resumed[key], straight[key], err_msg=key)


def test_a_checkpoint_of_other_data_is_refused(digits, tmp_path):
    options = {**SMALL, **PAPER, "checkpoint": tmp_path / "run"}
    first = GCGPClassifier(Box(3), **options).fit(*digits)
    again = GCGPClassifier(Box(3), **options).fit(*digits)
    assert [step.value for step in again.history_] == [step.value for step in first.history_]
    with pytest.raises(ValueError, match="another run"):
        GCGPClassifier(Box(3), **options).fit(digits[0][::-1].copy(), digits[1][::-1])


def test_the_name_of_a_run_tells_graphs_apart_that_have_the_same_values():
    values, edges = [[1.0, 2.0, 3.0]], [[[0, 1], [1, 2]]]

    def name(learn, edges):
        options = {"learn": learn, "checkpoint": "file"}
        return check_shards(options, Signals.from_graphs(values, edges), ProcessGroup())

    names = {name(learn, e) for e in (edges, [[[0, 1], [0, 2]]]) for learn in (True, False)}
    assert len(names) == 4
    assert name(True, edges) in names
