"""The constructor arguments: few, the same for both estimators, and addressable as in scikit-learn."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gcgp
from example_signals import bars
from gcgp import (
    SVGP,
    Aggregate,
    Anchored,
    ClosedForm,
    Dirichlet,
    Gaussian,
    GCGPClassifier,
    GCGPRegressor,
    Learn,
    NaturalGradient,
    Patch,
    PatchKernel,
    Refined,
    RobustMax,
    Runtime,
    Signals,
    Softmax,
)
from gcgp._runtime.options import Options
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial

ESTIMATORS = [GCGPClassifier, GCGPRegressor]
OPTION_OBJECTS = [
    Patch(position=False, bin_counts=True),
    PatchKernel("matern32", lengthscale=0.5),
    Aggregate("sum", vertex_weights=[1.0, 2.0]),
    Learn(["radii"], max_iter=3),
    Runtime(dtype="float64", progress=False),
    Dirichlet(alpha=0.1),
    Gaussian(noise=0.2),
    Softmax(draws=64),
    RobustMax(epsilon=0.01),
    Anchored(weight=2.0),
    ClosedForm(),
    Refined(),
    NaturalGradient(objective="bound"),
    SVGP(batch_size=10, epochs=2),
]
WEIGHTINGS = [
    Radial([0.0, 2.0], 0.5),
    Polar([1, 3], 4),
    GeodesicPolar([0.1, 0.2], 8, 0.05),
    Anisotropic([0.0, 2.0], 4),
    GaussianMixture([[0.0, 0.0], [2.0, 0.0]], on=["offset"], reach=3),
    Box(3, inside=False),
]
FIXED = {
    "n_inducing": 10,
    "kernel": PatchKernel(lengthscale=0.5, variance=10.0),
    "patch": Patch(position=False),
}


@pytest.fixture(scope="module")
def images_and_labels():
    return bars(count=30, side=7)


def arguments(family):
    return list(inspect.signature(family).parameters)


def test_both_estimators_have_the_same_few_arguments():
    assert arguments(GCGPClassifier) == arguments(GCGPRegressor)
    assert len(arguments(GCGPClassifier)) <= 15


def test_the_constructor_is_written_once():
    for family in ESTIMATORS:
        assert "__init__" not in vars(family)
    folder = Path(gcgp.__file__).parent / "estimators"
    constructors = [
        file.name
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert constructors == ["base.py"]


def test_every_argument_is_documented():
    documented = GCGPClassifier.__doc__.partition("Attributes:")[0]
    for name in arguments(GCGPClassifier):
        assert f"{name}: " in documented, name


def test_the_constructor_stores_its_arguments_unchanged():
    given = {name: object() for name in arguments(GCGPClassifier)}
    for family in ESTIMATORS:
        stored = family(**given).get_params(deep=False)
        assert all(stored[name] is value for name, value in given.items())


@pytest.mark.parametrize("family", ESTIMATORS)
def test_reprs_are_short(family):
    name = family.__name__
    assert repr(family()) == f"{name}()"
    assert repr(family("polar", n_inducing=100)) == f"{name}(n_inducing=100, weighting='polar')"
    text = repr(
        family(Polar([1, 3], 4), kernel=PatchKernel(lengthscale=0.5), runtime=Runtime(dtype="float64"))
    )
    assert "kernel=PatchKernel(lengthscale=0.5)" in text
    assert "runtime=Runtime(dtype='float64')" in text
    assert "Parameter containing" not in text
    assert len(text) < 250


@pytest.mark.parametrize("option", OPTION_OBJECTS, ids=repr)
def test_option_objects_follow_the_parameter_contract(option):
    family = type(option)
    assert isinstance(option, Options)
    assert list(option.get_params()) == sorted(field.name for field in fields(option))
    assert repr(family()) == f"{family.__name__}()"
    copied = clone(option)
    assert copied is not option
    assert repr(copied) == repr(option)
    for name, value in family().get_params().items():
        option = clone(option).set_params(**{name: value})
    assert repr(option) == repr(family())
    option.validate()
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        option.set_params(colour="red")


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)
def test_weightings_follow_the_parameter_contract(weighting):
    copied = clone(weighting)
    assert copied is not weighting
    assert repr(copied) == repr(weighting)
    assert set(weighting.get_params()) == set(inspect.signature(type(weighting)).parameters)
    estimator = clone(GCGPClassifier(weighting))
    assert repr(estimator.weighting) == repr(weighting)
    assert estimator.weighting is not weighting


def test_parameters_of_a_weighting_can_be_set():
    model = GCGPClassifier(Polar([1, 3], 4))
    assert {"weighting", "weighting__radii", "weighting__angles"} <= set(model.get_params())
    model.set_params(weighting__radii=[2.0, 4.0, 6.0], weighting__radial_width=0.5)
    assert model.weighting.radii.tolist() == [2.0, 4.0, 6.0]
    assert model.weighting.bins == 12
    assert model.get_params()["weighting__radial_width"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="radius"):
        model.set_params(weighting__radius=1.0)


NESTED = [
    ("kernel__lengthscale", 0.25, PatchKernel),
    ("kernel__kind", "matern12", PatchKernel),
    ("patch__position", False, Patch),
    ("aggregate__vertex_weights", [1.0], Aggregate),
    ("learn__max_iter", 3, Learn),
    ("runtime__memory_limit", "1 MB", Runtime),
]


@pytest.mark.parametrize("family", ESTIMATORS)
@pytest.mark.parametrize(("name", "value", "expected"), NESTED)
def test_nested_parameters_expand_the_shorthand(family, name, value, expected):
    argument, _, field = name.partition("__")
    model = family().set_params(**{name: value})
    assert type(getattr(model, argument)) is expected
    assert getattr(getattr(model, argument), field) == value
    assert model.get_params()[name] == value
    assert clone(model).get_params()[name] == value


def test_nested_parameters_of_named_methods_and_likelihoods():
    model = GCGPClassifier(inference="svgp", likelihood="robust-max")
    model.set_params(inference__batch_size=7, likelihood__epsilon=0.01)
    assert isinstance(model.inference, SVGP)
    assert model.inference.batch_size == 7
    assert model.likelihood.epsilon == 0.01
    regressor = GCGPRegressor(likelihood="gaussian").set_params(likelihood__noise=0.5)
    assert regressor.likelihood.noise == 0.5


def test_an_argument_and_its_fields_can_be_set_together():
    model = GCGPClassifier().set_params(
        inference="svgp", inference__epochs=2, kernel="matern32", kernel__variance=3.0
    )
    assert repr(model.inference) == "SVGP(epochs=2)"
    assert repr(model.kernel) == "PatchKernel(kind='matern32', variance=3.0)"
    model.set_params(weighting=Radial(), weighting__radii=[0.0, 5.0])
    assert model.weighting.radii.tolist() == [0.0, 5.0]


def test_fields_of_a_gpytorch_kernel_are_those_of_a_patch_kernel():
    kernel = RBFKernel()
    model = GCGPClassifier(kernel=kernel).set_params(kernel__variance=2.0)
    assert model.kernel.kind is kernel
    assert model.kernel.variance == 2.0


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        (
            GCGPClassifier(),
            {"weighting__radii": [1.0]},
            "weighting__radii: weighting='auto' has no parameter",
        ),
        (GCGPClassifier(["box"]), {"weighting__side": 3}, "weighting__side: weighting=.* has no parameter"),
        (GCGPClassifier(), {"n_inducing__value": 3}, "n_inducing__value: n_inducing='auto' has no parameter"),
        (GCGPClassifier(), {"likelihood__alpha": 0.1}, "likelihood='auto' is not known"),
        (GCGPClassifier(), {"kernel__length": 3}, "Invalid parameter 'length' for estimator PatchKernel"),
        (
            GCGPClassifier(),
            {"lengthscale": 3},
            "Invalid parameter 'lengthscale' for estimator GCGPClassifier",
        ),
        (GCGPClassifier(), {"colour__of": 3}, "colour"),
        (GCGPClassifier(inference="exact"), {"inference__epochs": 3}, "inference='exact' is not known"),
    ],
)
def test_errors_for_parameters_that_do_not_exist(model, params, message):
    with pytest.raises(ValueError, match=message):
        model.set_params(**params)


CLOSED_FORM = {
    "kernel": ("matern32", PatchKernel("matern32")),
    "aggregate": ("sum", Aggregate("sum")),
    "patch": ("auto", Patch()),
    "likelihood": ("auto", Dirichlet()),
    "inference": ("closed-form", ClosedForm()),
    "runtime": (None, Runtime()),
}
REFINED = {"inference": ("refined", Refined()), "likelihood": ("dirichlet", Dirichlet())}
VARIATIONAL = {"inference": ("natural-gradient", NaturalGradient()), "likelihood": ("softmax", Softmax())}
STOCHASTIC = {
    "inference": ("svgp", SVGP()),
    "likelihood": ("robust-max", RobustMax()),
    "learn": ("variance", Learn(["variance"])),
}


@pytest.mark.parametrize("options", [CLOSED_FORM, REFINED, VARIATIONAL, STOCHASTIC])
def test_strings_are_shorthand_for_objects(options):
    images, labels = bars(count=12, side=5)
    fixed = {"n_inducing": 5, "kernel": PatchKernel(lengthscale=0.5, variance=10.0)}
    predictions = []
    for choice in (0, 1):
        chosen = fixed | {name: values[choice] for name, values in options.items()}
        model = GCGPClassifier(Radial([0.0, 1.0]), **chosen).fit(images, labels)
        predictions.append(model.predict_proba(images))
    np.testing.assert_array_equal(predictions[0], predictions[1])


def test_grid_search_addresses_weighting_and_kernel(images_and_labels):
    images, labels = images_and_labels
    grid = {"weighting__radii": [[1.0], [1.0, 2.0]], "kernel__lengthscale": [0.5, 50.0]}
    search = GridSearchCV(GCGPClassifier(Polar([1, 2, 3], 4), **FIXED), grid, cv=StratifiedKFold(2))
    search.fit(images, labels)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.9
    best = search.best_estimator_
    assert best.weightings_[0].radii.tolist() == search.best_params_["weighting__radii"]
    lengthscale = search.best_params_["kernel__lengthscale"]
    np.testing.assert_allclose(best.kernels_[0].lengthscale.numpy(), lengthscale, rtol=1e-6)
    assert FIXED["kernel"].lengthscale == 0.5  # a search works on copies


def test_grid_search_addresses_a_named_method(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(Radial([0.0, 1.0]), inference="svgp", learn="variance", **FIXED)
    search = GridSearchCV(model, {"inference__epochs": [1, 2], "inference__batch_size": [10]}, cv=2)
    search.fit(images, labels)
    assert len(search.best_estimator_.history_) == search.best_params_["inference__epochs"]


def test_cross_validation_and_pipelines(images_and_labels):
    images, labels = images_and_labels
    model = GCGPClassifier(Polar([1, 3], 4), **FIXED | {"n_inducing": 40})
    folds = StratifiedKFold(2)
    assert cross_val_score(model, Signals.from_images(images), labels, cv=folds).mean() > 0.9
    pipeline = make_pipeline(FunctionTransformer(Signals.from_images), model)
    pipeline.set_params(gcgpclassifier__kernel__lengthscale=0.4)
    assert cross_val_score(pipeline, images, labels, cv=folds).mean() > 0.9
