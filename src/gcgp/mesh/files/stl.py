"""Reading STL files, binary and text. They repeat the corners of each face: equal ones become one vertex."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float, Int

from gcgp.mesh.files.parsing import Polygons, point

HEADER = 84
"""Bytes before the faces of a binary file: a comment of 80 bytes, and the number of faces."""
RECORD = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])
VERTEX = re.compile(rb"^[ \t]*vertex[ \t]+([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
FACET = re.compile(rb"^[ \t]*facet\b", re.IGNORECASE | re.MULTILINE)
END = re.compile(rb"^[ \t]*endfacet\b", re.IGNORECASE | re.MULTILINE)


def read_stl(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and triangles of an STL file."""
    # Binary files may start with the word `solid` too; their size tells.
    faces = int.from_bytes(content[HEADER - 4 : HEADER], "little")
    if len(content) >= HEADER and len(content) == HEADER + faces * RECORD.itemsize:
        return _merged(np.frombuffer(content, RECORD, offset=HEADER)["corners"].reshape(-1, 3))
    if content.lstrip()[:5].lower() == b"solid":
        return _merged(_text_corners(content))
    if len(content) < HEADER:
        raise ValueError(f"{len(content)} bytes: the file is cut off, or not an STL file")
    raise ValueError(
        f"{faces} faces take {HEADER + faces * RECORD.itemsize} bytes, but there are {len(content)}: "
        "the file is cut off, or not an STL file"
    )


def _text_corners(content: bytes) -> Float[np.ndarray, "corners 3"]:
    rows = VERTEX.findall(content)
    facets, complete = len(FACET.findall(content)), len(END.findall(content))
    if not complete:
        raise ValueError("it holds no faces: the file is cut off, or not an STL file")
    if not facets == complete == len(rows) / 3:
        raise ValueError(f"{facets} facets have {len(rows)} corners; the file is cut off or damaged")
    words = (row.decode("ascii", errors="replace").split(None, 3) for row in rows)
    return np.array([point(row, i) for i, row in enumerate(words)])


def _merged(
    corners: Float[np.ndarray, "corners 3"],
) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """One vertex for each place, in the order of their first corners."""
    places, first, inverse = np.unique(corners, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return places[order], rank[inverse.reshape(-1, 3)]
