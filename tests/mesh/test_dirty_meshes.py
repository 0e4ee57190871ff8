"""Geodesics on arbitrary triangles terminate, with finite values wherever they are defined."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components, dijkstra

from gcgp import Dirichlet, GCGPClassifier, Patch, PatchKernel, Signals
from gcgp.domain.mesh_charts import mesh_chart, rounded_up
from gcgp.domain.meshes import Meshes
from gcgp.mesh.geodesics.distances import distances, ray
from gcgp.mesh.mesh import Mesh
from gcgp.weighting import GeodesicPolar, Radial
from mesh_shapes import (
    bumpy_sphere,
    cone,
    edge_graph,
    icosphere,
    moebius,
    moved,
    plane,
    side_by_side,
    three_pages,
    torus,
)

TRIANGLE = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
SQUARE = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
POINTS = np.random.default_rng(0).normal(size=(12, 3))
SMALL = settings(max_examples=40, deadline=None, derandomize=True)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("GCGP_CACHE", "off")


def needle(angle):
    """Two triangles with a common base, whose apexes open so wide that they nearly lie on it."""
    height = 0.5 / np.tan(np.deg2rad(angle) / 2)
    return Mesh([[0, 0, 0], [1, 0, 0], [0.5, height, 0], [0.5, -height, 0]], [[0, 1, 2], [1, 0, 3]])


def unequal_edges(seed):
    """A fan whose edges are 1e-6 to 1 long, and triangles beyond its rim."""
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 9))
    lengths = 10 ** rng.uniform(-6, 0, 9)
    rim = np.column_stack([lengths * np.cos(angle), lengths * np.sin(angle), np.zeros(9)])
    inner = [[0, 1 + i, 1 + (i + 1) % 9] for i in range(9)]
    outer = [[1 + (i + 1) % 9, 1 + i, 10 + i] for i in range(9)]
    outside = 2 * rim / lengths[:, None]
    return Mesh(np.concatenate([[[0, 0, 0]], rim, outside]), inner + outer)


def with_fins(mesh, count, seed):
    """Triangles that stand on some edges, which have three or four faces then."""
    rng = np.random.default_rng(seed)
    edges = mesh.edges[rng.integers(0, len(mesh.edges), count)]
    tips = mesh.vertices[edges].mean(axis=1) + 0.3 * rng.normal(size=(count, 3))
    fins = np.column_stack([edges, len(mesh.vertices) + np.arange(count)])
    return Mesh(np.concatenate([mesh.vertices, tips]), np.concatenate([mesh.faces, fins]))


def with_needles(mesh, height):
    """An edge of each of the first faces is split at a new vertex that is almost on it."""
    vertices, faces = list(mesh.vertices), list(mesh.faces.tolist())
    for a, b, c in mesh.faces[:6]:
        middle = (mesh.vertices[a] + mesh.vertices[b]) / 2
        vertices.append(middle + height * (mesh.vertices[c] - middle))
        faces.append([a, b, len(vertices) - 1])
        faces.append([len(vertices) - 1, b, c])
    return Mesh(vertices, faces)


BUMPY = bumpy_sphere(1, height=0.4)
FLAT = plane(4, jitter=0.3)
CLEAN = [FLAT, BUMPY, icosphere(0), torus(6, 5), moebius(6), cone(3, 5)]
HAND_MADE = {
    "triangle": Mesh(TRIANGLE, [[0, 1, 2]]),
    "triangle twice": Mesh(TRIANGLE, [[0, 1, 2], [0, 1, 2]]),
    "triangle and its back": Mesh(TRIANGLE, [[0, 1, 2], [2, 1, 0]]),
    "triangle three times": Mesh(TRIANGLE, [[0, 1, 2], [2, 1, 0], [1, 2, 0]]),
    "one vertex": Mesh([[1, 2, 3]], []),
    "one vertex, one face": Mesh([[1, 2, 3]], [[0, 0, 0]]),
    "no faces": Mesh(SQUARE, []),
    "only faces that name a vertex twice": Mesh(SQUARE, [[0, 0, 1], [1, 2, 2], [3, 1, 3], [2, 2, 2]]),
    "a tail of such a face": Mesh(SQUARE, [[0, 1, 2], [2, 3, 3]]),
    "isolated vertices": Mesh([*SQUARE, [5, 5, 5], [0, 0, 0]], [[0, 1, 2], [0, 2, 3]]),
    "three points on a line": Mesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]]),
    "fan on a line": Mesh([[0, 0, 0], [1, 0, 0], [2, 0, 0], [4, 0, 0]], [[0, 1, 2], [0, 2, 3], [0, 3, 1]]),
    "all vertices in one place": Mesh(np.ones((4, 3)), [[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]]),
    "two vertices in one place": Mesh([[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2], [1, 2, 3]]),
    "a zero-length edge inside": Mesh(
        [*SQUARE, [0.5, 0.5, 0], [0.5, 0.5, 0]],
        [[0, 1, 4], [1, 2, 4], [4, 2, 5], [2, 3, 5], [3, 0, 5], [5, 0, 4]],
    ),
    "bow-tie": Mesh([[0, 0, 0], [1, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0]], [[0, 2, 1], [0, 3, 4]]),
    "three cones at one tip": Mesh(POINTS[:10], [[0, i, i + 1] for i in (1, 2, 4, 5, 7, 8)]),
    "book of five pages": Mesh(POINTS[:7], [[0, 1, i] for i in range(2, 7)]),
    "three pages": three_pages(4),
    "Möbius strip": moebius(8),
    "double torus of faces": Mesh(torus(6, 4).vertices, np.concatenate([torus(6, 4).faces] * 2)),
    "faces turned over": Mesh(
        BUMPY.vertices, np.where(np.arange(80)[:, None] % 3, BUMPY.faces, BUMPY.faces[:, ::-1])
    ),
    "two parts": side_by_side(icosphere(0), moved(icosphere(0))),
    "two parts in one place": side_by_side(icosphere(0), icosphere(0)),
    "sharp cone": cone(3, 4, slope=100.0),
    "flat cone": cone(3, 9, slope=0.0),
    "every pair of vertices": Mesh(
        POINTS[:6], [[i, j, k] for i in range(6) for j in range(i) for k in range(j)]
    ),
    "unequal edges": unequal_edges(0),
    "collapsed to a line": Mesh(BUMPY.vertices * [1, 0, 0], BUMPY.faces),
    "collapsed to a plane": Mesh(BUMPY.vertices * [1, 1, 0], BUMPY.faces),
    "far away": Mesh(BUMPY.vertices + 1e6, BUMPY.faces),
    **{f"needle of {angle} degrees": needle(angle) for angle in (170, 179.99, 179.9999, 179.9999999, 180)},
    **{f"needles of height {h}": with_needles(BUMPY, h) for h in (1e-3, 1e-6, 1e-9, 1e-12, 0.0)},
    **{f"squeezed by {s}": Mesh(BUMPY.vertices * [1, 1, s], BUMPY.faces) for s in (1e-3, 1e-6, 1e-9, 1e-12)},
    **{f"scale {s}": with_fins(BUMPY, 5, 1).scaled(s) for s in (1e6, 1e-6, 1e-9, 1e-30, 1e30)},
}


def check(mesh):
    """Properties that hold on any mesh; lengths are compared relative to its size."""
    str(mesh.report())
    count = len(mesh.vertices)
    size = float(np.ptp(mesh.vertices, axis=0).max())
    slack = 1e-9 * size
    graph = edge_graph(mesh)
    _, part = connected_components(graph, directed=False)
    for source in sorted({0, count // 2, count - 1}):
        along_edges = dijkstra(graph, directed=False, indices=source)
        straight = np.linalg.norm(mesh.vertices - mesh.vertices[source], axis=1)
        for front in ("point", "line"):
            found = distances(mesh, [source], front=front)
            assert found[source] == 0
            np.testing.assert_array_equal(np.isfinite(found), part == part[source])
            reached = part == part[source]
            assert (found[reached] <= along_edges[reached] * (1 + 1e-9) + slack).all()
            assert (found[reached] >= straight[reached] * (1 - 1e-9) - slack).all()
        for frame in ("edge", "curvature"):
            for fraction in (0.0, 0.3, 0.5):
                for length in (np.inf, 0.4 * size):
                    check_path(ray(mesh, source, fraction, length=length, frame=frame), source, part)
    reach = 2 * Meshes((mesh,)).spacing()
    check_chart(mesh, mesh_chart(mesh, ["rho", "theta", "rays:4"], reach), reach)
    only = mesh_chart(mesh, ["rho"], reach)
    assert (np.diff(only.row_offsets) > 0).all()


def check_path(path, vertex, part):
    assert path[0] == vertex
    assert (path[1:] != path[:-1]).all()
    assert (part[path] == part[vertex]).all()


def check_chart(mesh, chart, reach):
    rows = np.repeat(np.arange(len(mesh.vertices)), np.diff(chart.row_offsets))
    own = rows == chart.neighbors
    assert own.sum() == len(mesh.vertices)
    rho, theta, rays = (chart.coordinates[name] for name in ("rho", "theta", "rays:4"))
    assert len(rho) == len(theta) == len(rays) == len(rows)
    assert (rho[own] == 0).all()
    assert (rays[own] == 0).all()
    assert np.isfinite(rho).all()
    assert (rho >= 0).all()
    assert (rho <= reach * (1 + 1e-6)).all()
    assert np.isfinite(rays).all()
    assert (rays >= 0).all()
    np.testing.assert_array_equal(np.isnan(theta), own)


@pytest.mark.parametrize("name", HAND_MADE)
def test_geodesics_on_hand_made_meshes(name):
    check(HAND_MADE[name])


@pytest.mark.parametrize("name", HAND_MADE)
def test_the_pairs_of_a_chart_do_not_depend_on_its_coordinates(name):
    mesh = HAND_MADE[name]
    reach = 2 * Meshes((mesh,)).spacing()
    only = mesh_chart(mesh, ["rho"], reach)
    more = mesh_chart(mesh, ["rho", "theta", "rays:4"], reach)
    np.testing.assert_array_equal(more.row_offsets, only.row_offsets)
    np.testing.assert_array_equal(more.neighbors, only.neighbors)
    np.testing.assert_allclose(more.coordinates["rho"], only.coordinates["rho"], rtol=2e-3)


@st.composite
def soups(draw):
    """Random triangles between few vertices, some of which coincide."""
    count = draw(st.integers(1, 9))
    vertex = st.integers(0, count - 1)
    faces = draw(st.lists(st.tuples(vertex, vertex, vertex), max_size=14))
    place = st.tuples(*[st.integers(-2, 2)] * 3)
    places = draw(st.lists(place, min_size=count, max_size=count))
    scale = draw(st.sampled_from([1.0, 1e6, 1e-9, 1 / 3]))
    return Mesh(scale * np.array(places, dtype=np.float64), np.array(faces, dtype=np.int64).reshape(-1, 3))


@SMALL
@given(soups())
def test_geodesics_on_triangle_soups(mesh):
    check(mesh)


def damaged(seed):
    """A clean mesh with faces removed, doubled, turned over, collapsed and added, and vertices merged."""
    rng = np.random.default_rng(seed)
    mesh = CLEAN[rng.integers(len(CLEAN))]
    vertices, faces = mesh.vertices.copy(), mesh.faces.copy()
    faces = faces[rng.random(len(faces)) < rng.choice([1, 0.9, 0.5])]
    turned = rng.random(len(faces)) < rng.choice([0, 0.2])
    faces = np.where(turned[:, None], faces[:, ::-1], faces)
    doubled = faces[rng.random(len(faces)) < rng.choice([0, 0.2])]
    extra = rng.integers(0, len(vertices), (rng.choice([0, 3]), 3))
    faces = np.concatenate([faces, doubled, extra])
    same = rng.random(len(vertices)) < rng.choice([0, 0.1])
    vertices[same] = vertices[rng.permutation(len(vertices))[: same.sum()]]
    near = mesh.edges[rng.random(len(mesh.edges)) < rng.choice([0, 0.1])]
    closeness = 10 ** rng.uniform(-14, -1, (len(near), 1))
    vertices[near[:, 0]] = vertices[near[:, 1]] * (1 - closeness) + vertices[near[:, 0]] * closeness
    return Mesh(vertices * 10 ** rng.uniform(-9, 6), faces)


@pytest.mark.parametrize("first", range(0, 150, 50))
def test_geodesics_on_damaged_meshes(first):
    for seed in range(first, first + 50):
        check(damaged(seed))


@SMALL
@given(st.integers(0, 2**32 - 1))
def test_geodesics_with_very_unequal_edges(seed):
    check(moved(unequal_edges(seed), seed % 1000))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_geodesics_beside_fins(seed, count):
    check(with_fins(BUMPY, count, seed))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.one_of(soups(), st.integers(0, 2**32 - 1).map(damaged)), min_size=1, max_size=3))
def test_charts_of_several_dirty_meshes_are_concatenated(meshes):
    meshes = [Mesh(mesh.vertices / (np.abs(mesh.vertices).max() or 1), mesh.faces) for mesh in meshes]
    domains = Meshes(tuple(meshes))
    assert np.isfinite(domains.measure).all()
    assert domains.spacing() > 0
    together = domains.chart(["rho", "theta", "rays:4"], 0.5)
    assert len(together.row_offsets) == 1 + sum(len(mesh.vertices) for mesh in meshes)
    alone = [mesh_chart(mesh, ["rho", "theta", "rays:4"], 0.5) for mesh in meshes]
    assert together.row_offsets[-1] == sum(len(chart.neighbors) for chart in alone)


CLASSIFIED = [
    "triangle twice",
    "isolated vertices",
    "a zero-length edge inside",
    "bow-tie",
    "three pages",
    "Möbius strip",
    "two parts",
    "needles of height 1e-09",
    "squeezed by 1e-09",
]
WITHOUT_AREA = ["no faces", "one vertex", "all vertices in one place", "collapsed to a line"]


def labeled(names):
    """Each mesh twice, with signals that are low or high."""
    meshes = [HAND_MADE[name] for name in names] * 2
    labels = np.repeat(["low", "high"], len(names))
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=(len(mesh.vertices), 2)) + 8 * (label == "high")
        for mesh, label in zip(meshes, labels, strict=True)
    ]
    return Signals.on_meshes(values, meshes), labels


@pytest.mark.parametrize(
    ("weighting", "area_weighted"),
    [
        (Radial([0, 0.5]), "auto"),
        (Radial([0, 0.5]), False),
        (GeodesicPolar([0.5], rays=4, radial_width=0.5), "auto"),
    ],
    ids=["rings", "rings without area", "directions"],
)
def test_dirty_meshes_can_be_classified(weighting, area_weighted):
    signals, labels = labeled(CLASSIFIED if area_weighted else CLASSIFIED + WITHOUT_AREA)
    model = GCGPClassifier(
        weighting,
        patch=Patch(area_weighted=area_weighted),
        kernel=PatchKernel(lengthscale=2.0),
        n_inducing=20,
        likelihood=Dirichlet(alpha=0.1),
    ).fit(signals, labels)
    assert np.isfinite(model.predict_proba(signals)).all()
    assert (model.predict(signals) == labels).all()


def test_vertices_of_a_mesh_without_area_count_equally():
    signals, labels = labeled([*CLASSIFIED, "no faces"])
    model = GCGPClassifier(Radial([0, 0.5]), patch=Patch(area_weighted=True), n_inducing=20)
    assert np.isfinite(model.fit(signals, labels).predict_proba(signals)).all()


@pytest.mark.parametrize("kind", ["geodesic", "logmap"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_duplicate_faces_change_no_chart(kind, order):
    mesh = icosphere(1)
    repeated = Mesh(mesh.vertices, np.concatenate([mesh.faces, mesh.faces[::4][:, order]]))
    expected, found = (mesh_chart(each, ["rho", "theta", "rays:3"], 0.9, kind) for each in (mesh, repeated))
    np.testing.assert_array_equal(found.row_offsets, expected.row_offsets)
    np.testing.assert_array_equal(found.neighbors, expected.neighbors)
    for name, values in expected.coordinates.items():
        np.testing.assert_array_equal(found.coordinates[name], values)


@pytest.mark.parametrize("seed", [412, 1028])
def test_distances_on_crumpled_surfaces_do_not_exceed_the_reach(seed):
    """Fronts over unfolded triangles can be shorter than the chord there, by up to half."""
    places = np.random.default_rng(seed).normal(size=(12, 3)) * [1, 1, 0.1]
    mesh = Mesh(places, icosphere(0).faces)
    for step in np.linspace(0.3, 3, 20):
        reach = rounded_up(mesh, step)
        for coordinates in (["rho"], ["rho", "theta", "rays:3"]):
            chart = mesh_chart(mesh, coordinates, reach)
            assert chart.coordinates["rho"].max() <= reach
        for v in range(12):
            for start in (0.0, 0.1):
                found = distances(mesh, [v], starts=[start], radius=reach)
                assert found[np.isfinite(found)].max() <= reach
