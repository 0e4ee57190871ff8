"""Inference methods as option objects: defaults, supported likelihoods and invalid values."""

import pytest
from sklearn.base import clone

from gcgp.inference.likelihoods import LIKELIHOODS
from gcgp.inference.methods import METHODS, SVGP, NaturalGradient


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_option_objects(name):
    method = METHODS[name]()
    method.validate()
    assert repr(clone(method)) == repr(method) == f"{type(method).__name__}()"
    assert set(method.likelihoods) <= set(LIKELIHOODS)


@pytest.mark.parametrize(
    ("name", "classification", "regression"),
    [
        ("closed-form", "dirichlet", "gaussian"),
        ("refined", "dirichlet", None),
        ("natural-gradient", "anchored", "gaussian"),
        ("svgp", "softmax", "gaussian"),
    ],
)
def test_default_likelihoods(name, classification, regression):
    method = METHODS[name]()
    assert method.default_likelihood("classification").name == classification
    if regression is not None:
        assert method.default_likelihood("regression").name == regression


def test_natural_gradients_by_the_bound_default_to_a_softmax():
    method = NaturalGradient(objective="bound")
    assert method.default_likelihood("classification").name == "softmax"
    assert method.default_likelihood("regression").name == "gaussian"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (NaturalGradient(objective="evidence"), "objective='evidence' is not known"),
        (SVGP(batch_size=0), "batch_size=0 must be an integer"),
        (SVGP(learning_rate="auto"), "learning_rate='auto': expected a positive number"),
        (SVGP(epochs=1.5), "epochs=1.5 must be an integer"),
    ],
)
def test_invalid_values_are_named(method, message):
    with pytest.raises(ValueError, match=message):
        method.validate()
