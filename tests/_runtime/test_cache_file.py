"""Files of the cache are not trusted: whatever they hold, charts, spectra and meshes come out right."""

import os
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from shapes_of_meshes import bumpy_sphere

from gcgp._runtime.cache import cached
from gcgp._runtime.cache_file import (
    PREFIX,
    DamagedFile,
    is_being_written,
    read_arrays,
    write_arrays,
)
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh import cache
from gcgp.mesh.decimation import decimate
from gcgp.mesh.spectrum import laplace_beltrami

ARRAYS = {"rho": np.arange(10, dtype=np.float32), "empty": np.zeros((0, 3)), "one": np.array(True)}
MESH = bumpy_sphere(1)
KINDS = {
    "chart": lambda: dict(vars(mesh_chart(MESH, ["rho"], 0.6))),
    "angles": lambda: vars(mesh_chart(MESH, ["theta", "rays:3"], 0.6)),
    "logarithmic": lambda: vars(mesh_chart(MESH, ["rho", "theta"], 0.6, "logmap")),
    "spectrum": lambda: vars(laplace_beltrami(MESH, 5)),
    "decimated": lambda: vars(decimate(MESH, 20, keep=True)),
}
kinds = pytest.mark.parametrize("compute", KINDS.values(), ids=KINDS.keys())


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GCGP_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            same(found[name], value)
        elif name != "surface":
            np.testing.assert_array_equal(found[name], value)


def stored(path):
    return {name: array.copy() for name, array in read_arrays(path, path.stem).items()}


def test_arrays_come_back(tmp_path):
    write_arrays(tmp_path / "a", "key", ARRAYS)
    found = read_arrays(tmp_path / "a", "key")
    same(found, ARRAYS)
    assert [array.dtype for array in found.values()] == [array.dtype for array in ARRAYS.values()]
    with pytest.raises(DamagedFile, match="written for other data"):
        read_arrays(tmp_path / "a", "another key")
    with pytest.raises(DamagedFile, match="more than the cache may hold"):
        read_arrays(tmp_path / "a", "key", most_bytes=100)
    with pytest.raises(ValueError, match="short has dtype int16"):
        write_arrays(tmp_path / "a", "key", {"short": np.zeros(3, dtype=np.int16)})


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "a"
    write_arrays(path, "key", ARRAYS)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(DamagedFile):
            read_arrays(path, "key")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"key": "key", "arrays": []}',
        b'{"key": "key", "arrays": {"a": ["<f4", [-1]]}}',
        b'{"key": "key", "arrays": {"a": ["<f4", [1000000000000, 1000000000000]]}}',
        b'{"key": "key", "arrays": {"a": ["|O", [1]]}}',
        b'{"key": "key", "arrays": {"a": [["<f4"], [1]]}}',
        b'{"key": "key", "arrays": {"a": ["<f4", [0.5]]}}',
        b'{"key": "key", "arrays": {"a": ["<f4", 1]}}',
        b'{"key": "key", "arrays": {}}',
    ],
)
@pytest.mark.parametrize("length", [None, 0, 2**63, 2**64 - 1])
def test_a_wrong_header_with_a_right_checksum(tmp_path, header, length):
    body = (len(header) if length is None else length).to_bytes(8, "little") + header + bytes(100)
    (tmp_path / "a").write_bytes(PREFIX.pack(b"gcgp\0\0\0\x01", zlib.crc32(body)) + body)
    with pytest.raises(DamagedFile, match="its header is wrong"):
        read_arrays(tmp_path / "a", "key")


@kinds
def test_a_file_with_a_changed_number_is_computed_again(compute, folder):
    expected = compute()
    (path,) = folder.iterdir()
    whole = bytearray(path.read_bytes())
    whole[-30] ^= 1
    path.write_bytes(whole)
    with pytest.warns(UserWarning, match="its checksum is wrong"):
        same(compute(), expected)
    same(compute(), expected)


def spoiled(array):
    """The array with values that must not be used, or with another shape or type."""
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


@kinds
def test_wrong_values_with_a_right_checksum_are_computed_again(compute, folder):
    expected = compute()
    (path,) = folder.iterdir()
    arrays = stored(path)
    for name, array in arrays.items():
        for wrong in spoiled(array):
            if name == "faces" and wrong.shape == (len(array) - 1, 3):
                continue  # a mesh may have any number of faces
            write_arrays(path, path.stem, {**arrays, name: wrong})
            with pytest.warns(UserWarning, match="cannot be used"):
                same(compute(), expected)
            assert stored(path)[name].tobytes() == array.tobytes()
        write_arrays(path, path.stem, {key: value for key, value in arrays.items() if key != name})
        with pytest.warns(UserWarning, match=r"it holds \["):
            same(compute(), expected)


def test_truncating_the_file_afterwards_does_not_change_the_arrays(folder):
    large = {"values": np.arange(1 << 18)}
    cached(("a",), lambda: large)
    found = cached(("a",), dict)
    (path,) = folder.iterdir()
    os.truncate(path, 100)
    same(found, large)
    with pytest.warns(UserWarning, match="cut off|checksum"):
        same(cached(("a",), lambda: large), large)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder):
    cached(("a",), lambda: ARRAYS)
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(UserWarning, match="not a regular file"):
        same(cached(("a",), lambda: ARRAYS), ARRAYS)


WRITER = """
import sys, time
from gcgp._runtime.cache_file import _lock
with open(sys.argv[1], "wb") as file:
    assert _lock(file.fileno())
    print("locked", flush=True)
    time.sleep(60)
"""


def part(folder, name, seconds):
    path = folder / name
    path.write_bytes(b"half of it")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_stale_unfinished_files_are_removed(folder, monkeypatch):
    folder.mkdir()
    stale = part(folder, f".{'a' * 64}.cache.0123456789abcdef.part", 4000)
    recent = part(folder, f".{'b' * 64}.cache.0123456789abcdef.part", 3000)
    foreign = part(folder, "download.part", 10**6)
    locked = folder / f".{'c' * 64}.cache.0123456789abcdef.part"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(locked)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline() == b"locked\n"
        os.utime(locked, (time.time() - 4000,) * 2)
        assert is_being_written(locked)
        cached(("a",), lambda: ARRAYS)
        assert not stale.exists()
        assert recent.exists()
        assert foreign.exists()
        assert locked.exists()
    finally:
        writer.kill()
        writer.communicate()
    monkeypatch.delitem(cache.unseen, folder)  # as in a new process
    cached(("a",), dict)
    assert not locked.exists()
