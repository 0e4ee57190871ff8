"""A folder of computed arrays, each file under the hash of what it was computed from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

CACHE_VARIABLE = "GCGP_CACHE"
"""Environment variable: the folder of the cache, or `off`."""
LIMIT_VARIABLE = "GCGP_CACHE_LIMIT"
"""Environment variable: how many bytes the cache may take."""
LIMIT = 4 << 30
ENDING = ".cache"

Part = str | int | float | bool | np.ndarray


def cache_folder() -> Path | None:
    """Where computed arrays are kept: what GCGP_CACHE says (`off`: nowhere), else the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return None if given == "off" else Path(given)
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
    path = folder / (_hash(parts) + ENDING)
    try:
        found = load_file(path)
    except (OSError, SafetensorError):
        pass
    else:
        with contextlib.suppress(OSError):
            os.utime(path)  # what was used last is thrown away last
        return found
    arrays = compute()
    with contextlib.suppress(OSError):
        _write(path, arrays)
        _make_room(folder)
    return arrays


def _hash(parts: Sequence[Part]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(temporary)
        raise


def _make_room(folder: Path) -> None:
    """Remove files, those used longest ago first, until the folder is within its limit."""
    limit = int(os.environ.get(LIMIT_VARIABLE, LIMIT))
    files = []
    for entry in os.scandir(folder):
        if entry.name.endswith(ENDING):
            with contextlib.suppress(OSError):
                state = entry.stat()
                files.append((state.st_mtime, state.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            os.remove(path)
            total -= size
