import numpy as np
import potpourri3d
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st
from pygeodesic.geodesic import PyGeodesicAlgorithmExact
from scipy.sparse.csgraph import dijkstra

from gcgp.mesh.decimation import decimate
from gcgp.mesh.geodesics.distances import distances
from gcgp.mesh.mesh import Mesh
from mesh_shapes import (
    as_mesh,
    bumpy_sphere,
    cone,
    cylinder,
    edge_graph,
    icosphere,
    moebius,
    moved,
    plane,
    renumbered,
    scattered_plane,
    sheared_plane,
    side_by_side,
    three_pages,
    torus,
)

FRONTS = ("point", "line")
both_fronts = pytest.mark.parametrize("front", FRONTS)


def exact(mesh, source):
    return PyGeodesicAlgorithmExact(mesh.vertices, mesh.faces.astype(np.int32)).geodesicDistances(
        np.array([source]), None
    )[0]


def straight(mesh, source):
    return np.linalg.norm(mesh.vertices - mesh.vertices[source], axis=1)


def obtuse_sphere():
    """A sphere whose triangles are stretched: more than half of them are obtuse."""
    mesh = bumpy_sphere(3)
    return Mesh(mesh.vertices * [0.25, 1, 1], mesh.faces)


COMPARED = {
    "sphere": icosphere(4),
    "plane": plane(30, jitter=0.2),
    "torus": torus(60, 30),
    "decimated": decimate(bumpy_sphere(4), 1200),
    "obtuse": obtuse_sphere(),
    "obtuse plane": scattered_plane(600, stretch=6.0),
}


@pytest.mark.parametrize("mesh", COMPARED.values(), ids=COMPARED.keys())
def test_near_distances_are_as_close_to_exact_ones_as_those_of_potpourri3d(mesh):
    other = potpourri3d.MeshFastMarchingDistanceSolver(mesh.vertices, mesh.faces.astype(np.int32))
    ours, theirs = [], []
    for source in np.random.default_rng(0).choice(len(mesh.vertices), 4, replace=False).tolist():
        true = exact(mesh, source)
        near = true <= 0.3
        ours.append(np.abs(distances(mesh, [source]) - true)[near].mean())
        theirs.append(np.abs(other.compute_distance([[(source, [])]]) - true)[near].mean())
    assert np.mean(ours) <= np.mean(theirs)
    assert np.mean(ours) < 0.3 * 0.01


@pytest.mark.parametrize("mesh", COMPARED.values(), ids=COMPARED.keys())
def test_distances_over_the_whole_mesh_are_close_to_exact_ones(mesh):
    true = exact(mesh, 7)
    assert np.abs(distances(mesh, [7]) - true).mean() < 0.01 * true.mean()
    assert np.abs(distances(mesh, [7], front="line") - true).mean() < 0.08 * true.mean()


@both_fronts
def test_errors_fall_with_refinement_on_a_sphere(front):
    errors = []
    for subdivisions in (2, 3, 4):
        mesh = icosphere(subdivisions)
        errors.append(np.abs(distances(mesh, [5], front=front) - exact(mesh, 5)).mean())
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]


@pytest.mark.parametrize("shape", [plane, sheared_plane, lambda side: plane(side, stretch=5.0)])
def test_a_line_front_from_a_line_is_exact_on_a_plane(shape):
    mesh = shape(12)
    row = np.arange(12) * 12  # y = 0
    expected = mesh.vertices[:, 1]
    within = np.ones(len(expected), dtype=bool)
    if shape is sheared_plane:  # over its slanted ends the nearest point of the line is a corner
        within = (mesh.vertices[:, 0] >= 0.3) & (mesh.vertices[:, 0] <= 1)
    np.testing.assert_allclose(distances(mesh, row, front="line")[within], expected[within], atol=1e-8)


@pytest.mark.parametrize("shear", [0.8, 1.5, 3.0])
def test_a_line_front_is_of_first_order_where_all_triangles_are_obtuse(shear):
    errors = []
    for side in (9, 17, 33, 65):
        mesh = sheared_plane(side, shear)
        middle = side // 2 * side + side // 2
        off = distances(mesh, [middle], front="line") - straight(mesh, middle)
        errors.append(off.mean())
    # Around a point the error is h log h: halving h from 1/32 to 1/64 divides it by at most 1.67.
    assert errors[0] > 1.25 * errors[1]
    assert errors[1] > 1.45 * errors[2]
    assert errors[2] > 1.55 * errors[3]


def stretched_rows(side):
    """A grid sheared along its diagonals: flat, clean, and every triangle has an angle of 146 degrees."""
    vertices = plane(side).vertices.copy()
    vertices[:, 0] += 1.5 * vertices[:, 1]
    return Mesh(vertices, plane(side).faces)


@both_fronts
@pytest.mark.parametrize(
    "mesh", [stretched_rows(65), sheared_plane(129, 3.0), scattered_plane(1600, stretch=30.0)]
)
def test_all_of_a_clean_plane_of_obtuse_triangles_is_reached(mesh, front):
    source = int(np.argmin(np.linalg.norm(mesh.vertices - mesh.vertices.mean(axis=0), axis=1)))
    found = distances(mesh, [source], front=front)
    assert np.isfinite(found).all()
    along = dijkstra(edge_graph(mesh), directed=False, indices=source)
    assert (found <= along * (1 + 1e-5)).all()
    assert np.abs(found - straight(mesh, source)).mean() < 0.05


@pytest.mark.parametrize(
    "mesh",
    [
        plane(15),
        plane(15, jitter=0.35),
        plane(10, stretch=20.0),
        sheared_plane(12, 1.0),
        sheared_plane(12, 4.0),
    ],
)
def test_a_point_front_is_exact_on_convex_planes(mesh):
    for source in range(0, len(mesh.vertices), 11):
        np.testing.assert_allclose(distances(mesh, [source]), straight(mesh, source), rtol=1e-6)


@pytest.mark.parametrize(
    "mesh",
    [
        scattered_plane(200),
        scattered_plane(200, stretch=5.0, seed=1),
        scattered_plane(200, stretch=30.0, seed=2),
        moved(scattered_plane(100, stretch=10.0, seed=3)),
    ],
)
def test_a_point_front_is_nearly_exact_on_convex_planes_of_uneven_triangles(mesh):
    """A front that comes later may find a shorter way to a vertex that was passed on."""
    for source in range(0, len(mesh.vertices), 11):
        np.testing.assert_allclose(distances(mesh, [source]), straight(mesh, source), rtol=0.03)


def test_the_shorter_way_around_a_cylinder_is_taken():
    mesh = cylinder(21, 60)
    x, y, z = mesh.vertices.T
    round_it = np.abs(np.arctan2(y, x))
    source = 10 * 60  # angle 0, in the middle
    assert round_it[source] == 0
    true = np.hypot(round_it, z - z[source])
    np.testing.assert_allclose(distances(mesh, [source]), true, rtol=0.02, atol=1e-9)


def test_the_tip_of_a_cone_is_at_its_slant_height():
    mesh = cone(12, 30)
    heights = np.hypot(np.linalg.norm(mesh.vertices[:, :2], axis=1), mesh.vertices[:, 2])
    np.testing.assert_allclose(distances(mesh, [0]), heights, rtol=0.01)


PROPERTIES = [
    bumpy_sphere(1, height=0.5),
    plane(7, jitter=0.3),
    scattered_plane(40, stretch=9.0),
    torus(9, 7),
    moebius(9),
    cone(4, 7),
    cylinder(4, 7),
    three_pages(4),
    as_mesh(trimesh.creation.box()),
]


def rough(seed):
    """A closed or open mesh with vertices moved at random, and some faces removed."""
    rng = np.random.default_rng(seed)
    mesh = PROPERTIES[seed % len(PROPERTIES)]
    shift = rng.choice([0, 0.05]) * rng.normal(size=mesh.vertices.shape)
    kept = rng.random(len(mesh.faces)) < rng.choice([1, 1, 0.8])
    return Mesh(mesh.vertices * rng.uniform(0.2, 1, 3) + shift, mesh.faces[kept])


def rough_meshes():
    return st.integers(0, 2**32 - 1).map(rough)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(rough_meshes(), st.integers(0, 2**32 - 1), st.sampled_from(FRONTS))
def test_distances_from_one_source_are_between_the_chord_and_the_path_along_edges(mesh, seed, front):
    source = seed % len(mesh.vertices)
    found = distances(mesh, [source], front=front)
    along = dijkstra(edge_graph(mesh), directed=False, indices=source)
    np.testing.assert_array_equal(np.isinf(found), np.isinf(along))
    reached = np.isfinite(along)
    assert (found[reached] <= along[reached] * (1 + 1e-9)).all()
    assert (found >= straight(mesh, source) * (1 - 1e-12)).all()
    assert found[source] == 0


def test_distances_from_several_sources_are_at_most_those_along_edges():
    for seed in range(700):
        check_several_sources(rough(seed), np.random.default_rng(seed), FRONTS[seed // 9 % 2])


def check_several_sources(mesh, rng, front):
    sources = rng.integers(0, len(mesh.vertices), rng.integers(2, 5))
    starts = rng.choice([0, 0.3]) * rng.random(len(sources))
    found = distances(mesh, sources, starts=starts, front=front)
    along = dijkstra(edge_graph(mesh), directed=False, indices=sources) + starts[:, None]
    assert (found <= along.min(axis=0) * (1 + 1e-5)).all()
    assert (found >= 0).all()
    assert (found[sources] <= starts).all()


def test_distances_from_several_sources_are_close_to_the_minimum_over_sources():
    mesh = icosphere(3)
    sources, starts = [0, 200, 411], [0.0, 0.2, 0.1]
    together = distances(mesh, sources, starts=starts)
    alone = np.min([distances(mesh, [s], starts=[t]) for s, t in zip(sources, starts, strict=True)], axis=0)
    assert (together <= alone * (1 + 1e-9)).all()
    # On edges whose ends are nearest to different sources the front mixes both.
    assert np.abs(together - alone).max() < 0.1
    assert np.abs(together - alone).mean() < 0.02


def test_a_source_with_a_late_start_is_ignored():
    mesh = plane(9)
    late = distances(mesh, [0, 40], starts=[0.0, 50.0])
    np.testing.assert_allclose(late, distances(mesh, [0]), rtol=1e-9)
    assert distances(mesh, [3, 3], starts=[2.0, 1.0])[3] == 1.0


def test_a_start_is_added_to_all_distances():
    mesh = plane(9, jitter=0.3)
    found = distances(mesh, [40], starts=[2.0], front="line")
    np.testing.assert_allclose(found, 2 + distances(mesh, [40], front="line"), rtol=1e-9)


def test_a_start_is_added_to_all_distances_from_a_point_too():
    mesh = plane(20)
    found = distances(mesh, [190], starts=[2.0])
    np.testing.assert_allclose(found, 2 + distances(mesh, [190]), rtol=0.03)


def test_unreachable_vertices_are_at_infinity():
    mesh = side_by_side(icosphere(1), icosphere(1), Mesh([[0, 0, 0]], []))
    found = distances(mesh, [3])
    np.testing.assert_array_equal(np.isfinite(found), np.arange(85) < 42)
    np.testing.assert_array_equal(distances(mesh, [84]), [np.inf] * 84 + [0])
    assert np.isfinite(distances(mesh, [3, 50, 84])).all()


@both_fronts
@pytest.mark.parametrize("mesh", PROPERTIES[:7])
def test_a_radius_changes_nothing_within_it(mesh, front):
    for source in range(0, len(mesh.vertices), 5):
        whole = distances(mesh, [source], front=front)
        for radius in np.quantile(whole, [0, 0.3, 0.7]):
            found = distances(mesh, [source], front=front, radius=radius)
            expected = np.where(whole <= radius, whole, np.inf)
            np.testing.assert_allclose(found, expected, rtol=1e-9)


@both_fronts
@pytest.mark.parametrize("mesh", PROPERTIES[:-1])
@pytest.mark.parametrize("factor", [1e6, 1e-6, 1e-9, 1 / 3])
def test_scaling(mesh, factor, front):
    found = distances(mesh.scaled(factor), [0], front=front)
    np.testing.assert_allclose(found, factor * distances(mesh, [0], front=front), rtol=1e-9)


@both_fronts
@pytest.mark.parametrize("mesh", [icosphere(2), bumpy_sphere(2), scattered_plane(60), cone(4, 7)])
def test_rotation_translation_and_numbering_change_nothing_without_right_angles(mesh, front):
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(mesh.vertices))
        found = distances(moved(renumbered(mesh, order), seed), [0], front=front)
        np.testing.assert_allclose(found, distances(mesh, [order[0]], front=front)[order], rtol=1e-5)


def test_scaling_a_box():
    box = PROPERTIES[-1]
    for factor in (1e6, 1e-6, 1 / 3):
        found = distances(box.scaled(factor), [0], front="line")
        np.testing.assert_allclose(found, factor * distances(box, [0], front="line"), rtol=1e-6)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.sampled_from(PROPERTIES), st.integers(0, 2**32 - 1), st.sampled_from(FRONTS))
def test_rotation_translation_and_numbering_change_nothing(mesh, seed, front):
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    other = moved(renumbered(mesh, order), seed % 1000)
    source = seed % len(order)
    found = distances(other, [source], front=front)
    np.testing.assert_allclose(found, distances(mesh, [order[source]], front=front)[order], rtol=1e-5)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rough_meshes(), st.integers(0, 2**32 - 1))
def test_the_order_and_orientation_of_faces_change_nothing(mesh, seed):
    rng = np.random.default_rng(seed)
    turned = rng.random(len(mesh.faces)) < 0.5
    faces = np.where(turned[:, None], mesh.faces[:, ::-1], mesh.faces)
    faces = np.roll(faces, int(rng.integers(3)), axis=1)[rng.permutation(len(faces))]
    found = distances(Mesh(mesh.vertices, faces), [0])
    np.testing.assert_allclose(found, distances(mesh, [0]), rtol=1e-6)


def test_a_single_triangle():
    mesh = Mesh([[0, 0, 0], [3, 0, 0], [0, 4, 0]], [[0, 1, 2]])
    for front in FRONTS:
        np.testing.assert_allclose(distances(mesh, [1], front=front), [3, 0, 5])
    np.testing.assert_allclose(distances(mesh, [0, 1], front="line"), [0, 0, 4])


def test_the_way_around_a_corner_touches_the_corner():
    """An L of flat squares: the way from one arm to the other bends at the inner corner."""
    side = 9
    whole = plane(side)
    middles = whole.vertices[whole.faces].mean(axis=1)
    mesh = Mesh(whole.vertices, whole.faces[(middles[:, 0] < 0.5) | (middles[:, 1] < 0.5)])
    first, last = side - 1, side * (side - 1)  # (0, 1) and (1, 0)
    corner = side // 2 * side + side // 2
    found = distances(mesh, [first])
    assert found[corner] == pytest.approx(np.sqrt(0.5))
    assert found[last] == pytest.approx(2 * np.sqrt(0.5), rel=0.01)
    assert np.isinf(found[side * side - 1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": []}, "sources=.*expected one or more indices of vertices"),
        ({"sources": [0.5]}, "sources=.*expected one or more indices of vertices"),
        ({"sources": [True]}, "sources=.*expected one or more indices of vertices"),
        ({"sources": [[0, 1]]}, "sources=.*expected one or more indices of vertices"),
        ({"sources": [0, 12]}, r"sources\[1\] is 12, but its vertices are 0 to 11"),
        ({"sources": [-1]}, r"sources\[0\] is -1"),
        ({"sources": [0], "starts": [0.0, 1.0]}, "starts: 2 values for 1 sources"),
        (
            {"sources": [0, 1], "starts": [0.0, -1.0]},
            r"starts\[1\] is -1.0; it must be finite and not negative",
        ),
        ({"sources": [0], "starts": [np.nan]}, r"starts\[0\] is nan"),
        ({"sources": [0], "starts": [np.inf]}, r"starts\[0\] is inf"),
        ({"sources": [0], "radius": -1.0}, "radius=-1.0 must not be negative"),
        ({"sources": [0], "radius": np.nan}, "radius=nan"),
        ({"sources": [0], "front": "circle"}, "front='circle' is not known; expected one of 'point', 'line'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        distances(icosphere(0), **arguments)
