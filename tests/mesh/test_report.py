import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from gcgp.mesh.mesh import Mesh
from gcgp.mesh.report import MeshReport
from mesh_shapes import moebius

TETRAHEDRON = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
POINTS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 2, 1], [3, 1, 4], [4, 1, 5]])


def report(faces, count=None):
    faces = np.array(faces)
    return Mesh(POINTS[: count or faces.max() + 1], faces).report()


@pytest.mark.parametrize(
    "shape",
    [
        trimesh.creation.icosphere(subdivisions=2),
        trimesh.creation.torus(2.0, 0.5),
        trimesh.creation.annulus(1.0, 2.0, 1.0),
        trimesh.creation.box() + trimesh.creation.icosphere(subdivisions=1).apply_translation([5, 0, 0]),
    ],
)
def test_closed_surfaces_agree_with_trimesh(shape):
    found = Mesh(shape.vertices, shape.faces).report()
    assert shape.is_watertight
    assert shape.is_winding_consistent
    assert found.clean
    assert "closed manifold" in str(found)
    assert found.euler_characteristic == shape.euler_number
    assert found.edges == len(shape.edges_unique)
    assert found.components == shape.body_count
    assert (found.boundary_edges, found.boundary_loops) == (0, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_removals_flips_and_numberings_agree_with_trimesh(seed):
    rng = np.random.default_rng(seed)
    shape = trimesh.creation.icosphere(subdivisions=1)
    faces = shape.faces[rng.random(len(shape.faces)) < rng.uniform(0.3, 1)]
    turned = rng.random(len(faces)) < rng.choice([0, 0.1])
    faces = np.where(turned[:, None], faces[:, ::-1], faces)
    order = rng.permutation(len(shape.vertices))
    vertices = np.empty_like(shape.vertices)
    vertices[order] = shape.vertices
    other = trimesh.Trimesh(vertices, order[faces], process=False)
    found = Mesh(vertices, order[faces]).report()
    assert found.euler_characteristic == other.euler_number
    assert found.isolated_vertices == int((~other.referenced_vertices).sum())
    _, uses = np.unique(other.edges_sorted, axis=0, return_counts=True)
    assert found.boundary_edges == int((uses == 1).sum())
    assert (found.misoriented_edges == 0) == other.is_winding_consistent
    assert found.non_manifold_vertices == slow_bow_ties(order[faces])
    assert found.boundary_loops <= found.boundary_edges


def slow_bow_ties(faces):
    """Vertices around which one cannot walk from each face to each other across edges."""
    bad = 0
    for v in np.unique(faces):
        around = [set(face.tolist()) - {v} for face in faces if v in face]
        reached = [around.pop()]
        while reached:
            ring = reached.pop()
            reached += [other for other in around if other & ring]
            around = [other for other in around if not other & ring]
        bad += bool(around)
    return bad


def test_tetrahedron_with_defects_one_by_one():
    assert report(TETRAHEDRON).clean
    assert report(TETRAHEDRON).euler_characteristic == 2
    assert report(TETRAHEDRON, count=6).isolated_vertices == 2
    assert report([*TETRAHEDRON, [1, 2, 0]]).duplicate_faces == 1
    assert report([*TETRAHEDRON, [0, 2, 1], [2, 1, 0]]).duplicate_faces == 2
    assert report([*TETRAHEDRON, [1, 1, 0]]).degenerate_faces == 1
    assert report([*TETRAHEDRON, [0, 1, 4]]).non_manifold_edges == 1
    assert report([*TETRAHEDRON[1:], TETRAHEDRON[0, ::-1]]).misoriented_edges == 3
    bow_tie = report([[0, 1, 2], [0, 3, 4]])
    assert (bow_tie.non_manifold_vertices, bow_tie.components, bow_tie.boundary_loops) == (1, 1, 1)
    for other in ([*TETRAHEDRON, [1, 2, 0]], [*TETRAHEDRON, [1, 1, 0]]):
        assert not report(other).clean
        assert report(other).euler_characteristic == 2
        assert report(other).boundary_edges == report(other).non_manifold_edges == 0


def test_duplicate_faces_are_listed():
    found = report([[0, 1, 2], *TETRAHEDRON[1:], [2, 1, 0], [0, 3, 4], [3, 1, 0]])
    assert found.duplicate_faces == 2
    assert found.duplicate_face_indices == (4, 6)
    assert "duplicate faces: 2 (4, 6)" in str(found)
    many = report([[0, 1, 2]] * 10)
    assert many.duplicate_face_indices == tuple(range(1, 10))
    assert "duplicate faces: 9 (1, 2, 3, 4, 5, ...)" in str(many)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_points_on_a_line_are_degenerate_at_any_scale(scale):
    line = np.outer([0.1, 0.2, 0.7], [1.0, 3.0, 0.3])
    thin = np.array([[0, 0, 0], [1, 0, 0], [0.5, 1e-6, 0]])
    assert Mesh(scale * line, [[0, 1, 2]]).report().degenerate_faces == 1
    assert Mesh(scale * thin, [[0, 1, 2]]).report().degenerate_faces == 0


def test_a_point_three_times_is_degenerate():
    assert Mesh([[1, 1, 1]] * 3, [[0, 1, 2]]).report().degenerate_faces == 1


def test_a_band_and_a_moebius_strip():
    strip = moebius().report()
    assert strip.misoriented_edges > 0
    assert (strip.boundary_loops, strip.euler_characteristic) == (1, 0)
    cylinder = trimesh.creation.cylinder(1.0, 1.0)
    side = np.abs(cylinder.face_normals[:, 2]) < 0.5
    band = Mesh(cylinder.vertices, cylinder.faces[side]).report()
    assert (band.boundary_loops, band.euler_characteristic, band.misoriented_edges) == (2, 0, 0)
    assert "manifold with boundary" in str(band)


def test_text():
    assert str(report(TETRAHEDRON)) == "4 vertices, 4 faces, 6 edges: closed manifold, Euler characteristic 2"
    text = str(report([[0, 1, 2], [0, 3, 4], [0, 1, 2]], count=6))
    assert text.splitlines() == [
        "6 vertices, 3 faces, 6 edges: not manifold, Euler characteristic 1",
        "  boundary: 6 edges in 1 loops",
        "  isolated vertices: 1",
        "  duplicate faces: 1 (2)",
        "  non-manifold vertices (more than one fan): 1",
    ]
    assert "no surface" in str(Mesh(POINTS, []).report())
    assert not Mesh(POINTS, []).report().clean
    assert repr(report(TETRAHEDRON)).startswith("MeshReport(vertices=4, faces=4, edges=6,")
    assert isinstance(report(TETRAHEDRON), MeshReport)
