"""STL files, binary and text. They repeat the corners of each face: equal corners become one vertex."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float, Int

from gcgp.mesh.files.parsing import Polygons, decoded, point

STL_HEADER_BYTES = 84
"""Bytes before the faces of a binary file: a comment of 80 bytes, and the number of faces."""
STL_RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
STL_VERTEX = re.compile(rb"^[ \t]*vertex[ \t]+([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
STL_FACET = re.compile(rb"^[ \t]*(end)?facet\b", re.IGNORECASE | re.MULTILINE)


def read_stl(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and triangles of an STL file."""
    # Binary files may start with the word `solid` too, but their size is determined by their header.
    faces = int.from_bytes(content[STL_HEADER_BYTES - 4 : STL_HEADER_BYTES], "little")
    size = STL_HEADER_BYTES + faces * STL_RECORD.itemsize
    if len(content) == size:
        records = np.frombuffer(content, STL_RECORD, offset=STL_HEADER_BYTES)
        return _merged(records["corners"].reshape(-1, 3))
    if content.lstrip()[:5].lower() == b"solid":
        return _merged(_text_corners(content))
    expected = f"{faces} faces take {size} bytes, but there are " if len(content) >= STL_HEADER_BYTES else ""
    raise ValueError(f"{expected}{len(content)} bytes: the file is truncated, or not an STL file")


def _text_corners(content: bytes) -> Float[np.ndarray, "corners 3"]:
    rows = STL_VERTEX.findall(content)
    ends = STL_FACET.findall(content)
    complete = sum(map(bool, ends))
    if not complete:
        raise ValueError("it contains no faces: the file is truncated, or not an STL file")
    if not len(ends) - complete == complete == len(rows) / 3:
        raise ValueError(
            f"{len(ends) - complete} facets have {len(rows)} corners; the file is truncated or damaged"
        )
    return np.array([point(decoded(row).split(None, 3), i) for i, row in enumerate(rows)])


def _merged(
    corners: Float[np.ndarray, "corners 3"],
) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """One vertex for all equal corners, in the order of their first occurrence."""
    points, first, inverse = np.unique(corners, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return points[order], np.argsort(order)[inverse.reshape(-1, 3)]
