from itertools import pairwise

import numpy as np
import pytest

from gcgp.mesh.geodesics.distances import ray
from gcgp.mesh.mesh import Mesh
from mesh_shapes import (
    boundary,
    bumpy_sphere,
    cone,
    cylinder,
    icosphere,
    moebius,
    moved,
    plane,
    renumbered,
    scattered_plane,
    three_pages,
    torus,
)

FRAMES = ("edge", "curvature")
FRACTIONS = (0.0, 0.07, 0.25, 1 / 3, 0.5, 0.81)


def neighbors(mesh, v):
    ends = mesh.edges[(mesh.edges == v).any(axis=1)]
    return ends[ends != v]


def longest_edge(mesh, v):
    """The neighbor at the far end of it."""
    others = neighbors(mesh, v)
    return others[np.argmax(np.linalg.norm(mesh.vertices[others] - mesh.vertices[v], axis=1))]


def edge_lengths(mesh):
    return np.linalg.norm(np.diff(mesh.vertices[mesh.edges], axis=1), axis=2)


@pytest.mark.parametrize(
    "mesh",
    [
        plane(15, jitter=0.3),
        scattered_plane(200),
        scattered_plane(200, stretch=5.0),
        moved(plane(11, jitter=0.2)),
    ],
)
def test_on_a_plane_it_goes_straight(mesh):
    longest = edge_lengths(mesh).max()
    normal = np.cross(*(mesh.vertices[mesh.faces[0, 1:]] - mesh.vertices[mesh.faces[0, 0]]))
    normal /= np.linalg.norm(normal)
    middle = mesh.vertices.mean(axis=0)
    for v in np.argsort(np.linalg.norm(mesh.vertices - middle, axis=1))[:12]:
        start = mesh.vertices[longest_edge(mesh, v)] - mesh.vertices[v]
        start /= np.linalg.norm(start)
        aside = np.cross(normal, start)
        for fraction in FRACTIONS:
            path = ray(mesh, int(v), fraction)
            direction = np.cos(2 * np.pi * fraction) * start + np.sin(2 * np.pi * fraction) * aside
            offsets = mesh.vertices[path] - mesh.vertices[v]
            along = offsets @ direction
            assert np.linalg.norm(offsets - along[:, None] * direction, axis=1).max() <= longest / 2 + 1e-9
            assert along.min() >= -longest / 2
            assert len(path) > 2
            # To the boundary it goes, and not beyond.
            assert path[-1] in boundary(mesh)


def test_half_a_turn_is_the_opposite_direction():
    mesh = plane(15, jitter=0.2)
    v = 7 * 15 + 7
    here, there = (mesh.vertices[ray(mesh, v, f)[-1]] - mesh.vertices[v] for f in (0.0, 0.5))
    cosine = here @ there / (np.linalg.norm(here) * np.linalg.norm(there))
    assert cosine < -0.95


@pytest.mark.parametrize("frame", FRAMES)
def test_on_a_sphere_it_follows_a_great_circle(frame):
    mesh = icosphere(4)
    edge = edge_lengths(mesh).max()
    for v in range(0, len(mesh.vertices), 300):
        for fraction in (0.0, 0.3, 0.7):
            path = ray(mesh, v, fraction, length=2.5, frame=frame)
            places = mesh.vertices[path]
            far = places[np.argmin(np.abs(places @ places[0]))]
            normal = np.cross(places[0], far)
            off = places @ (normal / np.linalg.norm(normal))
            assert np.abs(off).max() < 2 * edge
            assert np.arccos(places[-1] @ places[0]) == pytest.approx(2.5, abs=2 * edge)


@pytest.mark.parametrize("length", [0.0, 0.1, 0.5, 1.0])
def test_it_stops_at_its_length(length):
    mesh = plane(41)
    v = 20 * 41 + 20
    for fraction in FRACTIONS:
        path = ray(mesh, v, fraction, length=length)
        whole = ray(mesh, v, fraction)
        np.testing.assert_array_equal(path, whole[: len(path)])
        reached = np.linalg.norm(mesh.vertices[path] - mesh.vertices[v], axis=1).max()
        assert reached <= length + np.sqrt(2) / 40
        if length < 0.5:
            assert reached >= length - np.sqrt(2) / 40


CLOSED = [icosphere(0), icosphere(3), bumpy_sphere(2), torus(15, 9), moebius(11), cylinder(5, 9), cone(4, 7)]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("mesh", [*CLOSED, three_pages(5), plane(6)])
def test_without_a_limit_it_ends_and_is_a_path(mesh, frame):
    joined = {tuple(edge) for edge in mesh.edges.tolist()}
    beside = {v: set(neighbors(mesh, v).tolist()) for v in range(len(mesh.vertices))}
    for v in range(0, len(mesh.vertices), 1 + len(mesh.vertices) // 20):
        for fraction in FRACTIONS:
            path = ray(mesh, v, fraction, frame=frame).tolist()
            assert path[0] == v
            assert len(path) > 1
            assert len(path) <= len(mesh.faces) + 2
            for a, b in pairwise(path):
                assert a != b
                # The nearer ends of two edges of one triangle, or of two triangles with a common edge.
                assert tuple(sorted((a, b))) in joined or beside[a] & beside[b]


def test_a_ray_goes_on_over_an_edge_of_three_faces_where_it_bends_least():
    mesh = three_pages(7)
    right = int(np.argmin(np.linalg.norm(mesh.vertices - [0.5, 0.5, 0], axis=1)))
    across = [mesh.vertices[ray(mesh, right, fraction)] for fraction in np.linspace(0, 1, 24, endpoint=False)]
    passed = [places for places in across if places[:, 0].min() < -0.1]
    assert len(passed) >= 5
    for places in across:
        assert np.abs(places[:, 2]).max() == 0


@pytest.mark.parametrize("mesh", [plane(8, jitter=0.3), bumpy_sphere(2), torus(12, 7), cone(4, 7)])
def test_in_the_frame_of_the_edge_it_starts_along_the_longest_edge(mesh):
    for v in range(len(mesh.vertices)):
        lengths = np.sort(np.linalg.norm(mesh.vertices[neighbors(mesh, v)] - mesh.vertices[v], axis=1))
        if lengths[-1] > lengths[-2] * (1 + 1e-6):
            assert ray(mesh, v, 0.0)[1] == longest_edge(mesh, v)


def test_at_a_corner_of_one_triangle_it_starts_along_the_longest_edge():
    mesh = Mesh([[0, 0, 0], [1, 0, 0], [0, 3, 0]], [[0, 1, 2]])
    assert ray(mesh, 0, 0.0).tolist() == [0, 2]
    turned = Mesh([[0, 0, 0], [3, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    assert ray(turned, 0, 0.0).tolist() == [0, 1]


@pytest.mark.parametrize("faces", [[[0, 1, 2]], [[0, 2, 1]], [[1, 2, 0]]])
def test_on_one_triangle_all_rays_end_at_its_far_edge(faces):
    mesh = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], faces)
    for fraction in FRACTIONS:
        path = ray(mesh, 0, fraction)
        assert path[0] == 0
        assert path[1:].tolist() in ([1], [2])


def test_the_principal_direction_on_a_cylinder_goes_round_it():
    mesh = cylinder(21, 30)
    step = 3 / 20
    for row in (5, 10, 14):
        for v in range(row * 30, row * 30 + 30, 7):
            for fraction in (0.0, 0.5):
                path = ray(mesh, v, fraction, length=2.0, frame="curvature")
                heights = mesh.vertices[path, 2] - mesh.vertices[v, 2]
                assert np.abs(heights).max() <= step
            along = ray(mesh, v, 0.25, length=0.6, frame="curvature")
            turned = mesh.vertices[along, :2] @ mesh.vertices[v, :2]
            assert turned.min() > np.cos(2 * 2 * np.pi / 30)


@pytest.mark.parametrize("frame", FRAMES)
def test_turning_shifting_renumbering_and_scaling_change_nothing(frame):
    mesh = bumpy_sphere(2, height=0.4)
    rng = np.random.default_rng(0)
    for seed in range(5):
        order = rng.permutation(len(mesh.vertices))
        other = moved(renumbered(mesh, order), seed).scaled(10.0 ** rng.integers(-6, 6))
        for i in range(0, len(order), 11):
            for fraction in (0.1, 0.6):
                expected = ray(mesh, int(order[i]), fraction, frame=frame)
                np.testing.assert_array_equal(order[ray(other, i, fraction, frame=frame)], expected)


@pytest.mark.parametrize("frame", FRAMES)
def test_on_a_surface_of_revolution_its_side_does_not_depend_on_rounding(frame):
    """The principal direction round the axis faces neither towards the centroid nor away from it."""
    mesh = cylinder(9, 12)
    mesh = Mesh(
        mesh.vertices + 0.001 * np.sin(np.arange(mesh.vertices.size)).reshape(-1, 3) * [0, 0, 1], mesh.faces
    )
    for seed in range(5):
        other = moved(mesh, seed)
        for v in range(36, 60):
            np.testing.assert_array_equal(ray(other, v, 0.1, frame=frame), ray(mesh, v, 0.1, frame=frame))


def test_a_fraction_is_that_of_a_whole_turn():
    mesh = bumpy_sphere(2)
    for fraction in (0.25, 0.5, 0.875):
        for whole in (-2, -1, 1, 3):
            np.testing.assert_array_equal(ray(mesh, 9, fraction + whole), ray(mesh, 9, fraction))


def test_a_vertex_without_faces_is_all_there_is():
    assert ray(Mesh([[0, 0, 0], [1, 0, 0]], []), 1, 0.3).tolist() == [1]
    assert ray(Mesh([[0, 0, 0], [1, 0, 0]], [[0, 1, 1]]), 1, 0.3).tolist() == [1]


@pytest.mark.parametrize(
    ("vertex", "frame", "message"),
    [(12, "edge", "is 12, but"), (-1, "edge", "is -1"), (0.5, "edge", "expected"), (0, "sun", "frame='sun'")],
)
def test_bad_arguments_are_named(vertex, frame, message):
    with pytest.raises(ValueError, match=message):
        ray(icosphere(0), vertex, 0.0, frame=frame)
