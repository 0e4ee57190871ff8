"""Named arrays in one file with a checksum.

A file is `MAGIC`, the CRC-32 of the rest (8 bytes), the length of the header (8 bytes), the header as JSON
(the key, and names, types and shapes of the arrays), and the arrays, aligned to `ALIGNMENT` bytes. Files are
not mapped into memory: if another process truncates a mapped file, SIGBUS kills the reader, and if it
overwrites the file, arrays change that were already checked. NumPy's `.npz` is not used because a damaged
header can request any amount of memory.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"gcgp\0\0\0\x01"
PREFIX = struct.Struct("<8sQ")
LENGTH = struct.Struct("<Q")
ALIGNMENT = 64
READ_BYTES = 1 << 20
"""Bytes read at a time, few enough to be in the processor's cache when the checksum is computed."""
CACHE_DTYPES = {np.dtype(t).str: np.dtype(t) for t in ("bool", "int32", "int64", "float32", "float64")}


class DamagedFile(ValueError):
    """A file whose content is not what was written."""


def write_arrays(path: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under a key."""
    dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in dense.items():
        if array.dtype.str not in CACHE_DTYPES:
            raise ValueError(f"{name} has dtype {array.dtype}; expected one of {', '.join(CACHE_DTYPES)}")
    layout = {name: [array.dtype.str, list(array.shape)] for name, array in dense.items()}
    header = json.dumps({"key": key, "arrays": layout}).encode()
    pieces: list[bytes | memoryview] = [LENGTH.pack(len(header)) + header]
    length = LENGTH.size + len(header)
    for array in dense.values():
        pieces += [bytes(-length % ALIGNMENT), array.reshape(-1).view(np.uint8).data]
        length = _aligned(length) + array.nbytes
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    with open(path, "wb") as file:
        file.write(PREFIX.pack(MAGIC, checksum))
        for piece in pieces:
            file.write(piece)


def read_arrays(path: Path, key: str, max_bytes: float = math.inf) -> dict[str, np.ndarray]:
    """The arrays of a file that was written under this key; otherwise raise DamagedFile or an OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise DamagedFile("it is not a regular file")
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size - PREFIX.size
        if size < LENGTH.size:
            raise DamagedFile("it is cut off")
        if size > max_bytes:
            raise DamagedFile(f"it has {size} bytes, more than the limit of the cache")
        prefix = file.read(PREFIX.size)
        if prefix[: len(MAGIC)] != MAGIC:
            raise DamagedFile("it is not a cache file of gcgp")
        body = np.empty(size, dtype=np.uint8)
        view, filled, checksum = body.data, 0, 0
        while filled < size:
            count = file.readinto(view[filled : filled + READ_BYTES])
            if not count:
                raise DamagedFile("it is cut off")
            checksum = zlib.crc32(view[filled : filled + count], checksum)
            filled += count
    if prefix != PREFIX.pack(MAGIC, checksum):
        raise DamagedFile("its checksum is wrong")
    try:
        return _arrays(body, key)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedFile(f"its header is wrong: {error}") from error


def _arrays(body: np.ndarray, key: str) -> dict[str, np.ndarray]:
    """Views of the arrays that the header describes."""
    (length,) = LENGTH.unpack(body[: LENGTH.size].data)
    stop = LENGTH.size + length
    header: dict[str, Any] = json.loads(body[LENGTH.size : stop].tobytes())
    if header["key"] != key:
        raise ValueError("it was written for other inputs")
    arrays = {}
    for name, (dtype, shape) in header["arrays"].items():
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise ValueError(f"{name} has the shape {shape}")
        start = _aligned(stop)
        stop = start + math.prod(shape) * CACHE_DTYPES[dtype].itemsize
        if stop > len(body):
            raise ValueError(f"{name} is longer than the file")
        arrays[name] = body[start:stop].view(CACHE_DTYPES[dtype]).reshape(shape)
    if stop != len(body):
        raise ValueError(f"{len(body) - stop} bytes belong to no array")
    return arrays


def check_layout(
    arrays: Mapping[str, np.ndarray], layout: Mapping[str, tuple[type, tuple[int, ...]]]
) -> None:
    """Raise a ValueError unless the arrays have exactly these names, types and shapes."""
    if arrays.keys() != layout.keys():
        raise ValueError(f"it contains {sorted(arrays)}, not {sorted(layout)}")
    for name, (dtype, shape) in layout.items():
        array = arrays[name]
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(
                f"{name} is {array.dtype} of shape {list(array.shape)}, "
                f"not {np.dtype(dtype)} of shape {list(shape)}"
            )


def check_range(name: str, values: np.ndarray, lowest: float, highest: float) -> None:
    """Raise a ValueError unless all values are within these bounds and none is NaN."""
    if values.size and not (values.min() >= lowest and values.max() <= highest):
        raise ValueError(f"{name} has values outside {lowest} to {highest}")


def _aligned(length: int) -> int:
    return length + -length % ALIGNMENT
