"""Gradient-based learning through the estimators."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

import gcgp
from gcgp import GCGPClassifier, GCGPRegressor, Learn, Patch
from gcgp.estimators import fit
from gcgp.selection import learn_config, learning, search
from gcgp.selection.learn_config import HELD_OUT_SHARE, Division
from gcgp.selection.learning import _rescaled
from gcgp.weighting import Box, Polar, Radial

SMALL = {"n_inducing": 20, "patch": Patch(position=False, bin_counts=False)}
MAX_ITER = 4


@pytest.fixture(scope="module")
def digits():
    data = load_digits(n_class=3)
    return data.images[:60] / 16, data.target[:60]


@pytest.fixture(scope="module")
def hard_digits():
    """Ten classes, so that every stage of learning can improve the objective."""
    images, labels = load_digits(return_X_y=True)
    return images[:120].reshape(-1, 8, 8) / 16, labels[:120]


def learning_model(weighting, parameters=None, **learn):
    return GCGPClassifier(weighting, learn=Learn(parameters, **({"max_iter": MAX_ITER} | learn)), **SMALL)


@pytest.fixture(scope="module")
def learned(hard_digits):
    return learning_model(Radial([0.0, 0.3], 0.3)).fit(*hard_digits)


def test_radii_leave_a_neighborhood_that_is_too_small(learned):
    assert float(learned.weightings_[0].radii.max()) > 0.6
    assert [w.radii.tolist() for w in learned.start_weightings_] == [pytest.approx([0.0, 0.3])]


def test_learning_improves_predictions():
    data = load_digits(n_class=4)
    order = np.random.default_rng(0).permutation(len(data.target))  # they are sorted by writer
    images, labels = data.images[order] / 16, data.target[order]
    losses = []
    for learn in (None, Learn(max_iter=MAX_ITER)):
        options = SMALL | {"n_inducing": 30, "learn": learn}
        model = GCGPClassifier(Radial([0.0, 0.3], 0.3), **options).fit(images[:200], labels[:200])
        probabilities = model.predict_proba(images[300:])
        losses.append(-np.log(probabilities[np.arange(len(probabilities)), labels[300:]]).mean())
    assert losses[1] < losses[0]


def test_learned_parameters_that_predict_worse_are_discarded(digits, monkeypatch, tmp_path):
    def worse(given, config, division, trial, start):
        scales = [{name: 1e-3 * value for name, value in term.items()} for term in given.lengthscales]
        return [replace(given, lengthscales=scales)], start

    plain = GCGPClassifier("radial", **SMALL).fit(*digits)
    monkeypatch.setattr(learning, "_learn", worse)
    model = learning_model("radial").fit(*digits)
    lengthscales = [fitted.kernels_[0].lengthscale.flatten().tolist() for fitted in (model, plain)]
    assert lengthscales[0] == lengthscales[1]
    assert [step.stage for step in model.history_] == ["check", "check"]
    model.save(tmp_path / "model.gcgp")  # with the weightings before learning, which are the fitted ones
    loaded = gcgp.load(tmp_path / "model.gcgp")
    assert loaded.start_weightings_[0].radii.tolist() == loaded.weightings_[0].radii.tolist()


def test_the_history_has_all_stages(learned):
    stages = list(dict.fromkeys(step.stage for step in learned.history_))
    assert stages == ["zoom", "trial", "check"]
    assert all(np.isfinite(step.value) for step in learned.history_)


def test_the_same_seed_learns_the_same(learned, hard_digits):
    again = learning_model(Radial([0.0, 0.3], 0.3)).fit(*hard_digits)
    assert again.weightings_[0].radii.tolist() == learned.weightings_[0].radii.tolist()
    np.testing.assert_array_equal(
        again.predict_proba(hard_digits[0][:5]), learned.predict_proba(hard_digits[0][:5])
    )


def test_a_loaded_model_predicts_the_same(learned, digits, tmp_path):
    learned.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(loaded.predict_proba(digits[0][:5]), learned.predict_proba(digits[0][:5]))


def test_only_the_named_parameters_are_learned(digits, hard_digits, monkeypatch):
    model = learning_model(Polar([0.5, 1.5], 4, 0.7), ["lengthscale"]).fit(*digits)
    assert model.weightings_[0].radii.tolist() == pytest.approx([0.5, 1.5])
    results = []
    optimize = learning._optimize

    def recorded(*arguments):
        results.append(optimize(*arguments))
        return results[-1]

    monkeypatch.setattr(learning, "_optimize", recorded)
    one_sided = [0.0, 0.4, 0.8, 1.2]
    learning_model(Polar([0.5, 1.5], one_sided, 0.7), "angles").fit(*hard_digits)
    ((learned, _),) = results
    weighting = learned.specs[0].convolution.weighting
    assert weighting.radii.tolist() == pytest.approx([0.5, 1.5])
    assert weighting.angles.tolist() != pytest.approx(one_sided, abs=1e-3)


@pytest.mark.parametrize("objective", ["bound", "leave-one-out"])
@pytest.mark.parametrize("optimizer", ["l-bfgs", "adam"])
def test_values_never_decrease_within_a_stage(hard_digits, objective, optimizer):
    names = ["lengthscales", "variance", "alpha", "inducing"]
    model = learning_model("radial", names, objective=objective, optimizer=optimizer).fit(*hard_digits)
    values = [step.value for step in model.history_]
    assert len(values) > 1
    assert values == sorted(values)


@pytest.fixture
def divisions(monkeypatch):
    """Divisions of the signals, and the indices that the objectives were given."""
    seen = []
    objective_data = Division.objective_data

    def recorded(division, data, size):
        part, scored = objective_data(division, data, size)
        seen.append((division, part.count, len(scored)))
        return part, scored

    monkeypatch.setattr(Division, "objective_data", recorded)
    return seen


def test_more_signals_than_trial_signals_are_learned_from(hard_digits, monkeypatch, divisions):
    monkeypatch.setattr(fit, "TRIAL_SIGNALS", 40)
    model = learning_model("radial", ["lengthscale"]).fit(*hard_digits)
    assert {step.stage for step in model.history_} == {"more", "check"}
    ((division, count, scored),) = divisions
    assert not division.trial_only
    assert count == len(hard_digits[0]) - len(division.held_out)
    assert scored == count - len(division.inducing)


def test_held_out_signals_are_not_part_of_the_objective(hard_digits, monkeypatch, divisions):
    monkeypatch.setattr(fit, "TRIAL_SIGNALS", 40)
    learning_model("radial", ["lengthscale"]).fit(*hard_digits)
    division = divisions[0][0]
    assert len(division.held_out) == HELD_OUT_SHARE * len(hard_digits[0])
    parts = (division.held_out, division.objective, division.inducing)
    assert sorted(np.concatenate(parts)) == list(range(len(hard_digits[0])))


def test_the_number_of_patches_of_the_objective_is_limited(hard_digits, monkeypatch, divisions):
    monkeypatch.setattr(fit, "TRIAL_SIGNALS", 40)
    monkeypatch.setattr(learning, "MAX_OBJECTIVE_PATCHES", 55 * hard_digits[0][0].size)
    learning_model("radial", ["lengthscale"]).fit(*hard_digits)
    assert divisions[0][1] == 55


def test_large_signals_are_compared_on_trial_signals_alone(hard_digits, monkeypatch, divisions):
    monkeypatch.setattr(fit, "TRIAL_SIGNALS", 40)
    monkeypatch.setattr(learn_config, "MAX_CHECK_PATCHES", 40 * hard_digits[0][0].size)
    model = learning_model("radial", ["lengthscale"]).fit(*hard_digits)
    assert {step.stage for step in model.history_} == {"trial", "check"}
    assert divisions[0][0].trial_only
    assert divisions[0][1] == 40


def test_learning_after_a_search_on_some_of_the_trial_signals(hard_digits, monkeypatch):
    """Patches must be those of the signals whose labels are used; otherwise the best value is below −0.4."""
    rungs = [replace(rung, signals=60) for rung in search.IMAGE_RUNGS["fast"]]
    monkeypatch.setitem(search.IMAGE_RUNGS, "fast", tuple(rungs))
    monkeypatch.setattr(search, "SMALL_GRAPH_VERTICES", 0)
    model = GCGPClassifier("polar", learn=Learn(max_iter=2), search="fast", **SMALL).fit(*hard_digits)
    zoom = [step.value for step in model.history_ if step.stage == "zoom"]
    assert max(zoom) > -0.3


@pytest.mark.parametrize("order", [(1.0, 1e-3), (1e-3, 1.0)])
def test_held_out_signals_choose_between_results(digits, monkeypatch, order):
    def two_results(given, config, division, trial, start):
        scales = [
            [{name: factor * value for name, value in term.items()} for term in given.lengthscales]
            for factor in order
        ]
        return [replace(given, lengthscales=part) for part in scales], start

    chosen = []
    monkeypatch.setattr(learning, "_learn", two_results)
    monkeypatch.setattr(learning, "_is_better", lambda after, before: chosen.append(after) or True)
    model = learning_model("radial").fit(*digits)
    plain = GCGPClassifier("radial", **SMALL).fit(*digits)
    lengthscales = [fitted.kernels_[0].lengthscale.flatten().tolist() for fitted in (model, plain)]
    assert len(chosen) == 1
    assert lengthscales[0] == pytest.approx(lengthscales[1])


@pytest.mark.parametrize("objective", ["bound", "leave-one-out"])
def test_a_regressor_learns(digits, objective):
    images, _ = digits
    targets = images.mean(axis=(1, 2))
    model = GCGPRegressor("radial", learn=Learn(objective=objective, max_iter=MAX_ITER), **SMALL)
    model.fit(images, targets)
    assert model.history_
    assert np.corrcoef(model.predict(images[40:]), targets[40:])[0, 1] > 0.9


def test_an_interrupted_fit_keeps_the_best_parameters(digits, monkeypatch):
    calls = []
    evaluate = learning.Objective.__call__

    def interrupted(self, x):
        calls.append(x)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(self, x)

    monkeypatch.setattr(learning.Objective, "__call__", interrupted)
    with pytest.warns(UserWarning, match="interrupted after"):
        model = learning_model("radial", ["lengthscale"]).fit(*digits)
    assert model.score(*digits) > 0.5


def test_every_step_is_logged(digits, caplog):
    with caplog.at_level(logging.INFO, "gcgp"):
        model = learning_model("radial", ["lengthscale"]).fit(*digits)
    messages = [record.getMessage() for record in caplog.records if record.name == "gcgp"]
    assert len(messages) == len(model.history_)
    for message, step in zip(messages, model.history_, strict=True):
        assert message.split()[:2] == [str(step.iteration), step.stage]
        assert f"{step.value:.4f} nats per signal" in message


def test_nothing_is_printed(digits, capfd):
    learning_model("radial", ["lengthscale"]).fit(*digits)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("weighting", "options", "message"),
    [
        ("radial", {"parameters": "radius"}, "learn='radius' is not known.*'radii'"),
        ("radial", {"parameters": ["radii", 3]}, "learn=.*3 is not the name of a parameter"),
        (Box(3), {"parameters": "radii"}, "learn='radii' is not known"),
        ("radial", {"objective": "elbo"}, "objective='elbo' is not known"),
        ("radial", {"optimizer": "sgd"}, "optimizer='sgd' is not known"),
        ("radial", {"max_iter": 0}, "max_iter=0 must be an integer of at least 1"),
    ],
)
def test_errors_name_the_invalid_option(digits, weighting, options, message):
    with pytest.raises(ValueError, match=message):
        GCGPClassifier(weighting, learn=Learn(**options), **SMALL).fit(*digits)


def test_default_parameters_that_the_model_lacks_are_skipped(digits):
    model = learning_model(Box(3)).fit(*digits)
    assert model.history_[0].stage == "trial"


@pytest.mark.parametrize("learn", [True, "lengthscale", ["lengthscale"], ("lengthscale",)])
def test_shorthands_for_learning(learn, digits, monkeypatch):
    names = []
    monkeypatch.setattr(
        fit, "learn_model", lambda candidate, config: names.append(config.names) or (candidate, None)
    )
    GCGPClassifier("radial", learn=learn, **SMALL).fit(*digits)
    if learn is True:
        assert {"lengthscale", "variance", "radii", "radial_width", "alpha"} <= set(names[0])
    else:
        assert names == [["lengthscale"]]


def test_lengthscales_are_rescaled_with_the_medians_of_their_columns():
    scales = {"bins": 2.0, "bin_counts": 6.0, "position": 5.0}
    before = {"bins": 1.0, "bin_counts": 2.0, "position": 1.0}
    after = {"bins": 3.0, "bin_counts": 1.0, "position": 1.1}
    assert _rescaled(scales, before, after) == {"bins": 6.0, "bin_counts": 3.0, "position": 5.0}
    assert _rescaled(scales, before, after, 2.0) == {"bins": 12.0, "bin_counts": 6.0, "position": 5.0}
