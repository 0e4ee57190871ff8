"""Each family compared with its formula in plain Python: weights, gradients, constructor arguments."""

import copy
import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.func import functional_call

from gcgp.domain import Signals
from gcgp.patches import Convolution
from gcgp.weighting import Anisotropic, Box, GaussianMixture, GeodesicPolar, Polar, Radial, Weighting
from slow_patches import Pair, slow_weights

MIXTURE = {
    "means": [[0.3, 0.9], [1.2, -0.4], [0.0, 0.0]],
    "scales": [[0.5, 0.7], [1.1, 0.4], [2.0, 1.3]],
    "shear": [[[9.0, 9.0], [0.6, 9.0]], [[9.0, 9.0], [-0.8, 9.0]], [[0.0, 0.0], [0.0, 0.0]]],
}
LEARNED = {
    "polar": Polar(radii=[0.5, 2.0], angles=[0.1, 2.5, 4.0], radial_width=0.8, angular_width=0.6),
    "radial": Radial(radii=[0.0, 1.0, 2.5], radial_width=0.7),
    "mixture": GaussianMixture(**MIXTURE, on=["offset"], reach=2.0),
    "mixture of two": GaussianMixture(**MIXTURE, on=["rho", "theta"], reach=2.0),
    "anisotropic": Anisotropic(radii=[0.0, 1.5], angles=[0.2, 2.0, 4.4], along=1.2, across=0.5),
}
FAMILIES = {**LEARNED, "box": Box(side=3), "even box": Box(side=2, inside=False)}


def pairs():
    """The center and neighbors all around it, some exactly at the branch cut of arctan2."""
    random = np.random.default_rng(0)
    offsets = [(0.0, 0.0), (1.0, 0.0), (-1.0, 0.0), (1.0, 1.0), (0.0, -1.0), (-2.0, 2.0), (3.0, 1.0)]
    offsets += [tuple(offset) for offset in random.normal(scale=1.5, size=(20, 2))]
    return [Pair(math.hypot(x, y), math.nan if x == y == 0 else math.atan2(y, x), (x, y)) for x, y in offsets]


def coordinates_of(weighting, seen):
    return [
        torch.tensor([getattr(pair, name) for pair in seen], dtype=torch.float64)
        for name in weighting.coordinates
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_the_formula_of_the_family(name):
    weighting, seen = FAMILIES[name], pairs()
    weights = weighting(*coordinates_of(weighting, seen))
    assert weights.shape == (len(seen), weighting.bins)
    for row, pair in zip(weights, seen, strict=True):
        np.testing.assert_allclose(row.detach(), slow_weights(weighting, pair), atol=1e-12)


def test_polar_bins_count_radius_first_then_angle():
    weighting = Polar(radii=[1.0, 3.0], angles=4, radial_width=0.1, angular_width=0.1)
    quarter = math.pi / 2
    rho = torch.tensor([1.0, 1.0, 3.0, 3.0], dtype=torch.float64)
    theta = torch.tensor([0.0, quarter, 0.0, 3 * quarter], dtype=torch.float64)
    weights = weighting(rho, theta)
    assert weights.argmax(dim=1).tolist() == [0, 1, 4, 7]
    np.testing.assert_allclose(weights.max(dim=1).values.detach(), 1.0)


def test_a_number_of_angles_is_equally_spaced_with_half_the_spacing_as_width():
    weighting = Polar(angles=8)
    np.testing.assert_allclose(weighting.angles.detach(), np.arange(8) * math.pi / 4)
    assert float(weighting.angular_width.detach()) == pytest.approx(math.pi / 8)


@pytest.mark.parametrize("family", [Polar, Anisotropic])
@pytest.mark.parametrize("turns", [-3, -1, 1, 2])
def test_angles_wrap(family, turns):
    weighting = family(radii=[1.0, 2.0], angles=5)
    rho = torch.full((9,), 1.3, dtype=torch.float64)
    theta = torch.linspace(-3.1, 3.1, 9, dtype=torch.float64)
    turned = weighting(rho, theta + turns * 2 * math.pi)
    torch.testing.assert_close(weighting(rho, theta), turned, atol=1e-12, rtol=0)


def test_neighbors_on_both_sides_of_the_branch_cut_have_equal_weight():
    weighting = Polar(radii=[1.0], angles=[math.pi], angular_width=0.2)
    rho = torch.ones(2, dtype=torch.float64)
    near, far = weighting(rho, torch.tensor([3.1, -3.1], dtype=torch.float64))
    torch.testing.assert_close(near, far)
    assert near.item() > 0.9


@pytest.mark.parametrize("family", [Polar, Anisotropic])
def test_the_center_belongs_to_all_angles_equally(family):
    weighting = family(radii=[0.0, 2.0], angles=6)
    nowhere = torch.tensor([math.nan], dtype=torch.float64)
    weights = weighting(torch.zeros(1, dtype=torch.float64), nowhere).reshape(2, 6)
    torch.testing.assert_close(weights, weights[:, :1].expand(2, 6))
    assert weights[0, 0].item() == 1.0


def test_a_mixture_takes_an_undefined_coordinate_as_zero():
    weighting = GaussianMixture(means=[[0.5]], on=["theta"])
    weights = weighting(torch.tensor([math.nan, 0.0], dtype=torch.float64))
    assert weights[0].item() == weights[1].item() == pytest.approx(math.exp(-0.125))


def test_number_of_angles_may_come_from_a_parameter_grid():
    assert Polar(angles=np.int64(4)).bins == Anisotropic(radii=[0.0, 1.0, 2.0], angles=np.int64(4)).bins


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5])
def test_box_is_the_indicator_of_one_pixel_per_bin_row_by_row(side):
    box = Box(side=side)
    rows, columns = np.indices((2 * side + 1, 2 * side + 1)).reshape(2, -1) - side
    offsets = torch.tensor(np.stack([columns, rows], axis=1), dtype=torch.float64)
    weights = box(offsets)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert weights.sum(dim=0).tolist() == [1.0] * side**2
    first = -((side - 1) // 2)
    expected = [[first + b % side, first + b // side] for b in range(side**2)]
    assert offsets[weights.argmax(dim=0)].tolist() == expected
    assert offsets[weights.any(dim=1)].norm(dim=1).max().item() <= box.reach


@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_box_needs_two_coordinates(dimensions):
    graph = Signals.on_graph(np.zeros((1, 5)), [[0, 1]], coordinates=np.zeros((5, dimensions)))
    with pytest.raises(ValueError, match=f"Box: the coordinates have {dimensions} dimension.*2"):
        Convolution(Box(side=3)).patches(graph)


def test_a_box_has_no_bin_between_pixels():
    offsets = torch.tensor([[0.0, 0.0], [-0.5, 0.5], [0.0, 1 / 3], [1.0, -1.0]], dtype=torch.float64)
    assert Box(side=3)(offsets).sum(dim=1).tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "weighting",
    [
        Radial(radii=[0.0, 1.0, 2.0], radial_width=0.5),
        Polar(radii=[1.0, 5.0, 3.0], angles=4, radial_width=1.3),
        Anisotropic(radii=[0.0, 3.0], angles=4, along=2.0, across=0.8),
        Anisotropic(radii=[1.0], angles=4, along=0.3, across=1.5),
        Anisotropic(radii=[-3.0, 1.0], angles=4, along=0.5, across=0.5),
    ],
    ids=repr,
)
def test_beyond_the_reach_no_weight_exceeds_the_cut(weighting):
    outside = weighting.reach * torch.linspace(1.0001, 3, 40, dtype=torch.float64)
    around = torch.linspace(-math.pi, math.pi, 37, dtype=torch.float64)
    rho, theta = (each.reshape(-1) for each in torch.meshgrid(outside, around, indexing="ij"))
    weights = weighting(rho, theta) if "theta" in weighting.coordinates else weighting(rho)
    assert weights.max().item() < math.exp(-4.5)


@pytest.mark.parametrize("width", [0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 6.0, 10.0])
def test_reach_is_three_widths_beyond_the_outermost_radius(width):
    assert Radial(radii=[2.0, 1.0], radial_width=width).reach == pytest.approx(2 + 3 * width)
    assert Anisotropic(radii=[2.0], along=width, across=0.01).reach == pytest.approx(2 + 3 * width)
    assert Anisotropic(radii=[2.0], along=0.01, across=width).reach == pytest.approx(2 + 3 * width)


def test_reach_is_never_negative():
    assert Radial(radii=[-5.0], radial_width=1.0).reach >= 0


def test_reach_is_a_float_and_causes_no_warning():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        reaches = [weighting.reach for weighting in FAMILIES.values()]
    finally:
        torch.set_warn_always(before)
    assert {type(reach) for reach in reaches} == {float}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("polar", {"raw_radii", "raw_radial_width", "raw_angles", "raw_angular_width"}),
        ("radial", {"raw_radii", "raw_radial_width"}),
        ("mixture", {"raw_means", "raw_scales", "raw_shear"}),
        ("anisotropic", {"raw_radii", "raw_angles", "raw_along", "raw_across"}),
        ("box", set()),
    ],
)
def test_learned_values_are_torch_parameters(name, expected):
    parameters = dict(FAMILIES[name].named_parameters())
    assert set(parameters) == expected
    for parameter in parameters.values():
        assert isinstance(parameter, torch.nn.Parameter)
        assert parameter.dtype == torch.float64
        assert parameter.requires_grad


@pytest.mark.parametrize("name", LEARNED)
def test_gradients_with_respect_to_all_parameters_are_right(name):
    weighting = LEARNED[name]
    coordinates = coordinates_of(weighting, pairs()[:12])
    names = [name for name, _ in weighting.named_parameters()]

    def weights(*parameters):
        return functional_call(weighting, dict(zip(names, parameters, strict=True)), tuple(coordinates))

    start = [parameter.detach().clone().requires_grad_() for parameter in weighting.parameters()]
    assert torch.autograd.gradcheck(weights, start)


def test_positive_parameters_stay_positive_while_they_are_learned():
    weighting = Polar(radial_width=0.5)
    optimizer = torch.optim.SGD(weighting.parameters(), lr=100.0)
    (weighting.radial_width + weighting.angular_width).backward()
    optimizer.step()
    assert 0 < weighting.radial_width.item() < 1e-10
    assert weighting.angular_width.item() > 0


def nudged(weighting):
    """A copy with slightly different parameters, as after learning."""
    changed = copy.deepcopy(weighting)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.rand(parameter.shape, dtype=parameter.dtype) * 0.1)
    return changed


@pytest.mark.parametrize("name", FAMILIES)
def test_get_params_rebuilds_an_equal_weighting(name):
    torch.manual_seed(0)
    weighting = nudged(FAMILIES[name])
    rebuilt = type(weighting)(**weighting.get_params())
    assert (rebuilt.bins, rebuilt.normalize) == (weighting.bins, weighting.normalize)
    assert rebuilt.complete == weighting.complete
    assert rebuilt.reach == pytest.approx(weighting.reach, rel=1e-12)
    assert tuple(rebuilt.coordinates) == tuple(weighting.coordinates)
    for one, other in zip(rebuilt.parameters(), weighting.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    coordinates = coordinates_of(weighting, pairs())
    torch.testing.assert_close(rebuilt(*coordinates), weighting(*coordinates), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_get_params_are_plain_data(name):
    def is_plain(value):
        if isinstance(value, list):
            return all(map(is_plain, value))
        return type(value) in (int, float, bool, str)

    assert all(map(is_plain, FAMILIES[name].get_params().values()))


@pytest.mark.parametrize("scales", [0.2, [0.2, 0.3], [[0.2, 0.3]]])
def test_scales_keep_the_precision_in_which_they_are_given(scales):
    weighting = GaussianMixture(means=[[0.0, 0.0]], scales=scales)
    np.testing.assert_allclose(weighting.scales.detach(), np.broadcast_to(scales, (1, 2)), rtol=1e-14)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_deep_copy_is_equal_and_independent(name):
    weighting = FAMILIES[name]
    coordinates = coordinates_of(weighting, pairs())
    twin = copy.deepcopy(weighting)
    before = weighting(*coordinates).detach().clone()
    torch.testing.assert_close(twin(*coordinates), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(weighting(*coordinates), before)


def test_repr_shows_arguments_that_are_not_defaults():
    assert repr(Polar()) == repr(Polar().float()) == "Polar()"
    assert repr(Box(side=3)) == "Box(side=3)"
    assert repr(Polar([1, 2], angles=16)) == "Polar(radii=[1, 2], angles=16)"
    assert repr(Radial([0, 1 / 3], normalize=False)) == "Radial(radii=[0, 0.3333], normalize=False)"
    mixture = GaussianMixture(means=[[0.5]] * 9, scales=0.5, on=["rho"], reach=2)
    assert repr(mixture) == (
        "GaussianMixture(means=[[0.5], [0.5], ..., [0.5]], scales=0.5, on=['rho'], reach=2)"
    )


def test_repr_shows_learned_parameters():
    weighting = Polar([1.0])
    with torch.no_grad():
        weighting.raw_angular_width += 1
    assert repr(weighting) == "Polar(radii=[1], angular_width=1.067)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Radial(radii=[]), r"Radial: radii=\[\]"),
        (lambda: Radial(radii=[0.0, math.nan]), r"Radial: radii=\[0.0, nan\] must be finite"),
        (lambda: Radial(radial_width=0.0), "Radial: radial_width=0.0 must be positive"),
        (lambda: Radial(radial_width=-1.0), "Radial: radial_width=-1.0 must be positive"),
        (lambda: Polar(radii=[math.inf]), r"Polar: radii=\[inf\] must be finite"),
        (lambda: Polar(angles=0), "Polar: angles=0 must be an integer of at least 1"),
        (lambda: GaussianMixture(means="abc"), "GaussianMixture: means='abc' must be numbers"),
        (lambda: Polar(angles=[]), r"Polar: angles=\[\]"),
        (lambda: Polar(angular_width=-0.1), "Polar: angular_width=-0.1 must be positive"),
        (lambda: Polar(angular_width=0.0), "Polar: angular_width=0.0 must be positive"),
        (lambda: Anisotropic(angles=0), "Anisotropic: angles"),
        (lambda: Anisotropic(radii=[]), r"Anisotropic: radii=\[\]"),
        (lambda: Anisotropic(along=0.0), "Anisotropic: along=0.0 must be positive"),
        (lambda: Anisotropic(across=math.nan), "Anisotropic: across=nan must be positive"),
        (lambda: Box(side=0), "Box: side=0 must be an integer of at least 1"),
        (lambda: GaussianMixture(means=[0.0, 1.0]), r"means must be \[J, k\], got \[2\]"),
        (lambda: GaussianMixture(means=[[math.nan]]), "means=.*must be finite"),
        (lambda: GaussianMixture(means=[[0.0]], scales=0.0), "scales=.*must be positive"),
        (lambda: GaussianMixture(means=[[0.0]], scales=[1.0, 2.0]), "scales"),
        (lambda: GaussianMixture(means=[[0.0]], shear=[[[0.0, 0.0]]]), "shear"),
        (lambda: GaussianMixture(means=[[0.0]], on="rho"), "on='rho' must be a list"),
        (lambda: GaussianMixture(means=[[0.0]], on=[]), r"on=\[\] must be a list"),
        (lambda: GaussianMixture(means=[[0.0]], reach=-1.0), "reach=-1.0 must be finite and not negative"),
        (lambda: GaussianMixture(means=[[0.0]], reach=math.inf), "reach=inf must be finite"),
    ],
)
def test_invalid_arguments_raise_errors_that_name_them(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_means_must_fit_the_coordinates():
    weighting = GaussianMixture(means=[[0.0, 0.0, 0.0]], on=["rho", "theta"])
    with pytest.raises(ValueError, match="means have 3 dimensions, the coordinates rho, theta have 2"):
        weighting(torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))


def test_a_new_family_takes_twenty_lines():
    class Decay(Weighting):
        """exp(−ρ / length), one bin for each length."""

        coordinates = ("rho",)

        def __init__(self, lengths=(1.0,), reach=2.0, normalize=False):
            super().__init__(normalize)
            self.learnable("lengths", lengths, positive=True)
            self._reach = reach

        @property
        def bins(self):
            return len(self.lengths)

        @property
        def reach(self):
            return self._reach

        def forward(self, rho):
            return torch.exp(-rho[:, None] / self.lengths)

    weighting = Decay(lengths=[1.0, 2.0], reach=1.0)
    assert repr(weighting) == "Decay(lengths=[1, 2], reach=1)"
    assert weighting.set_params(reach=2.0).reach == 2.0
    assert clone(weighting).set_params(lengths=[3.0]).bins == 1
    weighting.set_params(reach=1.0)
    assert Decay(**weighting.get_params()).bins == 2

    path = Signals.from_graphs([[1.0, 10.0, 100.0]], [[[0, 1], [1, 2]]])
    patches = Convolution(weighting, dtype=torch.float64).patches(path).values
    near, far = math.exp(-1), math.exp(-0.5)
    expected = [[1 + 10 * b, 10 + 101 * b, 100 + 10 * b] for b in (near, far)]
    np.testing.assert_allclose(patches.detach().T, expected)
    patches.sum().backward()
    assert (weighting.raw_lengths.grad != 0).all()

    image = Signals.from_images(np.ones((1, 3, 3)))
    center = Convolution(weighting, dtype=torch.float64).patches(image).values[4]
    np.testing.assert_allclose(center.detach(), [1 + 8 * near, 1 + 8 * far])


def test_geodesic_polar_weights_depend_on_radius_and_distance_from_each_ray():
    weighting = GeodesicPolar(radii=[0.5, 2.0], rays=3, radial_width=0.8, angular_width=0.4)
    random = np.random.default_rng(0)
    rho, rays = random.random(7) * 3, random.random((7, 3)) * 2
    weights = weighting(torch.from_numpy(rho), torch.from_numpy(rays)).detach()
    for pair in range(7):
        for k, radius in enumerate([0.5, 2.0]):
            for j in range(3):
                radial = math.exp(-((rho[pair] - radius) ** 2) / (2 * 0.8**2))
                angular = math.exp(-(rays[pair, j] ** 2) / (2 * 0.4**2))
                assert weights[pair, 3 * k + j] == pytest.approx(radial * angular, rel=1e-12)


def test_what_no_ray_reaches_is_in_no_bin_and_has_no_gradient():
    weighting = GeodesicPolar([1.0], rays=2, radial_width=0.5, angular_width=0.4)
    rho, rays = torch.tensor([1.0, 0.5]), torch.tensor([[0.3, math.inf], [math.inf, 0.1]])
    weights = weighting(rho, rays)
    assert ((weights > 0) == (rays < math.inf)).all()
    weights.sum().backward()
    of_all = weighting.raw_angular_width.grad.clone()
    weighting.zero_grad()
    (weighting(rho, rays.nan_to_num(posinf=9.0))).sum().backward()
    assert of_all > 0
    torch.testing.assert_close(weighting.raw_angular_width.grad, of_all)


def test_geodesic_polar_coordinates_name_rays_and_frame():
    assert GeodesicPolar([1.0], rays=5).coordinates == ("rho", "rays:5:curvature")
    assert GeodesicPolar([1.0], rays=5, frame="edge").coordinates == ("rho", "rays:5:edge")
    twin = GeodesicPolar(**GeodesicPolar([1.0, 2.0], 6, 0.3, frame="edge").get_params())
    assert (twin.rays, twin.frame, twin.bins) == (6, "edge", 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rays": 0}, "rays=0"),
        ({"rays": True}, "rays=True"),
        ({"frame": "north"}, "frame='north'"),
        ({"radial_width": 0.0}, r"radial_width=0\.0"),
    ],
)
def test_geodesic_polar_checks_its_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        GeodesicPolar([1.0, 2.0], **options)


def test_rotating_the_angles_rotates_the_bins():
    weighting = Polar(radii=[1.0, 2.0], angles=6, radial_width=0.7)
    random = np.random.default_rng(0)
    rho = torch.from_numpy(random.random(9) * 3)
    theta = torch.from_numpy(random.uniform(-math.pi, math.pi, 9))
    turned = weighting(rho, theta + 2 * 2 * math.pi / 6)
    torch.testing.assert_close(turned[:, weighting.rotations[2]], weighting(rho, theta))


def test_only_equally_spaced_angles_have_rotations():
    assert Polar([1.0], angles=[0.0, 1.0, 2.0]).rotations is None
    assert Polar([1.0], angles=[0.3, 0.3 + math.pi]).rotations is not None
    assert Radial([1.0]).rotations is None


@pytest.mark.parametrize(
    ("weighting", "coordinates"),
    [
        (Polar([0.0, 1.0], 8, 0.1, 0.1), (torch.linspace(0, 3, 500), torch.linspace(-3, 3, 500))),
        (
            GeodesicPolar([0.0, 1.0], 4, 0.1, 0.1),
            (torch.linspace(0, 3, 500), torch.linspace(0, 3, 2000).reshape(500, 4)),
        ),
    ],
    ids=["polar", "geodesic"],
)
def test_products_of_factors_are_zero_or_normal_numbers(weighting, coordinates):
    radial, angular = (factor.detach() for factor in weighting.factors(*coordinates))
    exact = copy.deepcopy(weighting).double().factors(*(c.double() for c in coordinates))
    for factor, right in zip((radial, angular), exact, strict=True):
        assert (factor == 0).any()
        torch.testing.assert_close(factor.double(), right.detach(), rtol=1e-4, atol=1e-17)
    products = radial[:, :, None] * angular[:, None, :]
    assert products[products > 0].min() >= torch.finfo(torch.float32).tiny
