"""Default weightings of each kind of domain."""

import numpy as np
import pytest

from gcgp import Signals, articulated_bodies
from gcgp.selection.weightings import resolve_weightings
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial

IMAGES = Signals.from_images(np.zeros((4, 12, 12))).domains
GRAPHS = Signals.on_graph(np.ones((1, 3)), [[0, 1], [1, 2]]).domains


@pytest.mark.parametrize(
    ("name", "domains", "family"),
    [
        ("auto", IMAGES, Polar),
        ("auto", GRAPHS, Radial),
        ("polar", IMAGES, Polar),
        ("radial", IMAGES, Radial),
        ("anisotropic", IMAGES, Anisotropic),
        ("box", IMAGES, Box),
        ("mixture", GRAPHS, GaussianMixture),
    ],
)
def test_names_stand_for_weightings_that_suit_the_domains(name, domains, family):
    (weighting,) = resolve_weightings(name, domains, "auto")
    assert type(weighting) is family


def test_meshes_have_geodesic_rays():
    body = articulated_bodies(persons=1, poses=1, vertices=200, random_state=0).meshes
    domains = Signals.on_meshes([np.zeros(len(body[0].vertices))], body).domains
    assert type(resolve_weightings("auto", domains, "auto")[0]) is Radial
    assert type(resolve_weightings("polar", domains, "auto")[0]) is GeodesicPolar


def test_each_item_of_a_list_is_one_scale_and_a_copy():
    given = Radial([0.0, 1.0])
    box, radial = resolve_weightings(["box", given], IMAGES, "auto")
    assert isinstance(box, Box)
    assert radial is not given
    assert repr(radial) == repr(given)


def test_the_width_across_rays_follows_the_radii():
    weighting = GeodesicPolar([0.0, 0.1, 0.2], 8, 0.05)
    replaced = weighting.with_radii([0.0, 0.3, 0.6], 0.1)
    expected = GeodesicPolar([0.0, 0.3, 0.6], 8, 0.1)
    assert float(replaced.angular_width.detach()) == pytest.approx(float(expected.angular_width.detach()))
