"""A folder of computed arrays, each file under the hash of what it was computed from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from gcgp.domain.whole_file import PART, whole_file

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
LEFT_OVER = 86_400.0
"""Seconds after which a file that was never finished is taken for that of a process that died."""

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


def cached(parts: Sequence[Part], compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """What `compute` gives, from the cache if it was computed before from the same parts.

    Several processes may do this at once: a file appears whole or not at all. One that cannot be read is
    computed again; a folder that cannot be written to is left alone.
    """
    folder = cache_folder()
    if folder is None:
        return compute()
    limit = _limit()
    key = digest_of(parts)
    path = folder / (key + ENDING)
    found = _read(path, key)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last is thrown away last
        return found
    arrays = compute()
    with contextlib.suppress(OSError, SafetensorError):  # a full disk is the latter
        _write(path, key, arrays)
        size = path.stat().st_size
        unseen[folder] = unseen.get(folder, limit) + size
        if unseen[folder] > SCAN_AFTER * limit:
            unseen[folder] = 0
            _make_room(folder, limit)
    return arrays


def is_cached(parts: Sequence[Part]) -> bool:
    """Whether the cache has what was computed from these parts."""
    folder = cache_folder()
    return folder is not None and (folder / (digest_of(parts) + ENDING)).is_file()


def _limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE, str(LIMIT))
    if not given.isdigit():
        raise ValueError(f"{LIMIT_VARIABLE}={given!r}: expected a number of bytes")
    return int(given)


def _read(path: Path, key: str) -> dict[str, np.ndarray] | None:
    """The arrays of a file that was written whole, for this key; else None.

    Tensors of torch are the file itself, mapped into memory; NumPy's arrays would be copies of it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
            return {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, RuntimeError):  # torch's, where another process has just removed it
        return None


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


def _write(path: Path, key: str, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(dense, part, {"key": key})


def _make_room(folder: Path, limit: int) -> None:
    """Remove files, those used longest ago first, until the folder is within its limit."""
    files = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):
            state = entry.stat()
            if entry.name.endswith(ENDING):
                files.append((state.st_mtime, state.st_size, entry.path))
            elif entry.name.endswith(PART) and state.st_mtime < time.time() - LEFT_OVER:
                os.remove(entry.path)
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            os.remove(path)
            total -= size
