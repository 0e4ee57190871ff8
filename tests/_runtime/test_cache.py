"""The cache: files under the hash of their inputs, damaged files, limits, several processes."""

import os
import subprocess
import sys

import numpy as np
import pytest

from gcgp._runtime import cache
from gcgp._runtime.cache import cache_folder, cached

ARRAYS = {"rho": np.arange(50, dtype=np.float32), "neighbors": np.arange(6, dtype=np.int32).reshape(2, 3)}


class Counted:
    """A computation that counts its calls."""

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


def assert_same(actual, expected=ARRAYS):
    assert actual.keys() == expected.keys()
    for name in expected:
        assert actual[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(actual[name], expected[name])


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_results_are_computed_once(folder):
    compute = Counted()
    for _ in range(3):
        assert_same(cached(("a", 1, np.arange(3)), compute))
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
def test_other_parts_give_another_file(other, folder):
    cached(("a", 1, np.arange(3)), Counted())
    compute = Counted()
    cached(other, compute)
    assert compute.calls == 1
    assert len(entries(folder)) == 2


def test_arrays_are_hashed_by_value_and_not_by_layout():
    compute = Counted()
    cached((np.arange(6).reshape(2, 3),), compute)
    cached((np.asfortranarray(np.arange(6).reshape(2, 3)),), compute)
    cached((np.arange(12)[::2].reshape(2, 3) // 2,), compute)
    assert compute.calls == 1


def damage(path, how):
    whole = path.read_bytes()
    if how == "other":
        path.write_bytes(b"something else altogether" * 20)
    elif how == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif how == "longer":
        path.write_bytes(whole + b"and more")
    else:
        path.write_bytes(whole[:how])


@pytest.mark.parametrize("how", [0, 1, 7, 8, 9, 60, 200, -100, -1, "other", "zeros", "longer"])
def test_a_damaged_file_is_computed_again_and_replaced(how, folder):
    compute = Counted()
    cached(("a",), compute)
    (path,) = folder.iterdir()
    damage(path, how)
    with pytest.warns(UserWarning, match=f"{path.name}: this cache file cannot be used"):
        assert_same(cached(("a",), compute))
    assert compute.calls == 2
    assert_same(cached(("a",), compute))
    assert compute.calls == 2
    assert entries(folder) == [path.name]


def test_the_cache_can_be_disabled(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    compute = Counted()
    cached(("a",), compute)
    assert_same(cached(("a",), compute))
    assert compute.calls == 2
    assert list(tmp_path.iterdir()) == []
    assert cache_folder() is None


def test_the_default_is_the_cache_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.delenv("GCGP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gcgp"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "gcgp"


def test_a_folder_that_cannot_be_created_is_ignored(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "file" / "cache"))
    compute = Counted()
    for _ in range(2):
        assert_same(cached(("a",), compute))
    assert compute.calls == 2
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_directory_instead_of_a_file_is_ignored(folder):
    cached(("a",), Counted())
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match="not a regular file"):
        assert_same(cached(("a",), Counted()))
    assert entries(folder) == [path.name]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_ignored(folder):
    compute = Counted({"long": np.arange(1000.0)})
    assert_same(cached(("a",), compute), compute.arrays)
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
    assert_same(cached(("a",), compute))
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
from gcgp._runtime.cache import CACHE_SUFFIX, cached
for i in range(40):
    actual = cached(("shared", i % 4), lambda: {"values": np.full(20_000, i % 4)})
    assert (actual["values"] == i % 4).all() and len(actual["values"]) == 20_000
    if i % 4 == 3:
        for file in Path(sys.argv[1]).glob("*" + CACHE_SUFFIX):
            file.unlink(missing_ok=True)
"""


def test_concurrent_processes_leave_complete_files(folder):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder)]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    for i in range(4):
        assert_same(
            cached(("shared", i), lambda i=i: {"values": np.full(20_000, i)}), {"values": np.full(20_000, i)}
        )
    assert len(entries(folder)) == 4
    assert [name for name in entries(folder) if not name.endswith(cache.CACHE_SUFFIX)] == []


def age(folder, seconds):
    for path in folder.iterdir():
        state = path.stat()
        os.utime(path, (state.st_atime - seconds, state.st_mtime - seconds))


def test_beyond_the_limit_the_least_recently_used_file_is_removed(folder, monkeypatch):
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


def test_other_files_in_the_folder_are_kept(folder, monkeypatch):
    folder.mkdir()
    (folder / "other.txt").write_text("x" * 1000)
    monkeypatch.setenv("GCGP_CACHE_LIMIT", "100")
    cached(("a",), Counted())
    assert entries(folder) == ["other.txt"]
