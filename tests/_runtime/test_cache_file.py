"""The format of cache files: damaged and malicious files are detected."""

import os
import time
import zlib

import numpy as np
import pytest

from gcgp._runtime.cache import cached
from gcgp._runtime.cache_file import CHECKSUM, read_arrays, write_arrays

ARRAYS = {"rho": np.arange(10, dtype=np.float32), "empty": np.zeros((0, 3)), "one": np.array(True)}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GCGP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GCGP_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


def test_arrays_are_read_as_written(tmp_path):
    write_arrays(tmp_path / "a", "key", ARRAYS)
    actual = read_arrays(tmp_path / "a", "key")
    assert_same(actual, ARRAYS)
    assert [array.dtype for array in actual.values()] == [array.dtype for array in ARRAYS.values()]
    with pytest.raises(ValueError, match="written for other inputs"):
        read_arrays(tmp_path / "a", "another key")
    with pytest.raises(ValueError, match="more than the limit of the cache"):
        read_arrays(tmp_path / "a", "key", max_bytes=100)
    with pytest.raises(ValueError, match="short has dtype int16"):
        write_arrays(tmp_path / "a", "key", {"short": np.zeros(3, dtype=np.int16)})


def test_a_change_of_any_byte_is_detected(tmp_path):
    path = tmp_path / "a"
    write_arrays(path, "key", ARRAYS)
    whole = path.read_bytes()
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :])
        with pytest.raises(ValueError, match="its checksum is wrong"):
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
def test_a_wrong_header_with_a_correct_checksum(tmp_path, header, length):
    body = (len(header) if length is None else length).to_bytes(8, "little") + header + bytes(100)
    (tmp_path / "a").write_bytes(CHECKSUM.pack(zlib.crc32(body)) + body)
    with pytest.raises(ValueError, match="its header is wrong"):
        read_arrays(tmp_path / "a", "key")


def test_truncating_the_file_later_does_not_change_the_arrays(folder):
    large = {"values": np.arange(1 << 18)}
    cached(("a",), lambda: large)
    actual = cached(("a",), dict)
    (path,) = folder.iterdir()
    os.truncate(path, 100)
    assert_same(actual, large)
    with pytest.warns(UserWarning, match="checksum"):
        assert_same(cached(("a",), lambda: large), large)


def test_a_pipe_instead_of_a_file_does_not_block(folder):
    cached(("a",), lambda: ARRAYS)
    (path,) = folder.iterdir()
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(UserWarning, match="not a regular file"):
        assert_same(cached(("a",), lambda: ARRAYS), ARRAYS)


def part(folder, name, seconds):
    path = folder / name
    path.write_bytes(b"half of it")
    os.utime(path, (time.time() - seconds,) * 2)
    return path


def test_stale_unfinished_files_are_removed(folder):
    folder.mkdir()
    stale = part(folder, f".{'a' * 64}.cache.0123456789abcdef.part", 4000)
    recent = part(folder, f".{'b' * 64}.cache.0123456789abcdef.part", 3000)
    other = part(folder, "download.part", 10**6)
    cached(("a",), lambda: ARRAYS)
    assert not stale.exists()
    assert recent.exists()
    assert other.exists()
