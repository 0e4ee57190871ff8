"""Charts, spectra and decimated meshes in the cache, whose files are not trusted."""

import numpy as np
import pytest
import trimesh
from joblib import parallel_config

from gcgp._runtime.cache_file import read_arrays, write_arrays
from gcgp.domain import Mesh, Meshes
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh.decimation import decimate
from gcgp.mesh.spectrum import laplace_beltrami
from tests.mesh_shapes import bumpy_sphere


def icosphere(subdivisions):
    ball = trimesh.creation.icosphere(subdivisions=subdivisions)
    return Mesh(np.array(ball.vertices), np.array(ball.faces))


BALL = icosphere(1)
MESH = Mesh(BALL.vertices * (1 + 0.1 * np.sin(3 * BALL.vertices + [0, 1, 2])), BALL.faces)
COMPUTATIONS = {
    "chart": lambda: vars(mesh_chart(MESH, ["rho"], 0.6)),
    "angles": lambda: vars(mesh_chart(MESH, ["theta", "rays:3"], 0.6)),
    "logarithmic map": lambda: vars(mesh_chart(MESH, ["rho", "theta"], 0.6, "logmap")),
    "spectrum": lambda: vars(laplace_beltrami(MESH, 5)),
    "decimated mesh": lambda: vars(decimate(MESH, 20, cache=True)),
}
each_computation = pytest.mark.parametrize("compute", COMPUTATIONS.values(), ids=COMPUTATIONS.keys())


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GCGP_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def stored(path):
    return {name: array.copy() for name, array in read_arrays(path, path.stem).items()}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_same(actual[name], value)
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(actual[name], value)


@each_computation
def test_a_file_with_a_wrong_checksum_is_computed_again(compute, folder):
    expected = compute()
    (path,) = folder.iterdir()
    whole = bytearray(path.read_bytes())
    whole[-30] ^= 1
    path.write_bytes(whole)
    with pytest.warns(UserWarning, match="its checksum is wrong"):
        assert_same(compute(), expected)
    assert_same(compute(), expected)


def spoiled(array):
    """The array with invalid values, or with another shape or type."""
    if array.dtype.kind == "i":
        for value in (-1, 2**31 - 1):
            other = array.copy()
            other.flat[other.size // 2] = value
            yield other
    else:
        for value in (np.inf, -np.inf):
            other = array.copy()
            other.flat[other.size // 2] = value
            yield other
    yield array[:-1]
    yield array[:, None]
    yield array.astype(np.float64 if array.dtype != np.float64 else np.float32)
    yield np.array(1, dtype=array.dtype)


@each_computation
def test_wrong_values_with_a_correct_checksum_are_computed_again(compute, folder):
    expected = compute()
    (path,) = folder.iterdir()
    arrays = stored(path)
    for name, array in arrays.items():
        for wrong in spoiled(array):
            if name == "faces" and wrong.shape == (len(array) - 1, 3):
                continue  # a mesh may have any number of faces
            write_arrays(path, path.stem, {**arrays, name: wrong})
            with pytest.warns(UserWarning, match="cannot be used"):
                assert_same(compute(), expected)
            assert stored(path)[name].tobytes() == array.tobytes()
        write_arrays(path, path.stem, {key: value for key, value in arrays.items() if key != name})
        with pytest.warns(UserWarning, match=r"it contains \["):
            assert_same(compute(), expected)


def test_a_chart_whose_file_contains_other_arrays_is_computed_again(folder):
    expected = mesh_chart(icosphere(0), ["rho"], 1.0)
    (path,) = folder.iterdir()
    write_arrays(path, path.stem, {"other": np.zeros(3)})
    with pytest.warns(UserWarning, match=r"it contains \['other'\], not \['neighbors'"):
        actual = mesh_chart(icosphere(0), ["rho"], 1.0)
    np.testing.assert_array_equal(actual.coordinates["rho"], expected.coordinates["rho"])


def test_a_chart_is_read_as_computed():
    for coordinates in (["rho"], ["rho", "theta"], ["rho", "theta", "rays:3"]):
        first, second = (mesh_chart(icosphere(1), coordinates, 0.8) for _ in range(2))
        np.testing.assert_array_equal(first.row_offsets, second.row_offsets)
        np.testing.assert_array_equal(first.neighbors, second.neighbors)
        for name in coordinates:
            assert first.coordinates[name].dtype == second.coordinates[name].dtype
            np.testing.assert_array_equal(first.coordinates[name], second.coordinates[name])


def test_other_meshes_reaches_frames_and_kinds_are_other_files(folder):
    mesh = icosphere(1)
    for count, arguments in enumerate(
        [
            (mesh, ["rho"], 0.5),
            (mesh, ["rho"], 0.6),
            (Mesh(mesh.vertices * (1 + 1e-12), mesh.faces), ["rho"], 0.5),
            (mesh, ["rho", "rays:3"], 0.5),
            (mesh, ["rho", "rays:3:edge"], 0.5),
            (mesh, ["rho", "rays:4"], 0.5),
            (mesh, ["rho", "theta"], 0.5),
            (mesh, ["rho", "theta"], 0.5, "logmap"),
        ]
    ):
        mesh_chart(*arguments)
        assert len(entries(folder)) == count + 1


def test_a_scaled_copy_shares_the_file_of_the_original(folder):
    mesh, coordinates = bumpy_sphere(1), ["rho", "theta", "rays:3"]
    chart = mesh_chart(mesh, coordinates, 0.6)
    other = mesh_chart(mesh.scaled(5.0).scaled(2.0), coordinates, 6.0)
    assert len(entries(folder)) == 1
    expected = mesh_chart(Mesh(mesh.vertices * 10.0, mesh.faces), coordinates, 6.0)
    for computed in (chart, expected):
        np.testing.assert_array_equal(other.neighbors, computed.neighbors)
    for name in coordinates:
        np.testing.assert_allclose(other.coordinates[name], expected.coordinates[name], rtol=1e-5, atol=1e-5)


def test_charts_of_nearly_the_same_reach_are_computed_once(folder):
    mesh = icosphere(1)
    first = mesh_chart(mesh, ["rho", "rays:3"], 0.50)
    second = mesh_chart(mesh, ["rho", "rays:3"], 0.49)
    assert len(entries(folder)) == 1
    assert first.coordinates["rho"].max() <= 0.5
    assert second.coordinates["rho"].max() <= 0.49


def test_joblib_workers_compute_charts_in_advance(folder):
    meshes = Meshes((icosphere(1), icosphere(1).scaled(1.1), icosphere(1).scaled(1.2)))
    meshes.prepare(["rho"], 0.5)
    assert not folder.exists()  # with one worker, charts are computed when they are needed
    with parallel_config(backend="threading", n_jobs=2):
        meshes.prepare(["rho"], 0.5)
        assert len(entries(folder)) == 3
        meshes.prepare(["rho"], 0.49)
    meshes.chart(["rho"], 0.5)
    assert len(entries(folder)) == 3
    with parallel_config(backend="threading", n_jobs=2), pytest.raises(ValueError, match="reach=-"):
        meshes.prepare(["rho"], -1)


def test_a_decimated_mesh_is_cached_on_request(folder):
    mesh = icosphere(3)
    plain = decimate(mesh, 100)
    assert not folder.exists()
    once, again = (decimate(mesh, 100, cache=True) for _ in range(2))
    assert len(list(folder.iterdir())) == 1
    for actual in (once, again):
        np.testing.assert_array_equal(actual.vertices, plain.vertices)
        np.testing.assert_array_equal(actual.faces, plain.faces)
    assert len(decimate(mesh, 90, cache=True).vertices) == 90
