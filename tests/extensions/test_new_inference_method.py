"""A new inference method: the closed form of Dirichlet targets with a given α_ε."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import gcgp
from evidence_checks import check_evidence_sums
from example_signals import bars
from gcgp import Dirichlet, GCGPClassifier, GCGPRegressor, Patch, PatchKernel
from gcgp._runtime.errors import check_positive
from gcgp.inference.collect import collect
from gcgp.inference.method import InferenceMethod, InferenceResult
from gcgp.inference.methods import METHODS
from gcgp.weighting import Polar


@dataclass(eq=False, repr=False)
class FixedAlpha(InferenceMethod):
    """The closed form with a given α_ε; only the variance is selected."""

    alpha: float = 0.01
    likelihoods = ("dirichlet",)

    def validate(self):
        check_positive("alpha", self.alpha, auto=False)

    def fit(self, problem):
        collected = collect(replace(problem, closed_form=Dirichlet(self.alpha)))
        likelihood, variance = collected.selected.likelihood, collected.selected.variance
        posterior, bound = likelihood.solve(collected.statistics, variance)
        return InferenceResult(
            collected.features,
            posterior,
            float(bound),
            likelihood.predictive(),
            likelihood,
            {"given_alpha_": self.alpha},
        )


IMAGES, LABELS = bars(count=40, side=7)
OPTIONS = {"n_inducing": 20, "kernel": PatchKernel(lengthscale=0.5), "patch": Patch(position=False)}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, "fixed-alpha", FixedAlpha)


def fitted(inference, **options):
    model = GCGPClassifier(Polar([1, 2], 4), inference=inference, **OPTIONS, **options)
    return model.fit(IMAGES[:24], LABELS[:24])


def test_a_string_and_an_object_select_it():
    by_name, by_object = fitted("fixed-alpha"), fitted(FixedAlpha())
    np.testing.assert_array_equal(by_name.predict_proba(IMAGES), by_object.predict_proba(IMAGES))
    assert by_name.alpha_ == 0.01


def test_it_gives_the_closed_form_of_its_alpha():
    model = fitted(FixedAlpha(alpha=0.02))
    expected = fitted("closed-form", likelihood=Dirichlet(alpha=0.02))
    assert model.alpha_ == expected.alpha_ == 0.02
    np.testing.assert_allclose(model.predict_proba(IMAGES), expected.predict_proba(IMAGES), atol=1e-6)
    check_evidence_sums(model, IMAGES[24:], 1e-5)


def test_attributes_of_its_result_become_attributes_of_the_model():
    assert fitted(FixedAlpha(alpha=0.03)).given_alpha_ == 0.03


def test_its_parameters_can_be_set():
    model = GCGPClassifier(inference="fixed-alpha").set_params(inference__alpha=0.05)
    assert repr(model.inference) == "FixedAlpha(alpha=0.05)"
    with pytest.raises(ValueError, match="alpha=-1: expected a positive number"):
        model.set_params(inference__alpha=-1).fit(IMAGES, LABELS)


def test_a_saved_model_can_be_loaded(tmp_path):
    for number, inference in enumerate(("fixed-alpha", FixedAlpha(alpha=0.02))):
        model = fitted(inference)
        model.save(tmp_path / f"{number}.gcgp")
        loaded = gcgp.load(tmp_path / f"{number}.gcgp")
        np.testing.assert_array_equal(loaded.predict_proba(IMAGES), model.predict_proba(IMAGES))
        assert repr(loaded.inference) == repr(inference)


def test_errors_name_it_with_what_it_supports():
    with pytest.raises(ValueError, match=r"inference=FixedAlpha\(\) does not support regression"):
        GCGPRegressor(inference="fixed-alpha").fit(IMAGES, LABELS)
    with pytest.raises(ValueError, match=r"inference=FixedAlpha\(\); expected one of \['dirichlet'\]"):
        fitted("fixed-alpha", likelihood="softmax")
    with pytest.raises(ValueError, match="'svgp', 'fixed-alpha'"):
        fitted("unknown")
