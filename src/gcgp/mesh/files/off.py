"""Reading OFF files.

A file is `OFF`, the numbers of vertices, faces and edges, and then the vertices and the faces, as a rule one
per line. The first word may announce texture coordinates (ST), colors (C) and normals (N) behind the
coordinates of each vertex; these are not used. Behind the vertices of a face there may be a color.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from gcgp.mesh.files.parsing import Polygons, check_corners, decoded, integer, point, shortened

HEAD = re.compile(r"\s*([A-Za-z4]*OFF)(?=[\s\d]|$)", re.IGNORECASE)
KNOWN = re.compile(r"(ST|C|N)*OFF", re.IGNORECASE)


def read_off(content: bytes) -> tuple[np.ndarray, Polygons]:
    """Vertices `[V, 3]` and polygons of an OFF file."""
    text = re.sub(r"#[^\r\n]*", "", decoded(content))
    head = HEAD.match(text)
    if head is None:
        raise ValueError(f"not an OFF file: its first word is not OFF but {shortened(text.strip(), 10)}")
    variant = head[1]
    if "n" in variant and variant.endswith("OFF"):
        raise ValueError(f"{variant}: n-dimensional OFF files are not supported")
    if "4" in variant:
        raise ValueError(f"{variant}: four-dimensional OFF files are not supported")
    if KNOWN.fullmatch(variant) is None:
        raise ValueError(f"not an OFF file: its first word is not OFF but {shortened(variant)}")
    rows = [row for row in text[head.end() :].splitlines() if row.strip()]
    counts = rows[0].split(None, 3) if rows else []
    if counts and counts[0].upper() == "BINARY":
        raise ValueError("binary OFF files are not supported")
    try:
        return _from_rows(rows, counts)
    except ValueError as error:
        try:
            return _from_words(text[head.end() :].split(), variant.upper())
        except ValueError as other:
            raise (error if len(counts) in (2, 3) else other) from None


def _counts(words: Sequence[str]) -> tuple[int, int]:
    """The numbers of vertices and faces."""
    if len(words) < 2 or not (words[0].isdecimal() and words[1].isdecimal()):
        raise ValueError("not an OFF file: the numbers of vertices and faces are missing")
    return integer(words[0], "number of vertices"), integer(words[1], "number of faces")


def _from_rows(rows: Sequence[str], counts: Sequence[str]) -> tuple[np.ndarray, Polygons]:
    """A file with a line for the counts, for each vertex and for each face."""
    vertices, faces = _counts(counts)
    if len(counts) > 3:
        raise ValueError("more than three numbers in the line of the counts")
    if len(rows) - 1 < vertices + faces:
        raise ValueError(
            f"{len(rows) - 1} lines for {vertices} vertices and {faces} faces; the file is cut off"
        )
    points = [point(row.split(None, 3)[:3], i) for i, row in enumerate(rows[1 : 1 + vertices])]
    polygons = []
    for i, row in enumerate(rows[1 + vertices : 1 + vertices + faces]):
        corners = integer(row.split(None, 1)[0], f"face {i}")
        check_corners(corners, i)
        words = row.split(None, corners + 1)[1 : corners + 1]
        if len(words) < corners:
            raise ValueError(f"face {i} is {shortened(row)}; the file is cut off or damaged")
        polygons.append([integer(word, f"face {i}") for word in words])
    return np.array(points).reshape(-1, 3), polygons


def _from_words(words: Sequence[str], variant: str) -> tuple[np.ndarray, Polygons]:
    """A file whose lines mean nothing: each number must have its place."""
    vertices, faces = _counts(words[:2])
    least = 3 + 3 * vertices + 4 * faces
    if len(words) < least:
        raise ValueError(
            f"{len(words)} numbers for {vertices} vertices and {faces} faces, which take at least {least}; "
            "the file is cut off"
        )
    width = 3 + 2 * ("ST" in variant) + 3 * (variant.count("N") > 0)
    # Colors are three or four numbers; the one that fits is taken, or none, as in files that leave them out.
    widths = [width + 4, width + 3, 3] if "C" in variant else [width, 3]
    failure = ValueError()
    for width in dict.fromkeys(widths):
        try:
            stop = 3 + vertices * width
            points = [point(words[i : i + 3], (i - 3) // width) for i in range(3, stop, width)]
            return np.array(points).reshape(-1, 3), _polygons(words[stop:], faces)
        except ValueError as error:
            failure = error
    raise failure


def _polygons(words: Sequence[str], faces: int) -> list[list[int]]:
    polygons = []
    place = 0
    for i in range(faces):
        if place >= len(words):
            raise ValueError(f"{i} of {faces} faces; the file is cut off")
        corners = integer(words[place], f"face {i}")
        check_corners(corners, i)
        if place + corners >= len(words):
            raise ValueError(f"face {i} has {len(words) - place - 1} corners; the file is cut off")
        polygons.append([integer(word, f"face {i}") for word in words[place + 1 : place + 1 + corners]])
        place += corners + 1
    if place < len(words):
        raise ValueError(f"{len(words) - place} numbers follow the last face")
    return polygons
