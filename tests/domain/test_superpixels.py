"""Superpixels: a fixed point of k-means, edges below a threshold, one seed."""

import math

import numba
import numpy as np
import pytest

from gcgp.domain import Graphs, Signals, superpixels


@pytest.fixture(scope="module")
def images():
    """Bright blobs of random values on a background of zeros."""
    random = np.random.default_rng(0)
    values = random.uniform(0.1, 1.0, size=(6, 14, 14))
    rows, columns = np.indices((14, 14))
    for image in values:
        center = random.uniform(4, 9, size=2)
        image[(rows - center[0]) ** 2 + (columns - center[1]) ** 2 > 16] = 0.0
    return values


def assert_same(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.offsets, other.offsets)
    for field in ("vertex_offsets", "edges", "edge_offsets", "edge_lengths", "coordinates"):
        np.testing.assert_array_equal(getattr(one.domains, field), getattr(other.domains, field))


def pixels_of(image):
    """Column, row and channels of each pixel of one image `[H, W]` or `[H, W, C]`."""
    image = image.reshape(*image.shape[:2], -1)
    return [
        (column, row, *map(float, image[row, column]))
        for row in range(image.shape[0])
        for column in range(image.shape[1])
    ]


def test_the_same_seed_gives_the_same_graphs(images):
    assert_same(superpixels(images, 12, 8, random_state=3), superpixels(images, 12, 8, random_state=3))


def test_another_seed_gives_other_graphs(images):
    one = superpixels(images, 12, 8, random_state=3)
    other = superpixels(images, 12, 8, random_state=4)
    for a, b in zip(one, other, strict=True):
        assert a.domains.coordinates.tolist() != b.domains.coordinates.tolist()


def test_results_do_not_depend_on_the_number_of_threads(images):
    most = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        sequential = superpixels(images, 12, 8)
        numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
        parallel = superpixels(images, 12, 8)
    finally:
        numba.set_num_threads(most)
    assert_same(sequential, parallel)


def test_results_do_not_depend_on_later_images(images):
    assert_same(superpixels(images[:2], 12, 8), superpixels(images, 12, 8)[:2])
    changed = images.copy()
    changed[0] = changed[5]
    assert_same(superpixels(changed, 12, 8)[1:], superpixels(images, 12, 8)[1:])


def test_result_is_signals_on_graphs_with_lengths_and_coordinates(images):
    signals = superpixels(images, 12, 8)
    assert isinstance(signals, Signals)
    assert isinstance(signals.domains, Graphs)
    assert len(signals) == len(images)
    assert (signals.vertex_counts <= 20).all()
    assert (signals.vertex_counts >= 15).all()
    assert signals.values.dtype == images.dtype
    assert superpixels(images.astype(np.float32), 12, 8).values.dtype == np.float32


@pytest.mark.parametrize("value_scale", [0.0, 5.0])
def test_each_vertex_is_the_mean_of_the_pixels_nearest_to_it(images, value_scale):
    """At the fixed point of Lloyd's algorithm, whose clusters are separate for foreground and background."""
    for image, signal in zip(
        images, superpixels(images, 7, 5, value_scale=value_scale, max_iter=1000), strict=True
    ):
        scale = value_scale / image.max()
        vertices = [
            (x, y, value)
            for (x, y), value in zip(signal.domains.coordinates, signal.values[:, 0], strict=True)
        ]
        members = {v: [] for v in range(len(vertices))}
        for pixel in pixels_of(image):
            same_part = [v for v in members if (vertices[v][2] > 0) == (pixel[2] > 0)]
            nearest = min(
                same_part,
                key=lambda v, pixel=pixel: math.hypot(
                    vertices[v][0] - pixel[0],
                    vertices[v][1] - pixel[1],
                    scale * (vertices[v][2] - pixel[2]),
                ),
            )
            members[nearest].append(pixel)
        for v, pixels in members.items():
            np.testing.assert_allclose(np.mean(pixels, axis=0), vertices[v], atol=1e-9)


def test_the_mean_over_one_cluster_is_the_mean_of_its_part(images):
    for image, signal in zip(images, superpixels(images, 1, 1), strict=True):
        bright = [pixel for pixel in pixels_of(image) if pixel[2] > 0]
        dark = [pixel for pixel in pixels_of(image) if pixel[2] == 0]
        expected = np.array([np.mean(bright, axis=0), np.mean(dark, axis=0)])
        np.testing.assert_allclose(signal.domains.coordinates, expected[:, :2])
        np.testing.assert_allclose(signal.values[:, 0], expected[:, 2])


def test_fewer_pixels_than_clusters_gives_one_vertex_per_pixel():
    image = np.random.default_rng(0).uniform(0.1, 1.0, size=(4, 5))
    image[1:3, 2] = 0.0
    signal = superpixels(image[None], foreground=50, background=25)
    coordinates = signal.domains.coordinates.tolist()
    actual = {
        tuple(position): value for position, value in zip(coordinates, signal.values[:, 0], strict=True)
    }
    assert len(actual) == len(coordinates) == 20
    assert actual == {(column, row): value for column, row, value in pixels_of(image)}


def test_foreground_comes_first_and_background_is_zero(images):
    for signal in superpixels(images, 12, 8):
        bright = signal.values[:, 0] > 0
        assert (signal.values[~bright] == 0).all()
        assert 0 < bright.sum() <= 12
        assert 0 < (~bright).sum() <= 8
        assert (np.diff(bright.astype(int)) <= 0).all()


@pytest.mark.parametrize("threshold", [0.0, 2.0, 4.5])
def test_edges_are_exactly_the_pairs_below_the_threshold(images, threshold):
    for signal in superpixels(images[:3], 12, 8, threshold=threshold):
        coordinates = signal.domains.coordinates
        expected = {}
        for v in range(len(coordinates)):
            for w in range(v + 1, len(coordinates)):
                distance = math.dist(coordinates[v], coordinates[w])
                if distance < threshold:
                    expected[v, w] = distance
        edges = [tuple(edge) for edge in signal.domains.edges.tolist()]
        assert len(edges) == len(set(edges))
        assert sorted(edges) == sorted(expected)
        lengths = [expected[edge] for edge in edges]
        np.testing.assert_allclose(signal.domains.edge_lengths, lengths, rtol=1e-6)


def test_color_images_are_bright_where_any_channel_is():
    image = np.zeros((3, 3, 3))
    image[0, 0] = (0.0, 0.5, 0.0)
    image[2, 1] = (1.0, 0.0, 0.25)
    signal = superpixels(image[None], foreground=2, background=1)
    assert signal.channels == 3
    actual = dict(
        zip(map(tuple, signal.domains.coordinates[:2].tolist()), signal.values[:2].tolist(), strict=True)
    )
    assert actual == {(0.0, 0.0): [0.0, 0.5, 0.0], (1.0, 2.0): [1.0, 0.0, 0.25]}
    np.testing.assert_array_equal(signal.values[2], 0.0)


def test_colors_separate_clusters_when_values_weigh_much():
    image = np.zeros((6, 6, 2))
    image[:, ::2, 0] = image[:, 1::2, 1] = 1.0
    signal = superpixels(image[None], foreground=2, background=0, value_scale=1000.0)
    assert sorted(signal.values.tolist()) == [[0.0, 1.0], [1.0, 0.0]]


def test_images_may_be_integers():
    signal = superpixels(np.eye(4, dtype=np.uint8)[None] * 255, foreground=4, background=1)
    assert signal.values[:, 0].tolist() == [255.0, 255.0, 255.0, 255.0, 0.0]


def test_one_part_may_have_no_clusters():
    assert superpixels(np.eye(4)[None], foreground=4, background=0).vertex_counts.tolist() == [4]
    assert superpixels(np.eye(4)[None], foreground=0, background=3).values.tolist() == [[0.0]] * 3


def test_an_image_without_clusters_raises():
    with pytest.raises(ValueError, match="image 1: no clusters, because it is all background"):
        superpixels(np.stack([np.eye(3), np.zeros((3, 3))]), foreground=2, background=0)
    with pytest.raises(ValueError, match="image 0: no clusters, because it is all foreground"):
        superpixels(np.ones((1, 3, 3)), foreground=0, background=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"foreground": -1}, "foreground=-1 must be an integer of at least 0"),
        ({"background": -2}, "background=-2 must be an integer of at least 0"),
        ({"foreground": 0, "background": 0}, "foreground and background are both 0"),
        ({"threshold": -1.0}, "threshold=-1.0 must be finite and not negative"),
        ({"threshold": np.nan}, "threshold=nan must be finite"),
        ({"value_scale": np.inf}, "value_scale=inf must be finite"),
        ({"max_iter": 0}, "max_iter=0 must be an integer of at least 1"),
    ],
)
def test_arguments_out_of_range_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        superpixels(np.eye(4)[None], **arguments)


def test_images_must_be_stacks_of_finite_numbers():
    with pytest.raises(ValueError, match=r"images: expected shape \[N, H, W\].*got \(4, 4\)"):
        superpixels(np.eye(4))
    with pytest.raises(ValueError, match=r"signal 0: values at \[5, 0\] is nan"):
        superpixels(np.where(np.arange(16).reshape(1, 4, 4) == 5, np.nan, 1.0))


def test_images_must_not_be_negative():
    images = np.ones((2, 3, 3))
    images[1, 2, 0] = -0.5
    with pytest.raises(ValueError, match=r"image 1: .*-0\.5"):
        superpixels(images)
