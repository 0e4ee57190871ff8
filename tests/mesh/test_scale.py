import numpy as np
import pytest
import trimesh

from gcgp.mesh.mesh import Mesh
from gcgp.mesh.scale import normalized

SPHERE = trimesh.creation.icosphere(subdivisions=3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 250.0])
def test_area(scale):
    mesh = Mesh(scale * SPHERE.vertices, SPHERE.faces, name="sphere")
    result = normalized(mesh)
    assert trimesh.Trimesh(result.vertices, result.faces).area == pytest.approx(1)
    assert result.name == "sphere"
    np.testing.assert_array_equal(result.faces, mesh.faces)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 250.0])
def test_diameter_of_a_sphere_is_half_its_circumference(scale):
    result = normalized(Mesh(scale * SPHERE.vertices, SPHERE.faces), by="diameter")
    np.testing.assert_allclose(np.linalg.norm(result.vertices, axis=1), 1 / np.pi, rtol=0.03)


def test_diameter_of_a_strip_from_any_numbering():
    steps = np.arange(30)
    vertices = np.concatenate([np.column_stack([steps, 0 * steps + y, 0 * steps]) for y in (0, 1)])
    faces = np.concatenate(
        [
            np.column_stack([steps[:-1], steps[1:], steps[1:] + 30]),
            np.column_stack([steps[:-1], steps[1:] + 30, steps[:-1] + 30]),
        ]
    )
    expected = 1 / np.hypot(29, 1)
    order = np.random.default_rng(0).permutation(60)
    shuffled = np.empty_like(vertices)
    shuffled[order] = vertices
    for mesh in (Mesh(vertices, faces), Mesh(shuffled, order[faces])):
        factor = np.ptp(normalized(mesh, by="diameter").vertices[:, 0]) / 29
        assert factor == pytest.approx(expected, rel=1e-3)


def test_isolated_vertices_do_not_count():
    mesh = Mesh([*SPHERE.vertices, [1e3, 0, 0]], SPHERE.faces)
    alone = Mesh(SPHERE.vertices, SPHERE.faces)
    for by in ("area", "diameter"):
        np.testing.assert_allclose(normalized(mesh, by).vertices[:-1], normalized(alone, by).vertices)


def test_bad_input():
    with pytest.raises(ValueError, match="by='volume' is not known; expected one of 'area', 'diameter'"):
        normalized(Mesh(SPHERE.vertices, SPHERE.faces), by="volume")
    for by in ("area", "diameter"):
        with pytest.raises(ValueError, match=f"mesh 'points': its {by} is 0.0"):
            normalized(Mesh(SPHERE.vertices, [], name="points"), by)
