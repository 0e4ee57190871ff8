import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from gcgp.mesh.mesh import Mesh
from gcgp.mesh.spectrum import laplace_beltrami
from mesh_shapes import icosphere, scattered_plane, side_by_side

TRIANGLE = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])


def rectangle(rows, columns, width=1.0, height=1.0):
    x, y = np.meshgrid(np.linspace(0, width, columns), np.linspace(0, height, rows))
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (
        part.ravel() for part in (number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:])
    )
    vertices = np.stack([x.ravel(), y.ravel(), np.zeros(rows * columns)], axis=1)
    return Mesh(vertices, np.concatenate([np.stack([a, b, d], 1), np.stack([a, d, c], 1)]))


def bumpy(seed, rows=12, columns=14):
    flat = rectangle(rows, columns, 1.3, 0.9)
    return Mesh(flat.vertices + np.random.default_rng(seed).normal(0, 0.02, flat.vertices.shape), flat.faces)


def heat(spectrum, time=0.01):
    return (np.exp(-time * spectrum.eigenvalues) * spectrum.eigenfunctions**2).sum(axis=1)


def assert_sound(mesh, spectrum):
    """What holds on any mesh."""
    values, functions, mass = spectrum.eigenvalues, spectrum.eigenfunctions, spectrum.mass
    assert functions.shape == (len(mesh.vertices), len(values))
    assert np.isfinite(functions).all()
    assert (values >= 0).all()
    assert (np.diff(values) >= 0).all()
    assert mass.sum() == pytest.approx(mesh.area)
    gram = functions.T @ (mass[:, None] * functions)
    np.testing.assert_allclose(gram, np.eye(len(values)), atol=1e-8)


@pytest.mark.parametrize("subdivisions", [3, 4])
def test_a_sphere_has_l_times_l_plus_1(subdivisions):
    mesh = icosphere(subdivisions)
    spectrum = laplace_beltrami(mesh, 36)
    degrees = np.repeat(np.arange(6), 2 * np.arange(6) + 1)
    np.testing.assert_allclose(spectrum.eigenvalues, degrees * (degrees + 1), rtol=0.05, atol=1e-9)
    # The squares of all harmonics of a degree sum to (2l + 1) / 4π everywhere.
    np.testing.assert_allclose((spectrum.eigenfunctions[:, 1:4] ** 2).sum(axis=1), 3 / (4 * np.pi), rtol=0.02)
    assert_sound(mesh, spectrum)


@pytest.mark.parametrize("size", [(15, 15), (31, 31)])
def test_a_square_has_free_ends(size):
    mesh = rectangle(*size)
    spectrum = laplace_beltrami(mesh, 8)
    waves = sorted(m**2 + n**2 for m in range(5) for n in range(5))[:8]
    np.testing.assert_allclose(spectrum.eigenvalues, np.pi**2 * np.array(waves), rtol=0.04, atol=1e-9)
    assert_sound(mesh, spectrum)


@pytest.mark.parametrize("stretch", [1.0, 20.0])
def test_needles_do_not_change_a_square(stretch):
    """Masses are those of the Delaunay triangulation that the operator is made from, not of the faces."""
    mesh = scattered_plane(400, stretch=stretch)
    waves = sorted(m**2 + n**2 for m in range(8) for n in range(8))[1:20]
    found = laplace_beltrami(mesh, 20)
    np.testing.assert_allclose(found.eigenvalues[1:], np.pi**2 * np.array(waves), rtol=0.08)
    assert_sound(mesh, found)


@pytest.mark.parametrize("factor", [1e6, 1e-6, 3.0])
@pytest.mark.parametrize("eigenpairs", [20, 100])
def test_scale(factor, eigenpairs):
    mesh = bumpy(0)
    unit, scaled = laplace_beltrami(mesh, eigenpairs), laplace_beltrami(mesh.scaled(factor), eigenpairs)
    np.testing.assert_allclose(
        scaled.eigenvalues * factor**2, unit.eigenvalues, rtol=1e-8, atol=1e-8 * unit.eigenvalues[-1]
    )
    np.testing.assert_allclose(
        (scaled.eigenfunctions * factor) ** 2, unit.eigenfunctions**2, rtol=1e-6, atol=1e-6
    )
    assert scaled.mass.sum() == pytest.approx(mesh.area * factor**2)


def test_at_unit_area():
    mesh = bumpy(1).scaled(5.0)
    expected = laplace_beltrami(mesh.scaled(mesh.area**-0.5), 20)
    found = laplace_beltrami(mesh, 20).at_unit_area()
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, atol=1e-8)
    np.testing.assert_allclose(found.eigenfunctions**2, expected.eigenfunctions**2, atol=1e-8)
    assert found.mass.sum() == pytest.approx(1)


def test_the_same_mesh_gives_the_same_bits():
    mesh = icosphere(3)
    first, second = laplace_beltrami(mesh), laplace_beltrami(mesh)
    np.testing.assert_array_equal(first.eigenfunctions, second.eigenfunctions)
    np.testing.assert_array_equal(first.eigenvalues, second.eigenvalues)


@pytest.mark.parametrize(
    "mesh", [bumpy(2), rectangle(12, 12), icosphere(2)], ids=["bumpy", "square", "sphere"]
)
@pytest.mark.parametrize("eigenpairs", [16, 60])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_rotation_translation_and_numbering_change_nothing(mesh, eigenpairs, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(mesh.vertices))
    moved = Mesh(
        Rotation.random(rng=rng).apply(mesh.vertices[order]) + rng.normal(0, 3, 3),
        np.argsort(order)[mesh.faces[rng.permutation(len(mesh.faces))]],
    )
    before, after = laplace_beltrami(mesh, eigenpairs), laplace_beltrami(moved, eigenpairs)
    np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, rtol=1e-6, atol=1e-8)
    # A cut through an eigenspace leaves any part of it; by this time there is no heat in it.
    time = 0.1 * mesh.area
    np.testing.assert_allclose(heat(after, time), heat(before, time)[order], rtol=1e-6)


def test_dense_and_sparse_agree():
    mesh = bumpy(3)
    sparse, dense = laplace_beltrami(mesh, 20), laplace_beltrami(mesh, 150)
    np.testing.assert_allclose(sparse.eigenvalues, dense.eigenvalues[:20], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(sparse.eigenfunctions**2, dense.eigenfunctions[:, :20] ** 2, atol=1e-6)


def test_equal_components_have_equal_eigenvalues():
    part = icosphere(2)
    mesh = side_by_side(*(Mesh(part.vertices + np.array([3.0 * i, 0, 0]), part.faces) for i in range(4)))
    spectrum = laplace_beltrami(mesh, 36)
    np.testing.assert_allclose(
        spectrum.eigenvalues, np.repeat(laplace_beltrami(part, 9).eigenvalues, 4), rtol=1e-8, atol=1e-8
    )
    assert_sound(mesh, spectrum)


class TestDirtyMeshes:
    def test_a_triangle(self):
        spectrum = laplace_beltrami(TRIANGLE)
        np.testing.assert_allclose(spectrum.eigenvalues, [0, 3, 9], atol=1e-9)
        assert_sound(TRIANGLE, spectrum)

    @pytest.mark.parametrize("eigenpairs", [10, 500])
    def test_isolated_vertices(self, eigenpairs):
        clean = bumpy(4)
        lone = np.array([0, 50, len(clean.vertices) + 2])
        kept = np.setdiff1d(np.arange(len(clean.vertices) + 3), lone)
        vertices = np.full((len(clean.vertices) + 3, 3), 1000.0)
        vertices[kept] = clean.vertices
        mesh = Mesh(vertices, kept[clean.faces])
        expected, found = laplace_beltrami(clean, eigenpairs), laplace_beltrami(mesh, eigenpairs)
        assert_sound(mesh, found)
        np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues)
        np.testing.assert_allclose(heat(found)[kept], heat(expected))
        assert not found.eigenfunctions[lone].any()
        assert not found.mass[lone].any()

    def test_faces_without_area(self):
        clean = bumpy(5)
        end = len(clean.vertices)
        more = [clean.vertices[0], clean.vertices[0] + [1, 0, 0], clean.vertices[0] + [2, 0, 0]]
        mesh = Mesh(
            np.concatenate([clean.vertices, more]),
            np.concatenate([clean.faces, [[0, 0, 1], [2, 2, 2], [0, 1, end], [end, end + 1, end + 2]]]),
        )
        found = laplace_beltrami(mesh, 20)
        assert_sound(mesh, found)
        np.testing.assert_allclose(found.eigenvalues, laplace_beltrami(clean, 20).eigenvalues, atol=1e-8)

    def test_a_sliver_between_good_faces(self):
        vertices = [[0, 0, 0], [1, 0, 0], [0.5, 1, 0], [0.5, -1, 0], [0.5, 1e-9, 0]]
        mesh = Mesh(vertices, [[0, 4, 2], [4, 1, 2], [0, 1, 4], [0, 3, 1]])
        assert_sound(mesh, laplace_beltrami(mesh))

    @pytest.mark.parametrize("repeated", [slice(None), slice(0, 20)])
    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    def test_duplicate_faces_change_nothing(self, repeated, order):
        clean = bumpy(6)
        mesh = Mesh(clean.vertices, np.concatenate([clean.faces, clean.faces[repeated][:, order]]))
        found, expected = laplace_beltrami(mesh, 20), laplace_beltrami(clean, 20)
        assert_sound(mesh, found)
        np.testing.assert_array_equal(found.mass, expected.mass)
        np.testing.assert_array_equal(found.eigenvalues, expected.eigenvalues)
        np.testing.assert_array_equal(found.eigenfunctions, expected.eigenfunctions)

    def test_components_and_three_faces_on_one_edge(self):
        fan = Mesh(
            [[0, 0, 0], [0, 0, 1], [1, 0, 0], [-1, 1, 0], [-1, -1, 0]], [[0, 1, 2], [0, 1, 3], [0, 1, 4]]
        )
        mesh = side_by_side(icosphere(1), fan, TRIANGLE)
        spectrum = laplace_beltrami(mesh)
        assert (spectrum.eigenvalues < 1e-9).sum() == 3
        assert_sound(mesh, spectrum)

    @given(seed=st.integers(0, 10**6))
    @settings(max_examples=20, deadline=None)
    def test_any_triangles(self, seed):
        rng = np.random.default_rng(seed)
        count = rng.integers(3, 30)
        points = rng.integers(0, 4, (count, 3)).astype(float)
        faces = np.concatenate([[[0, 1, 2]], rng.integers(0, count, (rng.integers(1, 40), 3))])
        points[:3] = np.eye(3)
        mesh = Mesh(points, faces)
        assert_sound(mesh, laplace_beltrami(mesh, 12))

    @pytest.mark.parametrize("faces", [[], [[0, 0, 1]], [[0, 1, 2]]])
    def test_no_area(self, faces):
        line = Mesh([[0, 0, 0], [0.1, 0.1, 0.3], [0.3, 0.3, 0.9]], faces, name="thread")
        with pytest.raises(ValueError, match=r"mesh 'thread': its area is .*; a spectrum needs"):
            laplace_beltrami(line)


@pytest.mark.parametrize("eigenpairs", [0, -1, 2.5, True, "all"])
def test_eigenpairs_are_counted(eigenpairs):
    with pytest.raises(ValueError, match="eigenpairs="):
        laplace_beltrami(TRIANGLE, eigenpairs)
