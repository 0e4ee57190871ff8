"""OFF files.

A file has the word `OFF`, the numbers of vertices, faces and edges, and then the vertices and the faces,
usually one per line. The first word may announce texture coordinates (ST), colors (C) and normals (N) after
the coordinates of each vertex, and a color may follow the indices of a face; these are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from gcgp.mesh.files.parsing import MAX_POLYGON_CORNERS, Polygons, decoded, integer, point, polygon, shortened

OFF_HEAD = re.compile(r"\s*([A-Za-z4]*OFF)(?=[\s\d]|$)", re.IGNORECASE)
OFF_VARIANT = re.compile(r"(ST|C|N)*OFF", re.IGNORECASE)


def read_off(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and polygons of an OFF file."""
    text = re.sub(r"#[^\r\n]*", "", decoded(content))
    head = OFF_HEAD.match(text)
    variant = head[1] if head else text.strip()
    if head and "n" in variant and variant.endswith("OFF"):
        raise ValueError(f"{variant}: n-dimensional OFF files are not supported")
    if head and "4" in variant:
        raise ValueError(f"{variant}: four-dimensional OFF files are not supported")
    if head is None or OFF_VARIANT.fullmatch(variant) is None:
        raise ValueError(f"not an OFF file: its first word is not OFF but {shortened(variant, 10)}")
    body = text[head.end() :]
    rows = [row for row in body.splitlines() if row.strip()]
    counts = rows[0].split(None, 3) if rows else []
    if counts and counts[0].upper() == "BINARY":
        raise ValueError("binary OFF files are not supported")
    try:
        return _from_rows(rows, counts)
    except ValueError as row_error:
        try:
            return _from_words(body.split(), variant.upper())
        except ValueError as word_error:
            raise (row_error if len(counts) in (2, 3) else word_error) from None


def _counts(words: Sequence[str]) -> tuple[int, int]:
    """The numbers of vertices and faces."""
    if len(words) < 2 or not (words[0].isdecimal() and words[1].isdecimal()):
        raise ValueError("not an OFF file: the numbers of vertices and faces are missing")
    return integer(words[0], "number of vertices"), integer(words[1], "number of faces")


def _from_rows(rows: Sequence[str], counts: Sequence[str]) -> tuple[np.ndarray, Polygons]:
    """A file with one line for the counts, for each vertex and for each face."""
    vertices, faces = _counts(counts)
    if len(counts) > 3:
        raise ValueError("more than three numbers in the line of the counts")
    if len(rows) - 1 < vertices + faces:
        raise ValueError(
            f"{len(rows) - 1} lines for {vertices} vertices and {faces} faces; the file is truncated"
        )
    points = [point(row.split(None, 3)[:3], i) for i, row in enumerate(rows[1 : 1 + vertices])]
    of_faces = rows[1 + vertices : 1 + vertices + faces]
    polygons = [polygon(iter(row.split(None, MAX_POLYGON_CORNERS + 1)), i) for i, row in enumerate(of_faces)]
    return np.array(points).reshape(-1, 3), polygons


def _from_words(words: Sequence[str], variant: str) -> tuple[np.ndarray, Polygons]:
    """A file with arbitrary line breaks: the position of each number defines its meaning."""
    vertices, faces = _counts(words[:2])
    least = 3 + 3 * vertices + 4 * faces
    if len(words) < least:
        raise ValueError(
            f"{len(words)} numbers for {vertices} vertices and {faces} faces, which take at least {least}; "
            "the file is truncated"
        )
    width = 3 + 2 * ("ST" in variant) + 3 * (variant.count("N") > 0)
    # Colors have three or four numbers, and some files omit what they announce: the first width that fits.
    widths = [width + 4, width + 3, 3] if "C" in variant else [width, 3]
    failure = ValueError()
    for width in widths:
        try:
            stop = 3 + vertices * width
            points = [point(words[i : i + 3], (i - 3) // width) for i in range(3, stop, width)]
            rest = iter(words[stop:])
            polygons = [polygon(rest, i) for i in range(faces)]
            if surplus := len(list(rest)):
                raise ValueError(f"{surplus} numbers follow the last face")
            return np.array(points).reshape(-1, 3), polygons
        except ValueError as error:
            failure = error
    raise failure
