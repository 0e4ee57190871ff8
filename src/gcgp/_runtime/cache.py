"""A folder of computed arrays, each file under the hash of what it was computed from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gcgp._runtime.atomic import PART, atomic_write
from gcgp._runtime.cache_file import is_being_written, read_arrays, write_arrays

CACHE_VARIABLE = "GCGP_CACHE"
"""Environment variable: the folder of the cache, or `off`."""
LIMIT_VARIABLE = "GCGP_CACHE_LIMIT"
"""Environment variable: how many bytes the cache may take."""
LIMIT = 10 << 30
"""By default. Charts with 16 rays of 100 meshes of 2,500 vertices take 7 GB, and would be made again and
again with less."""
ENDING = ".cache"
SCAN_AFTER = 0.01
"""The folder is looked through once this part of its limit has been written to it, and at first."""
STALE_SECONDS = 3600.0
"""Age at which an unfinished file is removed, unless a process still writes to it."""
FORMAT = 1
"""Part of every key; to be raised when the format of the files changes."""

unseen: dict[Path, int] = {}
"""For each folder the bytes that this process has written since it last looked through it."""

Part = str | int | float | bool | np.ndarray


def cache_folder() -> Path | None:
    """Where computed arrays are kept: what GCGP_CACHE says (`off`: nowhere), else the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return None if given == "off" else Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gcgp"


def cached(
    parts: Sequence[Part],
    compute: Callable[[], dict[str, np.ndarray]],
    check: Callable[[dict[str, np.ndarray]], None] | None = None,
) -> dict[str, np.ndarray]:
    """What `compute` gives, from the cache if it was computed before from the same parts.

    Several processes may do this at once: a file appears whole or not at all. A file that cannot be read,
    whose checksum is wrong, or for whose arrays `check` raises a ValueError is computed again and replaced,
    with a warning. A folder that cannot be written to is left alone.
    """
    folder = cache_folder()
    if folder is None:
        return compute()
    limit = _limit()
    key = _key(parts)
    path = folder / (key + ENDING)
    if folder not in unseen:
        unseen[folder] = limit
        _remove_stale(folder)
    found = _read(path, key, limit, check)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last is thrown away last
        return found
    arrays = compute()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            write_arrays(part, key, arrays)
        size = path.stat().st_size
        unseen[folder] += size
        if unseen[folder] > SCAN_AFTER * limit:
            unseen[folder] = 0
            _make_room(folder, limit)
    return arrays


def is_cached(parts: Sequence[Part]) -> bool:
    """Whether the cache has what was computed from these parts."""
    folder = cache_folder()
    return folder is not None and (folder / (_key(parts) + ENDING)).is_file()


def _key(parts: Sequence[Part]) -> str:
    return digest_of(("format", FORMAT, *parts))


def _limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE, str(LIMIT))
    if not given.isdecimal():
        raise ValueError(f"{LIMIT_VARIABLE}={given!r}: expected a number of bytes")
    return int(given)


def _read(
    path: Path, key: str, limit: int, check: Callable[[dict[str, np.ndarray]], None] | None
) -> dict[str, np.ndarray] | None:
    """The arrays of a file that was written for this key and passes the check; else None."""
    try:
        arrays = read_arrays(path, key, limit)
        if check is not None:
            check(arrays)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{path}: this file of the cache cannot be used ({error}); its content is computed again",
            stacklevel=3,
        )
        return None
    return arrays


def digest_of(parts: Sequence[Part]) -> str:
    """A hash of parts in their order, arrays by type, shape and content."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _make_room(folder: Path, limit: int) -> None:
    """Remove files, those used longest ago first, until the folder is within its limit."""
    _remove_stale(folder)
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            state = entry.stat()
            if entry.name.endswith(ENDING):
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
            if not (entry.name.endswith(PART) and f"{ENDING}." in entry.name):
                continue
            with contextlib.suppress(OSError):
                age = time.time() - entry.stat().st_mtime
                if age > STALE_SECONDS and not is_being_written(Path(entry.path)):
                    os.remove(entry.path)
