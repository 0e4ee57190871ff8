"""The convolution, compared with a loop over vertices, neighbors and bins, on grids and on graphs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call

from gcgp.domain import Signals, Stencil
from gcgp.patches import Convolution, bin_sums
from gcgp.weighting import Anisotropic, Box, GaussianMixture, Polar, Radial
from random_graphs import random_graphs, small
from slow_patches import graph_pairs, grid_pairs, slow_sums

WIDE = {
    "polar": lambda normalize: Polar([0.5, 2.0], [0.3, 1.5, 2.8, 4.1, 5.3], 0.6, 0.8, normalize),
    "radial": lambda normalize: Radial([0.0, 1.2], 0.45, normalize),
    "mixture": lambda normalize: GaussianMixture(
        [[0.0, 0.5], [1.0, -0.4]],
        [[0.9, 1.1], [0.6, 0.8]],
        [[[0.0, 0.0], [0.3, 0.0]]] * 2,
        on=["offset"],
        reach=2.3,
        normalize=normalize,
    ),
    "anisotropic": lambda normalize: Anisotropic([0.0, 1.1], 3, 0.7, 0.4, normalize),
}
ON_GRIDS = {**WIDE, "box": lambda _: Box(3, inside=False), "even box": lambda _: Box(2, inside=False)}
ON_GRAPHS = {
    **WIDE,
    "degree": lambda normalize: GaussianMixture(
        [[0.5, 0.5], [0.9, 0.4]], 0.4, on=["degree"], reach=1.9, normalize=normalize
    ),
}
EVERYWHERE = Radial([0.0, 1.0, 2.0], 3.0, normalize=False)
"""Reaches beyond all pairs of a random graph, so that neighbors do not depend on rounding."""


def patches_of(weighting, signals, **options):
    return Convolution(weighting, dtype=torch.float64, **options).patches(signals).values.detach()


@pytest.fixture
def graph():
    """Eleven vertices with parallel edges, a loop, an isolated vertex and two components."""
    random = np.random.default_rng(1)
    edges = np.concatenate([random.integers(0, 7, size=(9, 2)), [[7, 8], [8, 9], [9, 7], [7, 8], [7, 7]]])
    return {
        "values": random.normal(size=(11, 2)),
        "edges": edges,
        "edge_lengths": random.uniform(0.3, 1.5, size=len(edges)),
        "coordinates": random.uniform(0, 3, size=(11, 2)),
    }


def signals_on(graph, *fields, copies=1):
    given = {field: [graph[field]] * copies for field in ("values", "edges", *fields)}
    return Signals.from_graphs(**given)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("family", ON_GRIDS)
def test_patches_on_grids_are_the_slow_loop(family, normalize, channels):
    weighting = ON_GRIDS[family](normalize)
    images = np.random.default_rng(0).normal(size=(2, 3, 5, channels))
    actual = patches_of(weighting, Signals.from_images(images), bin_counts=True)
    pairs = grid_pairs(3, 5)
    expected = [np.hstack(slow_sums(weighting, pairs, image.reshape(15, channels))) for image in images]
    np.testing.assert_allclose(actual, np.concatenate(expected), atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kind", ["euclidean", "path"])
@pytest.mark.parametrize("family", ON_GRAPHS)
def test_patches_on_graphs_are_the_slow_loop(graph, family, kind, normalize):
    weighting = ON_GRAPHS[family](normalize)
    signals = signals_on(graph, "edge_lengths", "coordinates")
    actual = patches_of(weighting, signals, chart=kind, bin_counts=True)
    pairs = graph_pairs(kind, 11, graph["edges"], graph["edge_lengths"], graph["coordinates"])
    expected = np.hstack(slow_sums(weighting, pairs, graph["values"]))
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize("family", ["radial", "degree"])
def test_patches_on_graphs_without_coordinates_are_the_slow_loop(graph, family):
    weighting = ON_GRAPHS[family](True)
    pairs = graph_pairs("path", 11, graph["edges"])
    expected, _ = slow_sums(weighting, pairs, graph["values"])
    np.testing.assert_allclose(patches_of(weighting, signals_on(graph)), expected, atol=1e-12)


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_a_box_copies_pixels_exactly(side):
    image = np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32)
    actual = Convolution(Box(side, inside=False)).patches(Signals.from_images(image[None])).values
    before = (side - 1) // 2
    padded = np.pad(image, (before, side - 1 - before))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side))
    np.testing.assert_array_equal(actual, windows.reshape(63, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_patches_have_the_precision_asked_for(graph, dtype):
    for signals in (signals_on(graph, "coordinates"), Signals.from_images(np.ones((1, 3, 3)))):
        patches = Convolution(WIDE["polar"](True), bin_counts=True, position=True, dtype=dtype).patches(
            signals
        )
        assert patches.values.dtype == patches.multiplicity.dtype == dtype
        exact = patches_of(WIDE["polar"](True), signals, bin_counts=True, position=True)
        np.testing.assert_allclose(patches.values.detach(), exact, rtol=2e-5, atol=1e-5)


def test_a_pixel_at_exactly_the_reach_counts():
    weighting = Radial(radii=[0.0], radial_width=5.0)
    chart = Convolution(weighting).make_chart(Signals.from_images(np.zeros((1, 40, 40))))
    assert abs(chart.offsets).max() == 15


def test_columns_are_bins_by_channel_then_counts_then_position(graph):
    weighting = WIDE["polar"](False)
    signals = signals_on(graph, "coordinates")
    whole = Convolution(weighting, bin_counts=True, position=True, dtype=torch.float64)
    actual = whole.patches(signals).values.detach()
    single = [
        patches_of(weighting, Signals.from_graphs([channel], [graph["edges"]], None, [graph["coordinates"]]))
        for channel in graph["values"].T
    ]
    ones = Signals.from_graphs([np.ones(11)], [graph["edges"]], None, [graph["coordinates"]])
    parts = [*single, patches_of(weighting, ones), torch.from_numpy(graph["coordinates"])]
    torch.testing.assert_close(actual, torch.cat(parts, dim=1))
    columns = {"bins": slice(0, 20), "bin_counts": slice(20, 30), "position": slice(30, 32)}
    assert whole.columns(signals) == columns
    assert whole.dim(signals) == 32


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, {"bins": slice(0, 4)}),
        ({"bin_counts": True}, {"bins": slice(0, 4), "bin_counts": slice(4, 6)}),
        ({"position": True}, {"bins": slice(0, 4), "position": slice(4, 6)}),
    ],
)
def test_columns_name_each_part(options, columns):
    signals = Signals.from_images(np.zeros((1, 3, 3, 2)))
    whole = Convolution(WIDE["radial"](True), **options)
    assert whole.columns(signals) == columns
    assert whole.dim(signals) == whole.patches(signals).values.shape[1]


@pytest.mark.parametrize("normalize", [True, False])
def test_bin_counts_are_the_sums_of_weights_normalized_or_not(graph, normalize):
    ones = {**graph, "values": np.ones((11, 1))}
    weighting = WIDE["polar"](normalize)
    actual = patches_of(weighting, signals_on(ones, "coordinates"), bin_counts=True)
    plain = patches_of(WIDE["polar"](False), signals_on(ones, "coordinates"))
    torch.testing.assert_close(actual[:, 10:], plain)


def test_position_is_the_coordinates_of_the_vertex(graph):
    on_grid = patches_of(EVERYWHERE, Signals.from_images(np.zeros((2, 2, 3))), position=True)
    assert on_grid[:, 3:].tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]] * 2
    shared = Signals.on_graph(np.zeros((2, 11)), graph["edges"], None, graph["coordinates"])
    on_graph = patches_of(EVERYWHERE, shared, position=True)
    np.testing.assert_array_equal(on_graph[:, 3:], np.tile(graph["coordinates"], (2, 1)))


def test_position_needs_coordinates(graph):
    with pytest.raises(ValueError, match="position=True needs domains with coordinates"):
        patches_of(EVERYWHERE, signals_on(graph), position=True)


def test_averages_of_a_constant_are_that_constant(graph):
    constant = {**graph, "values": np.full((11, 1), 3.5)}
    actual = patches_of(Radial([0.0, 1.0], 0.5), signals_on(constant, "coordinates"))
    np.testing.assert_allclose(actual, 3.5)


def test_images_of_mixed_sizes_are_independent():
    random = np.random.default_rng(0)
    sizes = [(5, 4), (3, 3), (5, 4), (1, 6), (3, 3)]
    images = [random.normal(size=(*size, 2)) for size in sizes]
    mixed = Convolution(WIDE["polar"](True), bin_counts=True, position=True, dtype=torch.float64)
    patches = mixed.patches(Signals.from_images(images))
    assert patches.offsets.tolist() == [0, 20, 29, 49, 55, 64]
    alone = torch.cat([mixed.patches(Signals.from_images(image[None])).values for image in images])
    torch.testing.assert_close(patches.values, alone)


@pytest.mark.parametrize("kind", ["euclidean", "path"])
def test_a_shared_graph_is_equivalent_to_one_graph_per_signal(graph, kind):
    values = np.random.default_rng(2).normal(size=(4, 11, 2))
    rest = ("edges", "edge_lengths", "coordinates")
    shared = Signals.on_graph(values, *(graph[field] for field in rest))
    separate = Signals.from_graphs(list(values), *([graph[field]] * 4 for field in rest))
    options = {"chart": kind, "bin_counts": True, "position": True}
    torch.testing.assert_close(
        patches_of(WIDE["polar"](True), shared, **options),
        patches_of(WIDE["polar"](True), separate, **options),
    )


def test_graphs_of_different_sizes_in_any_order_are_independent(graph):
    other = {"values": np.ones((2, 2)), "edges": [[0, 1]], "coordinates": np.eye(2)}
    signals = Signals.from_graphs(
        *([one[field] for one in (graph, other, graph)] for field in ("values", "edges")),
        coordinates=[one["coordinates"] for one in (graph, other, graph)],
    )[[1, 2, 1, 0]]
    alone = [patches_of(EVERYWHERE, one) for one in signals]
    torch.testing.assert_close(patches_of(EVERYWHERE, signals), torch.cat(alone))


@pytest.mark.parametrize("at_once", [1, 20, 1000])
def test_sums_in_blocks_are_the_sums_at_once(graph, monkeypatch, at_once):
    values = np.random.default_rng(2).normal(size=(3, 11, 2))
    shared = Signals.on_graph(values, graph["edges"], None, graph["coordinates"])
    separate = signals_on(graph, "coordinates", copies=3)
    whole = [patches_of(WIDE["polar"](True), signals) for signals in (shared, separate)]
    monkeypatch.setattr(bin_sums, "WEIGHTS_PER_BLOCK", at_once)
    blocks = [patches_of(WIDE["polar"](True), signals) for signals in (shared, separate)]
    torch.testing.assert_close(blocks, whole)


def test_one_chart_serves_all_signals_where_they_share_a_domain(graph):
    polar = Convolution(WIDE["polar"](True), dtype=torch.float64)
    images = Signals.from_images(np.random.default_rng(0).normal(size=(5, 4, 4)))
    shared = Signals.on_graph(
        np.random.default_rng(0).normal(size=(5, 11)), graph["edges"], None, graph["coordinates"]
    )
    for signals in (images, shared):
        chart = polar.shared_chart(signals)
        run = polar.patches(signals[1:3], chart).values
        torch.testing.assert_close(run, polar.patches(signals)[1:3].values)
    assert isinstance(polar.shared_chart(images), Stencil)
    assert polar.shared_chart(signals_on(graph, "coordinates", copies=2)) is None


def test_read_only_signals_of_joblib_workers_cause_no_warning(graph):
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for signals in (Signals.from_images(np.ones((1, 3, 3))), signals_on(graph, "coordinates")):
            expected = Convolution(Box(1)).patches(signals).values
            for array in (signals.values, signals.offsets):
                array.flags.writeable = False
            torch.testing.assert_close(Convolution(Box(1)).patches(signals).values, expected)
    finally:
        torch.set_warn_always(before)


def test_memory_of_a_signal_covers_at_least_its_patches(graph):
    for signals in (Signals.from_images(np.ones((3, 5, 5))), signals_on(graph, "coordinates", copies=2)):
        polar = Convolution(WIDE["polar"](True), bin_counts=True)
        needed = polar.bytes_per_signal(signals)
        assert needed.shape == (len(signals),)
        assert (needed >= signals.vertex_counts * polar.dim(signals) * 4).all()


def test_box_inside_keeps_the_vertices_whose_square_lies_in_the_image():
    images = [np.arange(20.0).reshape(4, 5), np.arange(4.0).reshape(2, 2), np.arange(9.0).reshape(3, 3)]
    patches = Convolution(Box(3)).patches(Signals.from_images(images))
    assert patches.offsets.tolist() == [0, 6, 6, 7]
    assert patches.vertices.tolist() == [6, 7, 8, 11, 12, 13, 28]
    windows = np.lib.stride_tricks.sliding_window_view(images[0], (3, 3)).reshape(6, 9)
    np.testing.assert_array_equal(patches.values[:6], windows)
    np.testing.assert_array_equal(patches.values[6], np.arange(9.0))
    assert patches.multiplicity.tolist() == [1.0] * 7


def test_box_inside_drops_counts_and_positions_too():
    patches = Convolution(Box(2), bin_counts=True, position=True).patches(
        Signals.from_images(np.ones((1, 3, 3)))
    )
    assert patches.vertices.tolist() == [0, 1, 3, 4]
    assert patches.values[:, 8:].tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert (patches.values[:, :8] == 1).all()


@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("size", [12, 28, 33])
def test_box_inside_keeps_exactly_the_inner_pixels_in_single_precision(side, size):
    images = np.random.default_rng(0).uniform(size=(3, size, size)).astype(np.float32)
    patches = Convolution(Box(side)).patches(Signals.from_images(images))
    assert patches.offsets.diff().tolist() == [(size - side + 1) ** 2] * 3
    windows = np.lib.stride_tricks.sliding_window_view(images, (side, side), axis=(1, 2))
    np.testing.assert_array_equal(patches.values, windows.reshape(-1, side**2))


def test_all_vertices_are_kept_otherwise(graph):
    patches = Convolution(WIDE["polar"](True)).patches(signals_on(graph, "coordinates"))
    assert patches.vertices.tolist() == list(range(11))
    assert patches.multiplicity.tolist() == [1.0] * 11


class PatchModule(torch.nn.Module):
    """Patches as a function of the parameters of a weighting."""

    def __init__(self, weighting, signals, **options):
        super().__init__()
        self.weighting, self.signals, self.options = weighting, signals, options

    def forward(self):
        return Convolution(self.weighting, dtype=torch.float64, **self.options).patches(self.signals).values


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("family", WIDE)
@pytest.mark.parametrize("domain", ["grid", "graph", "shared graph"])
def test_gradients_with_respect_to_the_weighting_are_right(graph, domain, family, normalize):
    random = np.random.default_rng(0)
    signals = {
        "grid": lambda: Signals.from_images([random.normal(size=(3, 3, 2)), random.normal(size=(2, 3, 2))]),
        "graph": lambda: signals_on(graph, "coordinates"),
        "shared graph": lambda: Signals.on_graph(
            random.normal(size=(2, 11)), graph["edges"], None, graph["coordinates"]
        ),
    }[domain]()
    module = PatchModule(WIDE[family](normalize), signals, bin_counts=True)
    names = [name for name, _ in module.named_parameters()]

    def values(*parameters):
        return functional_call(module, dict(zip(names, parameters, strict=True)), ())

    start = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]
    assert torch.autograd.gradcheck(values, start, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("domain", ["grid", "graph"])
def test_gradients_are_finite_where_a_bin_is_empty(graph, domain, dtype):
    """At radius 50 all weights underflow to zero: the bin is 0 there, and so is its gradient."""
    weighting = Radial(radii=[0.0, 50.0], radial_width=0.5)
    signals = (
        signals_on(graph, "coordinates") if domain == "graph" else Signals.from_images(np.ones((1, 3, 3)))
    )
    patches = Convolution(weighting, dtype=dtype).patches(signals).values
    assert (patches[:, 1] == 0).all()
    (10 * patches).sum().backward()
    for name, parameter in weighting.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


@small
@given(random_graphs(), st.booleans(), st.sampled_from(["euclidean", "path"]), st.integers(0, 99))
def test_patches_are_linear_in_the_signal(graph, normalize, kind, seed):
    weighting = WIDE["polar"](normalize)
    other = np.random.default_rng(seed).normal(size=graph.values.shape)
    combined = 2.5 * graph.values - 0.5 * other
    actual = [
        patches_of(
            weighting,
            Signals.from_graphs([values], [graph.edges], [graph.lengths], [graph.coordinates]),
            chart=kind,
        )
        for values in (graph.values, other, combined)
    ]
    torch.testing.assert_close(actual[2], 2.5 * actual[0] - 0.5 * actual[1], atol=1e-12, rtol=1e-9)


@small
@given(st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_patches_of_images_are_linear_in_the_image(height, width, normalize, seed):
    one, other = np.random.default_rng(seed).normal(size=(2, height, width))
    stack = Signals.from_images(np.stack([one, other, 2.5 * one - 0.5 * other]))
    actual = patches_of(WIDE["polar"](normalize), stack).reshape(3, height * width, -1)
    torch.testing.assert_close(actual[2], 2.5 * actual[0] - 0.5 * actual[1], atol=1e-12, rtol=1e-9)


@small
@given(random_graphs(), st.booleans(), st.sampled_from(["euclidean", "path"]), st.randoms())
def test_permuting_vertices_permutes_patches(graph, normalize, kind, random):
    order = list(range(len(graph.values)))
    random.shuffle(order)
    weighting = WIDE["polar"](normalize)
    options = {"chart": kind, "bin_counts": True, "position": True}
    actual = patches_of(weighting, graph.signals(), **options)
    permuted = patches_of(weighting, graph.permuted(np.array(order)).signals(), **options)
    torch.testing.assert_close(permuted, actual[order], atol=1e-12, rtol=1e-9)
    rows = [np.round(each.numpy(), 8) + 0.0 for each in (actual, permuted)]
    multisets = [sorted(map(tuple, each.tolist())) for each in rows]
    np.testing.assert_allclose(multisets[0], multisets[1], atol=1e-7)


@small
@given(random_graphs(), st.integers(1, 6), st.integers(-6, 6), st.booleans())
def test_rotating_the_graph_shifts_the_angular_bins(graph, angles, steps, normalize):
    """Coordinates are integers in [−2, 2], so all pairs lie in reach."""
    turn = 2 * np.pi * steps / angles
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    weighting = Polar([1.0, 2.0], angles, radial_width=1.5, normalize=normalize)
    assert weighting.reach > 6
    actual, turned = (
        patches_of(weighting, Signals.from_graphs([graph.values], [graph.edges], None, [coordinates]))
        for coordinates in (graph.coordinates, graph.coordinates @ rotation.T)
    )
    shape = (len(graph.values), 2, 2, angles)
    shifted = actual.reshape(shape).roll(steps, dims=3)
    torch.testing.assert_close(turned.reshape(shape), shifted, atol=1e-9, rtol=1e-9)


@small
@given(random_graphs(max_vertices=1), st.booleans(), st.sampled_from(["euclidean", "path"]))
def test_a_graph_of_one_vertex_sees_itself_in_all_bins(graph, normalize, kind):
    weighting = WIDE["polar"](normalize)
    actual = patches_of(weighting, graph.signals(), chart=kind).reshape(2, 2, 5)
    radial = np.ones(2) if normalize else np.exp(-0.5 * (np.array([0.5, 2.0]) / 0.6) ** 2)
    expected = graph.values[0][:, None, None] * radial[:, None] * np.ones(5)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@small
@given(random_graphs(max_edges=0), st.booleans())
def test_without_edges_paths_reach_only_the_vertex_itself(graph, normalize):
    weighting = WIDE["radial"](normalize)
    actual = patches_of(weighting, graph.signals(), chart="path").reshape(-1, 2, 2)
    radial = np.ones(2) if normalize else np.exp(-0.5 * (np.array([0.0, 1.2]) / 0.45) ** 2)
    np.testing.assert_allclose(actual, graph.values[:, :, None] * radial, atol=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_skipping_zero_pixels_changes_nothing(channels, normalize, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.random((4, 9, 7, channels)) * (rng.random((4, 9, 7, channels)) < 0.3)
    signals = Signals.from_images(images)
    weighting = Polar([1.0, 2.0], 5, normalize=normalize).requires_grad_(False)
    actual = []
    for dense in (0.0, 1.1):
        monkeypatch.setattr(bin_sums, "DENSE_FRACTION", dense)
        actual.append(patches_of(weighting, signals))
    torch.testing.assert_close(actual[1], actual[0], rtol=1e-12, atol=1e-12)
