import numpy as np
import pytest
import trimesh

from gcgp.datasets import bodies as module
from gcgp.datasets.bodies import articulated_bodies
from gcgp.datasets.level_set import level_set
from gcgp.mesh import Mesh


@pytest.fixture(scope="module")
def bodies():
    return articulated_bodies(persons=3, poses=3, vertices=400, random_state=1)


def as_trimesh(mesh):
    return trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)


def edge_ratios(mesh):
    """Shortest over longest edge of each face."""
    corners = mesh.vertices[mesh.faces]
    lengths = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
    return lengths.min(axis=1) / lengths.max(axis=1)


def test_bodies_are_closed_and_in_one_piece(bodies):
    for mesh in bodies.meshes:
        body = as_trimesh(mesh)
        assert body.is_watertight
        assert body.is_winding_consistent
        assert body.euler_number == 2
        assert body.body_count == 1
        assert body.volume > 0
        assert len(mesh.vertices) == 400


def test_persons_and_poses_are_given(bodies):
    assert len(bodies) == 9
    assert bodies.persons.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert bodies.poses.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert bodies.meshes[5].name == "person 1, pose 2"


def test_a_body_does_not_depend_on_the_others(bodies):
    again = articulated_bodies(persons=2, poses=1, vertices=400, random_state=1)
    for n, mesh in zip((0, 3), again.meshes, strict=True):
        np.testing.assert_array_equal(mesh.vertices, bodies.meshes[n].vertices)
        np.testing.assert_array_equal(mesh.faces, bodies.meshes[n].faces)
    other = articulated_bodies(persons=1, poses=1, vertices=400, random_state=2)
    assert not np.array_equal(other.meshes[0].vertices, bodies.meshes[0].vertices)


def test_bodies_differ_in_connectivity(bodies):
    degrees = [np.sort(np.bincount(mesh.edges.ravel())) for mesh in bodies.meshes]
    for n, one in enumerate(degrees):
        assert not any(np.array_equal(one, other) for other in degrees[:n])


def test_bodies_stand_on_the_ground_and_have_human_size(bodies):
    for mesh in bodies.meshes:
        assert mesh.vertices[:, 1].min() == 0
        assert 1.2 < mesh.vertices[:, 1].max() < 2.1
        assert 1.1 < mesh.area < 2.6


def test_heights_at_rest(monkeypatch):
    rest = {name: (angle, angle, angle) for name, (angle, _, _) in module.JOINT_ANGLES.items()}
    monkeypatch.setattr(module, "JOINT_ANGLES", rest)
    for mesh in articulated_bodies(persons=3, poses=1, vertices=400).meshes:
        assert 1.5 < np.ptp(mesh.vertices[:, 1]) < 1.9


def test_a_person_keeps_its_shape_over_poses(bodies):
    areas = np.array([mesh.area for mesh in bodies.meshes]).reshape(3, 3)
    volumes = np.array([as_trimesh(mesh).volume for mesh in bodies.meshes]).reshape(3, 3)
    for sizes in (areas, volumes):
        assert sizes.std(axis=1).max() < 0.5 * sizes.mean(axis=1).std()


def test_a_pose_is_shared_by_persons(bodies):
    extents = np.array([np.ptp(mesh.vertices, axis=0) for mesh in bodies.meshes])
    shapes = (extents / np.linalg.norm(extents, axis=1, keepdims=True)).reshape(3, 3, 3)
    assert shapes.std(axis=0).mean() < 0.5 * shapes.mean(axis=0).std(axis=0).mean()


def test_triangles_are_not_slivers(bodies):
    ratios = np.concatenate([edge_ratios(mesh) for mesh in bodies.meshes])
    assert np.quantile(ratios, 0.01) > 0.2
    assert np.median(ratios) > 0.5


def hanging(monkeypatch, rest):
    arms = {f"{side} arm lift": (rest, 0, 0) for side in ("left", "right")}
    straight = {f"{side} elbow": (0, 0, 0) for side in ("left", "right")}
    monkeypatch.setattr(module, "JOINT_ANGLES", {**module.JOINT_ANGLES, **arms, **straight})


def test_limbs_that_touch_are_moved_apart(monkeypatch):
    refused = []
    mesh_or_none = module._mesh
    monkeypatch.setattr(module, "_mesh", lambda *args: refused.append(mesh_or_none(*args)) or refused[-1])
    hanging(monkeypatch, rest=60)
    (mesh,) = articulated_bodies(persons=1, poses=1, vertices=400).meshes
    assert refused[0] is None
    assert as_trimesh(mesh).euler_number == 2


def test_a_body_that_cannot_be_closed_is_an_error(monkeypatch):
    hanging(monkeypatch, rest=0)
    with pytest.raises(RuntimeError, match="person 0, pose 0: no closed surface of genus 0"):
        articulated_bodies(persons=1, poses=1, vertices=400)


@pytest.mark.parametrize(
    ("name", "value"),
    [("persons", 0), ("poses", -1), ("vertices", 50), ("random_state", None), ("poses", 2.5)],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be an integer of at least"):
        articulated_bodies(**{name: value})


def test_level_sets_of_known_shape():
    def ball(points):
        return np.linalg.norm(points - 10.2, axis=1) - 7.3

    def ring(points):
        x, y, z = (points - 10.2).T
        return np.hypot(np.hypot(x, y) - 6.1, z) - 2.7

    for distance, euler, volume in (
        (ball, 2, 4 / 3 * np.pi * 7.3**3),
        (ring, 0, 2 * np.pi**2 * 6.1 * 2.7**2),
    ):
        vertices, faces = level_set(distance, np.array([21, 20, 22]))
        surface = as_trimesh(Mesh(vertices, faces))
        assert surface.is_watertight
        assert surface.euler_number == euler
        assert surface.volume == pytest.approx(volume, rel=0.05)
        assert np.abs(distance(vertices)).max() < 0.2


def test_the_level_set_of_noise_is_closed():
    rng = np.random.default_rng(0)
    noise = np.ones((13, 13, 13))
    noise[1:-1, 1:-1, 1:-1] = rng.normal(size=(11, 11, 11)).clip(-4, 4)
    vertices, faces = level_set(lambda points: noise[tuple(points.astype(int).T)], np.array([12, 12, 12]))
    sides = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    forth, times = np.unique(sides, axis=0, return_counts=True)
    assert times.max() == 1
    np.testing.assert_array_equal(np.unique(sides[:, ::-1], axis=0), forth)
    assert len(vertices) == faces.max() + 1
