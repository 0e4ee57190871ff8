from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from hypothesis import given
from hypothesis import strategies as st

from gcgp.mesh.mesh import Mesh

SQUARE = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]


def test_areas_and_edges_are_those_of_trimesh():
    other = trimesh.creation.torus(2.0, 0.5)
    mesh = Mesh(other.vertices, other.faces)
    np.testing.assert_allclose(mesh.face_areas, other.area_faces)
    assert mesh.area == pytest.approx(other.area)
    assert mesh.vertex_areas.sum() == pytest.approx(other.area)
    expected = other.edges_unique[np.lexsort(other.edges_unique.T[::-1])]
    np.testing.assert_array_equal(mesh.edges, expected)


def test_vertex_areas_of_a_square():
    mesh = Mesh([*SQUARE, [5, 5, 5]], [[0, 1, 2], [0, 2, 3]])
    np.testing.assert_allclose(mesh.vertex_areas, [1 / 3, 1 / 6, 1 / 3, 1 / 6, 0])


def test_a_face_that_names_a_vertex_twice_has_one_edge():
    assert Mesh(SQUARE, [[0, 0, 1]]).edges.tolist() == [[0, 1]]


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [2, 1, 0], [0, 2, 1]])
def test_duplicate_faces_in_any_order_count_once(order):
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    mesh = Mesh(SQUARE, faces)
    repeated = Mesh(SQUARE, [faces[1], *faces[:, order], faces[0], [1, 1, 2], [1, 1, 2]])
    assert repeated.area == 1
    np.testing.assert_array_equal(repeated.vertex_areas, mesh.vertex_areas)
    np.testing.assert_array_equal(repeated.edges, mesh.edges)
    assert repeated.duplicate_faces.tolist() == [2, 3]
    assert repeated.distinct_faces.tolist() == [faces[1].tolist(), faces[0, order].tolist()]
    assert len(repeated.faces) == 6


@given(st.floats(1e-3, 1e3))
def test_scaling(factor):
    mesh = Mesh(SQUARE, [[0, 1, 2], [0, 2, 3]], name="square")
    scaled = mesh.scaled(factor)
    assert scaled.area == pytest.approx(factor**2)
    assert scaled.name == "square"
    assert mesh.area == 1


def test_it_is_immutable():
    vertices = np.array(SQUARE, dtype=np.float64)
    mesh = Mesh(vertices, [[0, 1, 2]])
    vertices[0] = 7
    assert mesh.vertices[0].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        mesh.vertices[0] = 7


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        ([], [], "mesh 'm': it has no vertices"),
        (SQUARE, [[0, 1, 4]], r"mesh 'm': faces\[0\] is \[0, 1, 4\], but its vertices are 0 to 3"),
        (SQUARE, [[0, 1, 2], [0, -1, 2]], r"faces\[1\] is \[0, -1, 2\]"),
        (SQUARE, [[0.0, 1.0, 2.0]], "faces have the wrong type: dtype float64"),
        (SQUARE, [[0, 1, 2, 3]], r"faces must have shape \[\*, 3\], got \[1, 4\]"),
        ([[0, 0], [1, 1]], [], r"vertices must have shape \[\*, 3\], got \[2, 2\]"),
        ([[0, 0, 0], [0, np.nan, 0]], [], r"vertices\[1, 1\] is nan; it must be finite"),
        (
            [[0, 0, 0], [0, 0, -1e38]],
            [],
            r"vertices\[1, 2\] is -1e\+38; it must be .* within ±1e\+37",
        ),
        ([[0, 0, 0], [1, 0]], [[0, 1, 2]], "mesh 'm': vertices are not a rectangular array"),
        (np.eye(3), [[0, 1, 2], [0, 1]], "mesh 'm': faces are not a rectangular array"),
    ],
)
def test_errors_name_the_field(vertices, faces, message):
    with pytest.raises(ValueError, match=message):
        Mesh(vertices, faces, name="m")


def test_tensors_that_require_gradients_are_read():
    corners = [torch.eye(3)[i].requires_grad_() for i in range(3)]
    assert Mesh(corners, torch.tensor([[0, 1, 2]])).vertices.tolist() == np.eye(3).tolist()


def test_a_mesh_without_faces():
    mesh = Mesh(SQUARE, [])
    assert (mesh.area, len(mesh.edges), mesh.vertex_areas.tolist()) == (0, 0, [0] * 4)
    assert repr(mesh) == "Mesh(4 vertices, 0 faces)"


def test_a_scaled_copy_knows_its_original_until_it_is_changed():
    mesh = Mesh(np.eye(3), [[0, 1, 2]])
    twice = mesh.scaled(2.0).scaled(3.0)
    assert twice.unscaled == (mesh, 6.0)
    np.testing.assert_array_equal(twice.vertices, 6.0 * mesh.vertices)
    assert twice.size == pytest.approx(6.0 * mesh.size)
    assert replace(twice, vertices=twice.vertices + 1.0).unscaled is None
    assert replace(twice, faces=[[0, 2, 1]]).unscaled is None
    assert mesh.scaled(-1.0).unscaled is None
