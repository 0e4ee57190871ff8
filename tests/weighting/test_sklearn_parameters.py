"""Weightings follow scikit-learn's parameter contract: get_params, set_params and clone."""

import inspect

import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial

WEIGHTINGS = [
    Radial([0.0, 1.0, 2.5], 0.7),
    Polar([1, 3, 5], 8),
    Polar([1.0], [0.0, 1.0], 0.8, 0.6, normalize=False),
    GeodesicPolar([0.1, 0.2], 6, 0.05, frame="edge"),
    Anisotropic([0.0, 1.5], 4, 1.2, 0.5),
    GaussianMixture([[0.3, 0.9], [1.2, -0.4]], 0.5, on=["offset"], reach=2.0),
    Box(3, inside=False),
]
each_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS, ids=repr)


class Model(BaseEstimator):
    """An estimator with a weighting as argument."""

    def __init__(self, weighting=None):
        self.weighting = weighting


@each_weighting
def test_a_clone_is_equal_and_independent(weighting):
    copied = clone(Model(weighting)).weighting
    assert copied is not weighting
    assert copied.get_params() == weighting.get_params()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1.0)
    for parameter, other in zip(weighting.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(parameter + 1, other)


@each_weighting
def test_setting_the_same_parameters_changes_nothing(weighting):
    copied = clone(weighting)
    assert copied.set_params(**weighting.get_params()) is copied
    for parameter, other in zip(weighting.parameters(), copied.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-12, atol=1e-12)


@each_weighting
def test_argument_types_are_declared_for_all_arguments(weighting):
    arguments = weighting.get_params()
    assert arguments.keys() == inspect.signature(type(weighting)).parameters.keys()
    for name, value in arguments.items():
        kind = type(weighting).argument_types[name]
        if isinstance(kind, type):
            assert type(value) is kind
        else:
            assert torch.tensor(value).ndim == kind


def test_parameters_are_set_through_an_estimator():
    model = Model(Polar([1, 3, 5], 8))
    assert model.get_params()["weighting__radii"] == [1.0, 3.0, 5.0]
    model.set_params(weighting__radii=[1, 2], weighting__normalize=False)
    assert (model.weighting.bins, model.weighting.normalize) == (16, False)


def test_a_grid_of_parameters():
    base = Model(Polar([1.0, 3.0], 8))
    bins = [
        clone(base).set_params(**point).weighting.bins
        for point in ParameterGrid({"weighting__radii": [[1.0], [1.0, 2.0]], "weighting__angles": [4, 6]})
    ]
    assert bins == [4, 8, 6, 12]
    assert base.weighting.bins == 16


def test_arguments_that_were_not_given_are_derived_again():
    weighting = Polar([1.0], 8).set_params(angles=4)
    assert float(weighting.angular_width.detach()) == pytest.approx(torch.pi / 4)
    fixed = Polar([1.0], 8, angular_width=0.3).set_params(angles=4)
    assert float(fixed.angular_width.detach()) == pytest.approx(0.3)
    mixture = GaussianMixture([[0.0], [1.0]], scales=0.5).set_params(means=[[0.0], [1.0], [2.0]])
    assert mixture.scales.shape == (3, 1)


def test_learned_parameters_are_kept():
    weighting = Polar([1.0], 8)
    with torch.no_grad():
        weighting.raw_angular_width += 1.0
        weighting.raw_radii += 0.5
    learned = float(weighting.angular_width.detach())
    weighting.set_params(angles=4)
    assert float(weighting.angular_width.detach()) == pytest.approx(learned)
    assert weighting.radii.tolist() == [1.5]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rings": 3}, "Radial has no parameter 'rings', only radii, radial_width, normalize"),
        ({"radii": []}, r"Radial: radii=\[\]"),
        ({"radial_width": -1}, "Radial: radial_width=-1 must be positive"),
    ],
)
def test_invalid_parameters_raise_and_change_nothing(params, message):
    weighting = Radial([0.0, 1.0], 0.4)
    with pytest.raises(ValueError, match=message):
        weighting.set_params(**params)
    assert weighting.get_params() == Radial([0.0, 1.0], 0.4).get_params()
