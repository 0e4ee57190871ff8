import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcgp.domain.mesh_charts import mesh_chart, rounded_up
from gcgp.domain.meshes import Meshes
from gcgp.mesh.geodesics.distances import distances, ray
from gcgp.mesh.mesh import Mesh
from mesh_shapes import (
    boundary,
    bumpy_sphere,
    cone,
    icosphere,
    moved,
    plane,
    renumbered,
    scattered_plane,
    sheared_plane,
    side_by_side,
    three_pages,
    torus,
)

EVERYTHING = ["rho", "theta", "rays:8"]
SPHERE = icosphere(3)
BUMPY = bumpy_sphere(2)
MESHES = {
    "sphere": (icosphere(2), 0.8),
    "bumpy sphere": (BUMPY, 0.8),
    "torus": (torus(20, 12), 0.7),
    "plane": (plane(10, jitter=0.3), 0.4),
    "cone": (cone(6, 10), 0.7),
    "obtuse": (sheared_plane(10), 0.5),
    "scattered": (scattered_plane(80, stretch=5.0), 0.4),
    "three pages": (three_pages(5), 0.6),
    "two parts": (side_by_side(icosphere(1), moved(icosphere(1))), 1.0),
}
named_meshes = pytest.mark.parametrize(("mesh", "reach"), MESHES.values(), ids=MESHES.keys())


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("GCGP_CACHE", "off")


def rows_of(chart):
    return np.repeat(np.arange(len(chart.row_offsets) - 1), np.diff(chart.row_offsets))


def wrapped(angle):
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi


def turned_back(chart, true):
    """Differences of θ from true angles, up to the rotation of each vertex on which most neighbors agree."""
    rows = rows_of(chart)
    known = np.isfinite(chart.coordinates["theta"])
    off = np.where(known, chart.coordinates["theta"] - true, 0)
    turns = np.zeros(len(chart.row_offsets) - 1, dtype=complex)
    np.add.at(turns, rows[known], np.exp(1j * off[known]))
    off = np.where(known, wrapped(off - np.angle(turns)[rows]), np.nan)
    for v in np.unique(rows[known]):
        off[rows == v] = wrapped(off[rows == v] - np.nanmedian(off[rows == v]))
    return np.nan_to_num(off)


@pytest.mark.parametrize(("mesh", "reach"), MESHES.values(), ids=MESHES.keys())
def test_rho_alone_is_the_distance_from_each_vertex_cut_at_the_reach(mesh, reach):
    chart = mesh_chart(mesh, ["rho"], reach)
    for v in range(len(mesh.vertices)):
        row = slice(chart.row_offsets[v], chart.row_offsets[v + 1])
        expected = distances(mesh, [v], radius=reach)
        np.testing.assert_array_equal(chart.neighbors[row], np.flatnonzero(np.isfinite(expected)))
        np.testing.assert_allclose(chart.coordinates["rho"][row], expected[chart.neighbors[row]], rtol=1e-5)


@named_meshes
@pytest.mark.parametrize("coordinates", [["rho", "theta"], EVERYTHING])
def test_rho_is_the_distance_from_each_vertex_cut_at_the_reach(mesh, reach, coordinates):
    chart = mesh_chart(mesh, coordinates, reach)
    for v in range(len(mesh.vertices)):
        row = slice(chart.row_offsets[v], chart.row_offsets[v + 1])
        expected = distances(mesh, [v], radius=reach)
        np.testing.assert_array_equal(chart.neighbors[row], np.flatnonzero(np.isfinite(expected)))
        rho = chart.coordinates["rho"][row]
        # Where angles are carried along, the first lines over unfolded triangles are not used.
        np.testing.assert_allclose(rho, expected[chart.neighbors[row]], rtol=2e-3)


@named_meshes
def test_a_vertex_is_its_own_neighbor_without_direction_and_on_every_ray(mesh, reach):
    chart = mesh_chart(mesh, EVERYTHING, reach)
    own = rows_of(chart) == chart.neighbors
    assert own.sum() == len(mesh.vertices)
    assert (chart.coordinates["rho"][own] == 0).all()
    assert (chart.coordinates["rays:8"][own] == 0).all()
    np.testing.assert_array_equal(np.isnan(chart.coordinates["theta"]), own)
    assert np.isfinite(chart.coordinates["rays:8"]).all()
    assert chart.coordinates["rays:8"].shape == (len(own), 8)
    assert (np.abs(chart.coordinates["theta"][~own]) <= np.pi + 1e-6).all()


@named_meshes
def test_no_ray_is_farther_than_the_vertex_it_leaves(mesh, reach):
    chart = mesh_chart(mesh, EVERYTHING, reach)
    farther = chart.coordinates["rays:8"] - chart.coordinates["rho"][:, None]
    assert farther.max() <= 1e-5 * reach


@pytest.mark.parametrize("coordinates", [["rho"], ["rho", "theta"]])
@named_meshes
def test_a_larger_reach_changes_nothing_within_the_smaller(mesh, reach, coordinates):
    small, large = mesh_chart(mesh, coordinates, reach / 2), mesh_chart(mesh, coordinates, np.inf)
    kept = large.coordinates["rho"] <= np.float32(reach / 2)
    np.testing.assert_array_equal(np.diff(small.row_offsets), np.add.reduceat(kept, large.row_offsets[:-1]))
    np.testing.assert_array_equal(small.neighbors, large.neighbors[kept])
    np.testing.assert_allclose(small.coordinates["rho"], large.coordinates["rho"][kept], rtol=1e-5)
    if "theta" in coordinates:
        off = wrapped(small.coordinates["theta"] - large.coordinates["theta"][kept])
        assert np.nanmax(np.abs(off), initial=0) < 1e-3


@pytest.mark.parametrize(
    "mesh",
    [plane(12), plane(12, jitter=0.3), plane(12, stretch=4.0), scattered_plane(150), sheared_plane(12)],
    ids=["grid", "jittered", "stretched", "scattered", "obtuse"],
)
def test_theta_on_a_plane_is_the_angle_of_the_offset_up_to_a_rotation_per_vertex(mesh):
    chart = mesh_chart(mesh, ["rho", "theta"], 0.6)
    rows = rows_of(chart)
    offsets = mesh.vertices[chart.neighbors] - mesh.vertices[rows]
    off = turned_back(chart, np.arctan2(offsets[:, 1], offsets[:, 0]))
    inside = ~np.isin(rows, boundary(mesh)) & (chart.coordinates["rho"] < 0.3)
    assert inside.any()
    assert np.abs(off[inside]).max() < 5e-3


def test_theta_on_a_boundary_is_a_true_angle_too():
    mesh = plane(8, jitter=0.3)
    chart = mesh_chart(mesh, ["rho", "theta"], 0.4)
    rows = rows_of(chart)
    offsets = mesh.vertices[chart.neighbors] - mesh.vertices[rows]
    off = turned_back(chart, np.arctan2(offsets[:, 1], offsets[:, 0]))
    assert np.abs(off[np.isin(rows, boundary(mesh))]).max() < 1e-5


def test_theta_on_a_boundary_does_not_depend_on_the_orientation_of_faces():
    mesh = plane(8, jitter=0.3)
    rng = np.random.default_rng(0)
    for _ in range(4):
        turned = rng.random(len(mesh.faces)) < 0.5
        mixed = Mesh(mesh.vertices, np.where(turned[:, None], mesh.faces[:, ::-1], mesh.faces))
        chart = mesh_chart(mixed, ["theta"], 0.4)
        rows = rows_of(chart)
        offsets = mesh.vertices[chart.neighbors] - mesh.vertices[rows]
        true = np.arctan2(offsets[:, 1], offsets[:, 0])
        # The fan of a vertex may have either orientation.
        off = np.minimum(
            largest(np.abs(turned_back(chart, true)), chart),
            largest(np.abs(turned_back(chart, -true)), chart),
        )
        assert off.max() < 5e-3


def largest(values, chart):
    return np.maximum.reduceat(values, chart.row_offsets[:-1])


def azimuth(vertices, rows, neighbors):
    """Direction, in a fixed frame of the tangent plane, of the great circle from one vertex to another."""
    normal, other = vertices[rows], vertices[neighbors]
    least = np.eye(3)[np.argmin(np.abs(normal), axis=1)]
    x = np.cross(least, normal)
    x /= np.linalg.norm(x, axis=1)[:, None]
    return np.arctan2((other * np.cross(normal, x)).sum(axis=1), (other * x).sum(axis=1))


def test_theta_on_a_sphere_is_the_azimuth_seen_from_outside():
    chart = mesh_chart(SPHERE, ["rho", "theta"], 1.0)
    rows = rows_of(chart)
    off = turned_back(chart, azimuth(SPHERE.vertices, rows, chart.neighbors))
    assert np.abs(off).max() < 0.05
    assert np.abs(off).mean() < 0.01


def test_rho_on_a_sphere_is_the_length_of_the_arc():
    chart = mesh_chart(SPHERE, ["rho"], 1.0)
    arcs = (SPHERE.vertices[rows_of(chart)] * SPHERE.vertices[chart.neighbors]).sum(axis=1).clip(-1, 1)
    np.testing.assert_allclose(chart.coordinates["rho"], np.arccos(arcs), atol=0.01)


@pytest.mark.parametrize("frame", ["curvature", "edge"])
@pytest.mark.parametrize(("mesh", "reach"), [MESHES[name] for name in MESHES if name != "scattered"])
def test_distances_from_rays_are_those_on_the_whole_mesh(mesh, reach, frame):
    name = f"rays:6:{frame}"
    chart = mesh_chart(mesh, ["rho", name], reach)
    for v in range(0, len(mesh.vertices), 9):
        row = slice(chart.row_offsets[v], chart.row_offsets[v + 1])
        rho, found = chart.coordinates["rho"][row], chart.coordinates[name][row]
        for j in range(6):
            path = ray(mesh, v, j / 6, length=rounded_up(mesh, reach), frame=frame)
            expected = np.minimum(distances(mesh, path, front="line")[chart.neighbors[row]], rho)
            inner = rho <= reach / 2
            # Fronts stay within the chart, so distances near its rim may be longer.
            assert (found[:, j] >= expected * (1 - 1e-5) - 1e-6).all()
            assert (np.minimum(found[:, j], rho) - expected)[inner].max(initial=0) < 0.06 * reach
            assert (np.minimum(found[:, j], rho) - expected).max(initial=0) < 0.5 * reach


def test_distances_from_rays_on_a_plane_are_those_from_half_lines():
    mesh = plane(25, jitter=0.2)
    step = 1 / 24
    chart = mesh_chart(mesh, ["rho", "rays:4:edge"], 0.35)
    v = 12 * 25 + 12
    row = slice(chart.row_offsets[v], chart.row_offsets[v + 1])
    around = distances(mesh, [v])
    ring = np.unique(mesh.edges[(mesh.edges == v).any(axis=1)])
    along = mesh.vertices[ring[np.argmax(around[ring])]] - mesh.vertices[v]
    start = np.arctan2(along[1], along[0])
    offsets = mesh.vertices[chart.neighbors[row]] - mesh.vertices[v]
    for j in range(4):
        angle = start + np.pi / 2 * j
        towards = offsets @ [np.cos(angle), np.sin(angle), 0]
        aside = offsets @ [-np.sin(angle), np.cos(angle), 0]
        expected = np.hypot(aside, np.minimum(towards, 0))
        inner = chart.coordinates["rho"][row] < 0.2
        # The path is that of vertices next to the line, so it is off by up to an edge.
        assert np.abs(chart.coordinates["rays:4:edge"][row, j] - expected)[inner].max() < step


def test_an_infinite_reach_gives_all_pairs_of_a_component():
    mesh = side_by_side(icosphere(1), moved(icosphere(0)))
    chart = mesh_chart(mesh, ["rho", "theta", "rays:3"], np.inf)
    np.testing.assert_array_equal(np.diff(chart.row_offsets), [42] * 42 + [12] * 12)
    assert np.isfinite(chart.coordinates["rho"]).all()
    assert np.isfinite(chart.coordinates["rays:3"]).all()


def test_the_frame_of_rays_can_be_named():
    same = mesh_chart(BUMPY, ["rays:4"], 0.5).coordinates["rays:4"]
    np.testing.assert_array_equal(
        mesh_chart(BUMPY, ["rays:4:curvature"], 0.5).coordinates["rays:4:curvature"], same
    )
    other = mesh_chart(BUMPY, ["rays:4:edge"], 0.5).coordinates["rays:4:edge"]
    assert np.abs(other - same).max() > 0.05


def test_the_first_ray_is_where_theta_is_zero():
    for name in ("rays:8", "rays:8:edge"):
        chart = mesh_chart(SPHERE, ["rho", "theta", name], 0.6)
        rho, theta = chart.coordinates["rho"], chart.coordinates["theta"]
        far = (rho > 0.3) & (rho < 0.5)
        for j in range(8):
            off = np.abs(wrapped(theta - 2 * np.pi * j / 8))
            on, opposite = far & (off < 0.1), far & (off > np.pi / 2)
            assert chart.coordinates[name][on, j].max() < 0.16  # an edge is 0.15 long
            assert chart.coordinates[name][opposite, j].min() > 0.2


@pytest.mark.parametrize(
    ("coordinates", "kind"),
    [
        (["rho"], "geodesic"),
        (["rho", "rays:4"], "geodesic"),
        (EVERYTHING, "geodesic"),
        (["rho"], "logmap"),
        (["theta"], "logmap"),
        (["rho", "rays:4"], "logmap"),
        (EVERYTHING, "logmap"),
    ],
)
def test_all_coordinates_are_of_the_same_pairs(coordinates, kind):
    chart = mesh_chart(BUMPY, coordinates, 0.7, kind)
    assert list(chart.coordinates) == coordinates
    for values in chart.coordinates.values():
        assert len(values) == len(chart.neighbors) == chart.row_offsets[-1]


def test_the_logarithmic_map_is_close_to_fast_marching_on_a_sphere():
    mesh = icosphere(3)
    ours, other = (mesh_chart(mesh, ["rho", "theta"], 0.8, kind) for kind in ("geodesic", "logmap"))
    count = len(mesh.vertices)
    tables = []
    for chart in (ours, other):
        table = np.full((2, count, count), np.nan)
        table[:, rows_of(chart), chart.neighbors] = chart.coordinates["rho"], chart.coordinates["theta"]
        tables.append(table)
    both = np.isfinite(tables[0][0]) & np.isfinite(tables[1][0]) & (tables[0][0] > 0.16)
    assert both.sum() > 0.9 * max(len(ours.neighbors), len(other.neighbors)) - 7 * count
    np.testing.assert_allclose(tables[1][0][both], tables[0][0][both], rtol=0.02)
    assert np.abs(wrapped(tables[1][1] - tables[0][1])[both]).max() < 0.06


@pytest.mark.parametrize(
    "mesh", [three_pages(4), MESHES["two parts"][0], Mesh(BUMPY.vertices, [*BUMPY.faces, [0, 0, 1]])]
)
def test_without_a_logarithmic_map_fast_marching_is_used(mesh):
    ours, other = (mesh_chart(mesh, EVERYTHING, 0.6, kind) for kind in ("geodesic", "logmap"))
    np.testing.assert_array_equal(ours.neighbors, other.neighbors)
    for name in EVERYTHING:
        np.testing.assert_array_equal(ours.coordinates[name], other.coordinates[name])


def test_if_the_logarithmic_map_overflows_fast_marching_is_used():
    corners = np.concatenate([np.eye(3), -np.eye(3)])
    corners[3, 0] = -(2.0**31)
    upper, lower = [[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2]], [[1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]]
    far = Mesh(corners, upper + lower)
    ours, other = (mesh_chart(far, EVERYTHING, np.inf, kind) for kind in ("geodesic", "logmap"))
    np.testing.assert_array_equal(ours.coordinates["rho"], other.coordinates["rho"])


@pytest.mark.parametrize(
    ("coordinates", "kind", "message"),
    [
        (["radius"], "geodesic", "'radius' is not known; expected one of 'rho', 'theta', 'rays:J'"),
        (["rays:0"], "geodesic", "'rays:0': expected 'rays:J'"),
        (["rays:x"], "geodesic", "'rays:x': expected 'rays:J'"),
        (["rays:"], "geodesic", "'rays:': expected 'rays:J'"),
        (["rays:-1"], "geodesic", "'rays:-1': expected 'rays:J'"),
        (["rays:4:sun"], "geodesic", "'rays:4:sun': expected 'rays:J'"),
        (["rays:4:edge:edge"], "geodesic", "expected 'rays:J'"),
        (["rho"], "euclidean", "'euclidean' is not known; expected one of 'auto', 'geodesic', 'logmap'"),
    ],
)
def test_errors_name_the_option(coordinates, kind, message):
    with pytest.raises(ValueError, match=message):
        mesh_chart(icosphere(0), coordinates, 1.0, kind)


@pytest.mark.parametrize("reach", [np.nan, -1.0])
def test_an_invalid_reach_is_an_error(reach):
    with pytest.raises(ValueError, match="reach"):
        mesh_chart(icosphere(0), ["rho"], reach)


def test_two_sets_of_rays_are_distinct_or_rejected():
    names = ["rays:3", "rays:4"]
    try:
        chart = mesh_chart(icosphere(1), names, 1.0)
    except ValueError:
        return
    for name in names:
        np.testing.assert_array_equal(
            chart.coordinates[name], mesh_chart(icosphere(1), [name], 1.0).coordinates[name]
        )


def test_the_number_of_threads_changes_nothing():
    before = numba.get_num_threads()
    charts = []
    try:
        for threads in (1, min(2, numba.config.NUMBA_NUM_THREADS)):
            numba.set_num_threads(threads)
            charts.append(mesh_chart(BUMPY, EVERYTHING, 0.6))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(charts[0].neighbors, charts[1].neighbors)
    for name in EVERYTHING:
        np.testing.assert_array_equal(charts[0].coordinates[name], charts[1].coordinates[name])


def test_sources_of_a_block_are_independent():
    """The sources of a block share their working arrays."""
    mesh = scattered_plane(120, stretch=8.0)
    whole = mesh_chart(mesh, EVERYTHING, 0.25)
    order = np.random.default_rng(3).permutation(len(mesh.vertices))
    other = mesh_chart(renumbered(mesh, order), EVERYTHING, 0.25)
    np.testing.assert_array_equal(np.diff(other.row_offsets), np.diff(whole.row_offsets)[order])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_charts_of_several_meshes_are_concatenated(count):
    parts = [icosphere(1), plane(4, jitter=0.2), cone(3, 6)][:count]
    whole = Meshes(tuple(parts)).chart(EVERYTHING, 0.6)
    alone = [mesh_chart(mesh, EVERYTHING, 0.6) for mesh in parts]
    starts = np.cumsum([0, *(len(chart.neighbors) for chart in alone)])
    expected = np.concatenate(
        [[0], *(chart.row_offsets[1:] + start for chart, start in zip(alone, starts[:-1], strict=True))]
    )
    np.testing.assert_array_equal(whole.row_offsets, expected)
    np.testing.assert_array_equal(whole.neighbors, np.concatenate([chart.neighbors for chart in alone]))
    for name in EVERYTHING:
        np.testing.assert_array_equal(
            whole.coordinates[name], np.concatenate([chart.coordinates[name] for chart in alone])
        )


def dense(chart, name):
    count = len(chart.row_offsets) - 1
    values = chart.coordinates[name]
    table = np.full((count, count, *values.shape[1:]), np.nan)
    table[rows_of(chart), chart.neighbors] = values
    return table


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_renumbering_and_moving_a_mesh_permutes_its_chart(seed):
    mesh = bumpy_sphere(1, seed=seed % 7, height=0.3)
    order = np.random.default_rng(seed).permutation(len(mesh.vertices))
    other = moved(renumbered(mesh, order), seed % 1000)
    first, second = (mesh_chart(m, EVERYTHING, 1.2) for m in (mesh, other))
    for name in EVERYTHING:
        expected = dense(first, name)[np.ix_(order, order)]
        found = dense(second, name)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        off = wrapped(found - expected) if name == "theta" else found - expected
        assert np.nanmax(np.abs(off)) < 1e-4


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.sampled_from([1e-9, 1e-3, 1e3, 1e6]))
def test_scaling_a_mesh_scales_its_chart(factor):
    first = mesh_chart(BUMPY, EVERYTHING, 0.6)
    second = mesh_chart(BUMPY.scaled(factor), EVERYTHING, 0.6 * factor)
    np.testing.assert_array_equal(second.neighbors, first.neighbors)
    for name, size in zip(EVERYTHING, (factor, 1, factor), strict=True):
        np.testing.assert_allclose(
            second.coordinates[name] / size, first.coordinates[name], rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("reach", [0.37, np.inf], ids=["cut", "whole"])
def test_a_chart_of_some_rows_has_their_pairs_and_no_others(reach):
    meshes = Meshes((BUMPY, icosphere(1), SPHERE))
    counts = meshes.vertex_counts
    total = int(counts.sum())
    rows = np.sort(np.random.default_rng(0).permutation(total)[: total // 5])
    rows = rows[(rows < counts[0]) | (rows >= counts[:2].sum())]  # none of the second mesh
    whole, some = meshes.chart(EVERYTHING, reach), meshes.chart(EVERYTHING, reach, rows=rows)
    chosen = np.isin(rows_of(whole), rows)
    np.testing.assert_array_equal(rows_of(some), rows_of(whole)[chosen])
    np.testing.assert_array_equal(some.neighbors, whole.neighbors[chosen])
    for name in EVERYTHING:
        np.testing.assert_array_equal(some.coordinates[name], whole.coordinates[name][chosen])
