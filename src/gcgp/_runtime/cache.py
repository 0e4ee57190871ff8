"""A folder of computed arrays, whose files are named by the hash of their inputs.

`joblib.Memory` is not used because it unpickles its files, and unpickling executes code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gcgp._runtime.atomic import PARTIAL_SUFFIX, atomic_write
from gcgp._runtime.cache_file import read_arrays, write_arrays

CACHE_VARIABLE = "GCGP_CACHE"
"""Environment variable: the folder of the cache, or `off`."""
CACHE_LIMIT_VARIABLE = "GCGP_CACHE_LIMIT"
"""Environment variable: the maximum size of the cache in bytes."""
DEFAULT_CACHE_BYTES = 10 << 30
"""Charts with 16 rays of 100 meshes of 2,500 vertices take 7 GB."""
CACHE_SUFFIX = ".cache"
SCAN_FRACTION = 0.01
"""The folder is scanned when this fraction of its limit has been written, and at first use."""
STALE_SECONDS = 3600.0
"""Time since the last write to an unfinished file after which it is removed."""
CACHE_FORMAT = 2
"""Part of each key; to be increased when the format of the files changes."""

unscanned_bytes: dict[Path, int] = {}
"""Bytes that this process has written to each folder since it last scanned the folder."""

Part = str | int | float | bool | np.ndarray
Arrays = dict[str, np.ndarray]


def cache_folder() -> Path | None:
    """The folder in GCGP_CACHE (None if that is `off`), by default in the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return None if given == "off" else Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gcgp"


def cached(
    parts: Sequence[Part], compute: Callable[[], Arrays], check: Callable[[Arrays], None] | None = None
) -> Arrays:
    """The result of `compute`, from the cache if it was computed before from the same parts.

    Several processes may use the cache at once. A file that cannot be read, whose checksum is wrong, or for
    whose arrays `check` raises a ValueError is replaced, with a warning. Errors of writing are ignored.
    """
    folder = cache_folder()
    if folder is None:
        return compute()
    limit = _limit()
    key = _key(parts)
    path = folder / (key + CACHE_SUFFIX)
    if folder not in unscanned_bytes:
        unscanned_bytes[folder] = limit
        _remove_stale(folder)
    stored = _read(path, key, limit, check)
    if stored is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used file is removed first
        return stored
    arrays = compute()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write_arrays(part, key, arrays)
        unscanned_bytes[folder] += path.stat().st_size
        if unscanned_bytes[folder] > SCAN_FRACTION * limit:
            unscanned_bytes[folder] = 0
            _remove_least_recent(folder, limit)
    return arrays


def is_cached(parts: Sequence[Part]) -> bool:
    """Whether the cache has a file for these parts."""
    folder = cache_folder()
    return folder is not None and (folder / (_key(parts) + CACHE_SUFFIX)).is_file()


def digest_of(parts: Sequence[Part]) -> str:
    """A hash of the parts in their order; of arrays, of dtype, shape and content."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _key(parts: Sequence[Part]) -> str:
    return digest_of(("format", CACHE_FORMAT, *parts))


def _limit() -> int:
    given = os.environ.get(CACHE_LIMIT_VARIABLE, str(DEFAULT_CACHE_BYTES))
    if not given.isdecimal():
        raise ValueError(f"{CACHE_LIMIT_VARIABLE}={given!r}: expected a number of bytes")
    return int(given)


def _read(path: Path, key: str, limit: int, check: Callable[[Arrays], None] | None) -> Arrays | None:
    """The arrays of a file that was written for this key and passes the check; otherwise None."""
    try:
        arrays = read_arrays(path, key, limit)
        if check is not None:
            check(arrays)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{path}: this cache file cannot be used ({error}); its content is computed again", stacklevel=3
        )
        return None
    return arrays


def _remove_least_recent(folder: Path, limit: int) -> None:
    """Remove files, the least recently used first, until the folder is within its limit."""
    _remove_stale(folder)
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            state = entry.stat()
            if entry.name.endswith(CACHE_SUFFIX):
                files.append((state.st_mtime, state.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            os.remove(path)
            total -= size


def _remove_stale(folder: Path) -> None:
    """Remove unfinished files of processes that were killed while writing to the cache."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(PARTIAL_SUFFIX) and f"{CACHE_SUFFIX}." in entry.name:
                with contextlib.suppress(OSError):
                    if time.time() - entry.stat().st_mtime > STALE_SECONDS:
                        os.remove(entry.path)
