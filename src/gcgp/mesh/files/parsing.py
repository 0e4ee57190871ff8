"""What the readers of mesh files share: checked numbers, and limits on what a file may claim to hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

Polygons = Sequence[Sequence[int]] | np.ndarray
"""Faces as lists of vertex indices, or as `[F, corners]`."""
MAX_CORNERS = 10_000
"""Maximum number of corners of a polygon. Larger polygons do not occur in real surfaces."""
MAX_DIGITS = 30
"""Longest word that is read as an integer: indices need no more than 19 digits."""


def decoded(content: bytes) -> str:
    """The text of a file. Names and comments may be in any encoding; numbers are ASCII."""
    return content.decode("ascii", errors="replace")


def shortened(text: str, length: int = 40) -> str:
    """The text in quotes for an error message, cut off if it is long."""
    return repr(text if len(text) <= length else text[:length] + "...")


def integer(word: str, item: str) -> int:
    """The integer that a word is, or a ValueError that names the item."""
    try:
        if len(word) <= MAX_DIGITS and "_" not in word:
            return int(word)
    except ValueError:
        pass
    raise ValueError(f"{item}: {shortened(word)} is not an integer")


def point(words: Sequence[str], vertex: int) -> list[float]:
    """The three coordinates of a vertex."""
    if len(words) != 3:
        raise ValueError(f"vertex {vertex} has {len(words)} coordinates; the file is cut off or damaged")
    try:
        return [float(words[0]), float(words[1]), float(words[2])]
    except ValueError:
        raise ValueError(f"vertex {vertex}: {shortened(_not_a_number(words))} is not a number") from None


def _not_a_number(words: Sequence[str]) -> str:
    for word in words:
        try:
            float(word)
        except ValueError:
            return word
    return ""


def check_corners(corners: int, face: int) -> None:
    """Raise ValueError for a face that is no polygon, or has too many corners."""
    if not 3 <= corners <= MAX_CORNERS:
        most = f", more than {MAX_CORNERS}" if corners > MAX_CORNERS else ""
        raise ValueError(f"face {face} has {corners} corners{most}")


def triangles(polygons: Polygons, vertices: int) -> Int[np.ndarray, "F 3"]:
    """Fans of triangles; a ValueError names the first face that has a vertex that is not there."""
    if isinstance(polygons, np.ndarray):
        check_corners(polygons.shape[1], 0)
        outside = ((polygons < 0) | (polygons >= vertices)).any(axis=1)
        if outside.any():
            face = int(np.argmax(outside))
            _check_indices(polygons[face].tolist(), face, vertices)
        fans = [[0, i, i + 1] for i in range(1, polygons.shape[1] - 1)]
        return polygons[:, fans].reshape(-1, 3).astype(np.int64)
    for face, polygon in enumerate(polygons):
        check_corners(len(polygon), face)
        _check_indices(polygon, face, vertices)
    lengths = np.array([len(polygon) for polygon in polygons], dtype=np.int64)
    corners = np.fromiter((i for polygon in polygons for i in polygon), dtype=np.int64, count=lengths.sum())
    # The triangles of a polygon that starts at s are (s, s + i, s + i + 1) for i from 1 to its length - 2.
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths - 2)
    second = np.arange(len(starts)) - np.repeat(np.cumsum(lengths - 2) - (lengths - 2), lengths - 2) + 1
    return corners[np.stack([starts, starts + second, starts + second + 1], axis=1)]


def _check_indices(polygon: Sequence[int], face: int, vertices: int) -> None:
    for index in (min(polygon), max(polygon)):
        if not 0 <= index < vertices:
            raise ValueError(f"face {face} names vertex {index}, but the vertices are 0 to {vertices - 1}")
