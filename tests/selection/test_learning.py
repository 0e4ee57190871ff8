"""Learning as the estimators offer it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import gcgp
from gcgp import GCGPClassifier, GCGPRegressor, Signals
from gcgp.selection import learning
from gcgp.selection.learning import _by_rule, _rescaled
from gcgp.selection.term_specs import natural_radii
from gcgp.weighting import Box, GeodesicPolar, Polar, Radial

SMALL = {"n_inducing": 20, "max_iter": 4, "position": False, "bin_counts": False}


@pytest.fixture(scope="module")
def digits():
    data = load_digits(n_class=3)
    return data.images[:60] / 16, data.target[:60]


@pytest.fixture(scope="module")
def hard_digits():
    """Of ten classes: each maximize has something to gain."""
    images, labels = load_digits(return_X_y=True)
    return images[:120].reshape(-1, 8, 8) / 16, labels[:120]


@pytest.fixture(scope="module")
def learned(hard_digits):
    start = Radial([0.0, 0.3], 0.3)
    return GCGPClassifier(start, learn=True, **SMALL).fit(*hard_digits)


def weighting_of(model):
    return model.features_.terms[0].convolution.weighting


def test_radii_and_width_move_out_of_a_neighborhood_that_is_too_small(learned):
    assert float(weighting_of(learned).radii.max()) > 0.6
    assert [w.radii.tolist() for w in learned.start_weightings_] == [pytest.approx([0.0, 0.3])]


def test_it_predicts_better_than_the_start():
    data = load_digits(n_class=4)
    order = np.random.default_rng(0).permutation(len(data.target))  # they are in the order of their writers
    images, labels = data.images[order] / 16, data.target[order]
    losses = []
    for learn in (False, True):
        options = {**SMALL, "n_inducing": 30, "learn": learn}
        model = GCGPClassifier(Radial([0.0, 0.3], 0.3), **options).fit(images[:200], labels[:200])
        probabilities = model.predict_proba(images[300:])
        losses.append(-np.log(probabilities[np.arange(len(probabilities)), labels[300:]]).mean())
    assert losses[1] < losses[0]


def test_what_makes_the_model_worse_is_not_kept(digits, monkeypatch, tmp_path):
    def worse(state, task, loss):
        scales = [{name: 1e-3 * value for name, value in own.items()} for own in state.scales]
        return replace(state, scales=scales)

    plain = GCGPClassifier("diffusion", **SMALL).fit(*digits)
    monkeypatch.setattr("gcgp.estimators.fitting.learn", worse)
    model = GCGPClassifier("diffusion", learn=True, **SMALL).fit(*digits)
    lengthscales = [m.features_.terms[0].kernel.base.lengthscale.flatten().tolist() for m in (model, plain)]
    assert lengthscales[0] == lengthscales[1]
    assert [step.stage for step in model.history_] == ["check", "check"]
    model.save(tmp_path / "model.gcgp")  # with the weighting it started from, which is the one it has
    back = gcgp.load(tmp_path / "model.gcgp")
    assert back.start_weightings_[0].radii.tolist() == weighting_of(back).radii.tolist()


def test_the_history_tells_of_each_stage(learned):
    stages = list(dict.fromkeys(step.stage for step in learned.history_))
    assert stages == ["zoom", "trial", "check"]
    assert all(np.isfinite(step.value) for step in learned.history_)


def test_the_same_seed_learns_the_same(learned, hard_digits):
    again = GCGPClassifier(Radial([0.0, 0.3], 0.3), learn=True, **SMALL).fit(*hard_digits)
    assert weighting_of(again).radii.tolist() == weighting_of(learned).radii.tolist()
    np.testing.assert_array_equal(
        again.predict_proba(hard_digits[0][:5]), learned.predict_proba(hard_digits[0][:5])
    )


def test_a_learned_model_comes_back_from_its_file(learned, digits, tmp_path):
    learned.save(tmp_path / "model.gcgp")
    back = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(back.predict_proba(digits[0][:5]), learned.predict_proba(digits[0][:5]))


def test_only_what_is_named_is_learned(digits, hard_digits):
    model = GCGPClassifier(Polar([0.5, 1.5], 4, 0.7), learn=["lengthscale"], **SMALL).fit(*digits)
    assert weighting_of(model).radii.tolist() == pytest.approx([0.5, 1.5])
    free = GCGPClassifier(Polar([0.5, 1.5], 4, 0.7), learn="angles", **SMALL).fit(*hard_digits)
    assert weighting_of(free).radii.tolist() == pytest.approx([0.5, 1.5])
    assert weighting_of(free).angles.tolist() != pytest.approx([0, np.pi / 2, np.pi, 3 * np.pi / 2])


@pytest.mark.parametrize("objective", ["bound", "leave-one-out"])
@pytest.mark.parametrize("optimizer", ["l-bfgs", "adam"])
def test_values_never_fall_within_a_stage(hard_digits, objective, optimizer):
    model = GCGPClassifier(
        "diffusion",
        learn=["lengthscales", "variance", "alpha", "inducing"],
        objective=objective,
        optimizer=optimizer,
        **SMALL,
    ).fit(*hard_digits)
    values = [step.value for step in model.history_]
    assert len(values) > 1
    assert values == sorted(values)


def test_with_more_signals_than_the_trial_it_ends_on_all_of_them(hard_digits, monkeypatch):
    monkeypatch.setattr("gcgp.estimators.fitting.TRIAL_SIGNALS", 40)
    monkeypatch.setattr(learning, "MIDDLE_SIGNALS", 70)
    model = GCGPClassifier("diffusion", learn=["lengthscale"], **SMALL).fit(*hard_digits)
    assert {step.stage for step in model.history_} == {"trial", "more", "all", "check"}


@pytest.mark.parametrize(
    ("signals", "stages"), [(55, {"trial", "more", "check"}), (80, {"trial", "more", "most", "check"})]
)
def test_no_climb_is_on_more_patches_than_that(hard_digits, monkeypatch, signals, stages):
    monkeypatch.setattr("gcgp.estimators.fitting.TRIAL_SIGNALS", 40)
    monkeypatch.setattr(learning, "MIDDLE_SIGNALS", 70)
    monkeypatch.setattr(learning, "MOST_PATCHES", signals * hard_digits[0][0].size)
    seen = []
    part = learning.LearnConfig.part
    monkeypatch.setattr(
        learning.LearnConfig,
        "part",
        lambda task, rows, inducing: seen.append(len(rows)) or part(task, rows, inducing),
    )
    model = GCGPClassifier("diffusion", learn=["lengthscale"], **SMALL).fit(*hard_digits)
    assert {step.stage for step in model.history_} == stages
    assert len(hard_digits[0]) > max(seen) == signals


@pytest.mark.parametrize("objective", ["bound", "leave-one-out"])
def test_a_regressor_learns(digits, objective):
    images, _ = digits
    targets = images.mean(axis=(1, 2))
    model = GCGPRegressor("diffusion", learn=True, objective=objective, **SMALL).fit(
        images[:60], targets[:60]
    )
    assert model.history_
    assert np.corrcoef(model.predict(images[40:]), targets[40:])[0, 1] > 0.9


def test_an_interrupted_fit_keeps_what_it_had(digits, monkeypatch):
    calls = []
    evaluate = learning.Objective.__call__

    def interrupted(self, x):
        calls.append(x)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return evaluate(self, x)

    monkeypatch.setattr(learning.Objective, "__call__", interrupted)
    with pytest.warns(UserWarning, match="interrupted after"):
        model = GCGPClassifier("diffusion", learn=["lengthscale"], **SMALL).fit(*digits)
    assert model.score(*digits) > 0.5


def test_a_line_for_each_step_if_it_is_verbose(digits, capsys):
    model = GCGPClassifier("diffusion", learn=["lengthscale"], verbose=True, **SMALL).fit(*digits)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(model.history_)
    assert "nats a signal" in lines[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn": "radius"}, "learn='radius'.*'radii'"),
        ({"learn": ["radii", 3]}, "learn=.*3 is not a name"),
        ({"weighting": Box(3), "learn": "radii"}, "learn='radii' is not known"),
        ({"learn": True, "objective": "elbo"}, "objective='elbo'"),
        ({"learn": True, "optimizer": "sgd"}, "optimizer='sgd'"),
        ({"learn": True, "max_iter": 0}, "max_iter=0"),
    ],
)
def test_bad_options_are_told(digits, options, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(**{**SMALL, "weighting": "diffusion", **options}).fit(*digits)


def test_names_of_the_defaults_that_a_model_lacks_are_passed_over(digits):
    model = GCGPClassifier(Box(3), learn=True, **SMALL).fit(*digits)
    assert model.history_[0].stage == "trial"


def test_the_rule_keeps_the_bin_at_the_center():
    images = Signals.from_images(np.zeros((4, 12, 12)))
    for weighting in (Radial([0.0, 1.0, 2.0], 0.5), Polar([0.0, 1.0, 2.0], 4, 0.5)):
        placed = _by_rule(weighting, images)
        radii, width = natural_radii(images, 2)
        np.testing.assert_allclose(placed.radii.detach(), [0.0, *radii], rtol=1e-6)
        assert float(placed.radial_width.detach()) == pytest.approx(width)
    without = _by_rule(Radial([1.0, 2.0], 0.5), images)
    np.testing.assert_allclose(without.radii.detach(), natural_radii(images, 2)[0], rtol=1e-6)
    assert _by_rule(Radial([0.0], 0.5), images) is None


def test_the_width_across_rays_follows_the_radii():
    weighting = GeodesicPolar([0.0, 0.1, 0.2], 8, 0.05)
    placed = weighting.with_radii([0.0, 0.3, 0.6], 0.1)
    expected = GeodesicPolar([0.0, 0.3, 0.6], 8, 0.1)
    assert float(placed.angular_width.detach()) == pytest.approx(float(expected.angular_width.detach()))


def test_lengthscales_of_all_columns_follow_their_medians():
    scales = {"bins": 2.0, "bin_counts": 6.0, "position": 5.0}
    before, after = (
        {"bins": 1.0, "bin_counts": 2.0, "position": 1.0},
        {"bins": 3.0, "bin_counts": 1.0, "position": 1.1},
    )
    assert _rescaled(scales, before, after) == {"bins": 6.0, "bin_counts": 3.0, "position": 5.0}
