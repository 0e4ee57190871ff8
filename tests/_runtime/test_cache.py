import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from joblib import parallel_config
from shapes_of_meshes import icosphere

from gcgp._runtime.cache import cache_folder, cached
from gcgp._runtime.cache_file import write_arrays
from gcgp.domain import Meshes
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh import cache
from gcgp.mesh.decimation import decimate

ARRAYS = {"rho": np.arange(50, dtype=np.float32), "neighbors": np.arange(6, dtype=np.int32).reshape(2, 3)}


class Counted:
    """A computation that knows how often it was made."""

    def __init__(self, arrays=ARRAYS):
        self.calls = 0
        self.arrays = arrays

    def __call__(self):
        self.calls += 1
        return self.arrays


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GCGP_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def same(found, expected=ARRAYS):
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_second_time_nothing_is_computed(folder):
    compute = Counted()
    for _ in range(3):
        same(cached(("a", 1, np.arange(3)), compute))
    assert compute.calls == 1
    assert len(entries(folder)) == 1


@pytest.mark.parametrize(
    "other",
    [
        ("b", 1, np.arange(3)),
        ("a", 2, np.arange(3)),
        ("a", 1.0, np.arange(3)),
        ("a", True, np.arange(3)),
        ("a", 1, np.arange(4)),
        ("a", 1, np.arange(3).astype(np.int32)),
        ("a", 1, np.arange(3).reshape(3, 1)),
        ("a", 1, np.array([0, 1, 3])),
        ("a", 1),
        ("a", "1", np.arange(3)),
    ],
)
def test_other_parts_are_another_entry(other, folder):
    cached(("a", 1, np.arange(3)), Counted())
    compute = Counted()
    cached(other, compute)
    assert compute.calls == 1
    assert len(entries(folder)) == 2


def test_arrays_count_by_value_and_not_by_layout():
    compute = Counted()
    cached((np.arange(6).reshape(2, 3),), compute)
    cached((np.asfortranarray(np.arange(6).reshape(2, 3)),), compute)
    cached((np.arange(12)[::2].reshape(2, 3) // 2,), compute)
    assert compute.calls == 1


def damage(path, how):
    whole = path.read_bytes()
    if how == "foreign":
        path.write_bytes(b"something else altogether" * 20)
    elif how == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif how == "longer":
        path.write_bytes(whole + b"and more")
    else:
        path.write_bytes(whole[:how])


@pytest.mark.parametrize("how", [0, 1, 7, 8, 9, 60, 200, -100, -1, "foreign", "zeros", "longer"])
def test_a_damaged_file_is_computed_again_and_replaced(how, folder):
    compute = Counted()
    cached(("a",), compute)
    (path,) = folder.iterdir()
    damage(path, how)
    with pytest.warns(UserWarning, match=f"{path.name}: this file of the cache cannot be used"):
        same(cached(("a",), compute))
    assert compute.calls == 2
    same(cached(("a",), compute))
    assert compute.calls == 2
    assert entries(folder) == [path.name]


def test_a_chart_whose_file_holds_other_arrays_is_computed_again(folder):
    expected = mesh_chart(icosphere(0), ["rho"], 1.0)
    (path,) = folder.iterdir()
    write_arrays(path, path.stem, {"other": np.zeros(3)})
    with pytest.warns(UserWarning, match=r"it holds \['other'\], not \['neighbors', 'rho', 'row_offsets'\]"):
        found = mesh_chart(icosphere(0), ["rho"], 1.0)
    np.testing.assert_array_equal(found.coordinates["rho"], expected.coordinates["rho"])


def test_it_can_be_turned_off(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    compute = Counted()
    cached(("a",), compute)
    same(cached(("a",), compute))
    assert compute.calls == 2
    assert list(tmp_path.iterdir()) == []
    assert cache_folder() is None


def test_it_is_in_the_folder_for_caches_unless_told(monkeypatch, tmp_path):
    monkeypatch.delenv("GCGP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gcgp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "gcgp"


def test_a_folder_that_cannot_be_made_does_no_harm(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "file" / "cache"))
    compute = Counted()
    for _ in range(2):
        same(cached(("a",), compute))
    assert compute.calls == 2
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_directory_in_the_place_of_a_file_does_no_harm(folder):
    cached(("a",), Counted())
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match="not a regular file"):
        same(cached(("a",), Counted()))
    assert entries(folder) == [path.name]


def test_a_full_disk_does_no_harm(folder):
    """Files of this process may be only 100 bytes long, so that writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    compute = Counted({"long": np.arange(1000.0)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        found = cached(("a",), compute)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    same(found, compute.arrays)
    assert entries(folder) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_write_leaves_nothing(error, folder, monkeypatch):
    def half(path, key, arrays):
        with open(path, "wb") as file:
            file.write(b"half of it")
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(cache, "write_arrays", half)
        with pytest.raises(error):
            cached(("a",), Counted())
    assert entries(folder) == []
    compute = Counted()
    same(cached(("a",), compute))
    assert compute.calls == 1


def test_an_error_of_the_computation_leaves_nothing(folder):
    def fails():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        cached(("a",), fails)
    assert not folder.exists() or entries(folder) == []


WRITER = """
from pathlib import Path
import sys
import numpy as np
from gcgp._runtime.cache import ENDING, cached
for i in range(40):
    found = cached(("shared", i % 4), lambda: {"values": np.full(20_000, i % 4)})
    assert (found["values"] == i % 4).all() and len(found["values"]) == 20_000
    if i % 4 == 3:
        for file in Path(sys.argv[1]).glob("*" + ENDING):
            file.unlink(missing_ok=True)
"""


def test_processes_that_write_at_once_leave_whole_files(folder):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder)]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    for i in range(4):
        same(
            cached(("shared", i), lambda i=i: {"values": np.full(20_000, i)}), {"values": np.full(20_000, i)}
        )
    assert len(entries(folder)) == 4
    assert [name for name in entries(folder) if not name.endswith(cache.ENDING)] == []


def age(folder, seconds):
    for path in folder.iterdir():
        state = path.stat()
        os.utime(path, (state.st_atime - seconds, state.st_mtime - seconds))


def test_beyond_the_limit_what_was_used_longest_ago_is_removed(folder, monkeypatch):
    large = {"values": np.zeros(1000)}
    monkeypatch.setenv("GCGP_CACHE_LIMIT", "20000")  # room for two of about 8,100 bytes
    for name in ("first", "second"):
        cached((name,), Counted(large))
        age(folder, 100)
    cached(("first",), Counted(large))  # used again
    age(folder, 100)
    cached(("third",), Counted(large))
    assert len(entries(folder)) == 2
    for name, calls in (("first", 0), ("third", 0), ("second", 1)):
        compute = Counted(large)
        cached((name,), compute)
        assert compute.calls == calls, name


def test_foreign_files_in_the_folder_are_left_alone(folder, monkeypatch):
    folder.mkdir()
    (folder / "mine.txt").write_text("x" * 1000)
    monkeypatch.setenv("GCGP_CACHE_LIMIT", "100")
    cached(("a",), Counted())
    assert entries(folder) == ["mine.txt"]


def test_a_chart_comes_back_as_it_was():
    for coordinates in (["rho"], ["rho", "theta"], ["rho", "theta", "rays:3"]):
        first, second = (mesh_chart(icosphere(1), coordinates, 0.8) for _ in range(2))
        np.testing.assert_array_equal(first.row_offsets, second.row_offsets)
        np.testing.assert_array_equal(first.neighbors, second.neighbors)
        for name in coordinates:
            assert first.coordinates[name].dtype == second.coordinates[name].dtype
            np.testing.assert_array_equal(first.coordinates[name], second.coordinates[name])


def test_charts_of_other_meshes_reaches_frames_and_kinds_are_told_apart(folder):
    mesh = icosphere(1)
    for made, arguments in enumerate(
        [
            (mesh, ["rho"], 0.5),
            (mesh, ["rho"], 0.6),
            (mesh.scaled(1 + 1e-12), ["rho"], 0.5),
            (mesh, ["rho", "rays:3"], 0.5),
            (mesh, ["rho", "rays:3:edge"], 0.5),
            (mesh, ["rho", "rays:4"], 0.5),
            (mesh, ["rho", "theta"], 0.5),
            (mesh, ["rho", "theta"], 0.5, "logmap"),
        ]
    ):
        mesh_chart(*arguments)
        assert len(entries(folder)) == made + 1


def test_charts_of_nearly_the_same_reach_are_computed_once(folder):
    mesh = icosphere(1)
    first = mesh_chart(mesh, ["rho", "rays:3"], 0.50)
    second = mesh_chart(mesh, ["rho", "rays:3"], 0.49)
    assert len(entries(folder)) == 1
    assert first.coordinates["rho"].max() <= 0.5
    assert second.coordinates["rho"].max() <= 0.49


def test_several_workers_chart_meshes_into_the_cache(folder):
    meshes = Meshes((icosphere(1), icosphere(1).scaled(1.1), icosphere(1).scaled(1.2)))
    meshes.prepare(["rho"], 0.5)
    assert not folder.exists()  # joblib allows one worker, who will chart when it is asked to
    with parallel_config(backend="threading", n_jobs=2):
        meshes.prepare(["rho"], 0.5)
        assert len(entries(folder)) == 3
        meshes.prepare(["rho"], 0.49)
    meshes.chart(["rho"], 0.5)
    assert len(entries(folder)) == 3
    with parallel_config(backend="threading", n_jobs=2), pytest.raises(ValueError, match="reach=-1"):
        meshes.prepare(["rho"], -1)


def test_a_decimated_mesh_is_kept_if_that_is_asked_for(folder):
    mesh = icosphere(3)
    plain = decimate(mesh, 100)
    assert not folder.exists()
    once, again = (decimate(mesh, 100, keep=True) for _ in range(2))
    assert len(list(folder.iterdir())) == 1
    for found in (once, again):
        np.testing.assert_array_equal(found.vertices, plain.vertices)
        np.testing.assert_array_equal(found.faces, plain.faces)
    assert len(decimate(mesh, 90, keep=True).vertices) == 90
