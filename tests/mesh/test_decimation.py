import warnings
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from gcgp.mesh.decimation import decimate
from gcgp.mesh.mesh import Mesh
from mesh_shapes import as_mesh, icosphere, plane

SPHERE = replace(icosphere(4), name="sphere")


def blob(seed):
    """A closed surface of random shape and random numbering."""
    rng = np.random.default_rng(seed)
    shape = trimesh.creation.icosphere(subdivisions=3)
    heights = 1 + 0.4 * np.sin(3 * shape.vertices @ rng.normal(size=(3, 4))).mean(axis=1)
    order = rng.permutation(len(shape.vertices))
    vertices = np.empty_like(shape.vertices)
    vertices[order] = shape.vertices * heights[:, None]
    return Mesh(vertices, order[shape.faces])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(8, 642))
def test_the_number_is_exact_and_the_surface_stays_a_closed_manifold(seed, vertices):
    result = decimate(blob(seed), vertices)
    assert len(result.vertices) == vertices
    assert result.report().clean
    other = trimesh.Trimesh(result.vertices, result.faces, process=False)
    assert other.is_watertight
    assert other.is_winding_consistent
    assert other.euler_number == 2


def test_the_surface_stays_where_it_was():
    for vertices, tolerance in ((1000, 0.004), (300, 0.02)):
        result = decimate(SPHERE, vertices)
        assert result.name == "sphere"
        np.testing.assert_allclose(np.linalg.norm(result.vertices, axis=1), 1, atol=tolerance)
        assert result.area == pytest.approx(SPHERE.area, rel=2 * tolerance)


def test_triangles_stay_even():
    result = decimate(SPHERE, 500)
    squares = ((result.vertices[result.faces] - result.vertices[np.roll(result.faces, 1, axis=1)]) ** 2).sum(
        2
    )
    quality = 4 * np.sqrt(3) * result.face_areas / squares.sum(axis=1)
    assert quality.min() > 0.3
    assert quality.mean() > 0.8


def test_no_topology_is_lost():
    torus = as_mesh(trimesh.creation.torus(1.0, 0.25, major_sections=40, minor_sections=20))
    found = decimate(torus, 60).report()
    assert (found.vertices, found.euler_characteristic, found.clean) == (60, 0, True)
    two = trimesh.creation.icosphere(subdivisions=3)
    two = two + two.copy().apply_translation([3, 0, 0])
    found = decimate(as_mesh(two), 40).report()
    assert (found.vertices, found.components, found.clean) == (40, 2, True)


def test_a_flat_square_keeps_its_plane_its_corners_and_its_boundary():
    result = decimate(plane(20), 30)
    found = result.report()
    assert (found.vertices, found.boundary_loops, found.euler_characteristic) == (30, 1, 1)
    assert found.clean
    np.testing.assert_allclose(result.vertices[:, 2], 0, atol=1e-12)
    assert result.area == pytest.approx(1, abs=0.02)
    corners = np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]])
    assert cKDTree(result.vertices).query(corners)[0].max() < 0.1


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_and_translation_make_no_difference(scale):
    mesh = blob(1)
    expected = decimate(mesh, 200)
    moved = decimate(replace(mesh, vertices=scale * (mesh.vertices + 3)), 200)
    np.testing.assert_allclose(moved.vertices / scale - 3, expected.vertices, atol=1e-8)
    np.testing.assert_array_equal(moved.faces, expected.faces)


def test_the_result_is_deterministic():
    first, second = decimate(SPHERE, 200), decimate(SPHERE, 200)
    np.testing.assert_array_equal(first.vertices, second.vertices)
    np.testing.assert_array_equal(first.faces, second.faces)


def test_small_meshes_are_returned_unchanged():
    assert decimate(SPHERE, len(SPHERE.vertices)) is SPHERE
    assert decimate(SPHERE, 10**6) is SPHERE


def test_isolated_vertices_go_first():
    mesh = Mesh([[9, 9, 9], *SPHERE.vertices], SPHERE.faces + 1)
    result = decimate(mesh, len(SPHERE.vertices))
    np.testing.assert_allclose(result.vertices, SPHERE.vertices, atol=1e-12)
    np.testing.assert_array_equal(result.faces, SPHERE.faces)


def test_a_warning_states_how_many_vertices_are_left():
    with pytest.warns(UserWarning, match=r"mesh 'sphere': decimation ended at \d+ vertices instead of 2"):
        result = decimate(SPHERE, 2)
    assert 4 <= len(result.vertices) < 12
    assert result.report().clean


def dirty_mesh(rng):
    """Vertices at random, faces at random: edges of many faces, bow-ties, duplicate and degenerate faces."""
    vertices = rng.integers(0, 3, size=(30, 3)).astype(float)
    return Mesh(vertices, rng.integers(0, 30, size=(rng.integers(1, 60), 3)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
@example(136)
def test_any_triangles_can_be_decimated(seed):
    rng = np.random.default_rng(seed)
    mesh = dirty_mesh(rng)
    target = int(rng.integers(1, 30))
    if all(len(set(face)) < 3 for face in mesh.faces.tolist()):
        with pytest.raises(ValueError, match="no faces of three vertices"):
            decimate(mesh, target)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = decimate(mesh, target)
    before, after = mesh.report(), result.report()
    assert after.isolated_vertices == 0
    assert after.duplicate_faces <= before.duplicate_faces
    assert len(result.vertices) <= target or len(caught) == 1


def test_bad_input():
    with pytest.raises(ValueError, match="vertices=0 must be an integer of at least 1"):
        decimate(SPHERE, 0)
    with pytest.raises(ValueError, match="mesh 'points': it has no faces"):
        decimate(Mesh(SPHERE.vertices, [], name="points"), 5)


def test_duplicate_faces_are_dropped():
    mesh = icosphere(2)
    repeated = Mesh(mesh.vertices, np.concatenate([mesh.faces, mesh.faces[::3, ::-1]]))
    expected, found = decimate(mesh, 60), decimate(repeated, 60)
    np.testing.assert_array_equal(found.vertices, expected.vertices)
    np.testing.assert_array_equal(found.faces, expected.faces)
