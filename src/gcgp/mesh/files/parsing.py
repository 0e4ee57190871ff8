"""Shared by all readers of mesh files: checked numbers, and limits on what a file may contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
from jaxtyping import Int

Polygons = Sequence[Sequence[int]] | np.ndarray
"""Faces as lists of vertex indices, or as an array `[F, corners]`."""
MAX_POLYGON_CORNERS = 10_000
"""Real surfaces have no larger polygons."""
MAX_INTEGER_DIGITS = 30
"""Longest word that is read as an integer: indices need no more than 19 digits."""


def decoded(content: bytes) -> str:
    """The text of a file. Names and comments may have any encoding; numbers are ASCII."""
    return content.decode("ascii", errors="replace")


def shortened(text: str, length: int = 40) -> str:
    """The text in quotes for an error message, truncated if it is long."""
    return repr(text if len(text) <= length else text[:length] + "...")


def integer(word: str, item: str) -> int:
    """A word as an integer, or a ValueError that names the item."""
    try:
        if len(word) <= MAX_INTEGER_DIGITS and "_" not in word:
            return int(word)
    except ValueError:
        pass
    raise ValueError(f"{item}: {shortened(word)} is not an integer")


def point(words: Sequence[str], vertex: int) -> list[float]:
    """The three coordinates of a vertex."""
    if len(words) != 3:
        raise ValueError(f"vertex {vertex} has {len(words)} coordinates; the file is truncated or damaged")
    coordinates = []
    for word in words:
        try:
            coordinates.append(float(word))
        except ValueError:
            raise ValueError(f"vertex {vertex}: {shortened(word)} is not a number") from None
    return coordinates


def check_corners(corners: int, face: int) -> None:
    """Raise ValueError if a face has fewer than three corners, or too many."""
    if not 3 <= corners <= MAX_POLYGON_CORNERS:
        limit = f", more than {MAX_POLYGON_CORNERS}" if corners > MAX_POLYGON_CORNERS else ""
        raise ValueError(f"face {face} has {corners} corners{limit}")


def polygon(words: Iterator[str], face: int) -> list[int]:
    """The vertex indices of the next face, which follow the number of its corners."""
    first = next(words, None)
    if first is None:
        raise ValueError(f"face {face} is missing; the file is truncated")
    corners = integer(first, f"face {face}")
    check_corners(corners, face)
    indices = list(islice(words, corners))
    if len(indices) < corners:
        raise ValueError(
            f"face {face} has {len(indices)} corners, not {corners}; the file is truncated or damaged"
        )
    return [integer(index, f"face {face}") for index in indices]


def triangles(polygons: Polygons, vertices: int) -> Int[np.ndarray, "F 3"]:
    """Polygons as fans of triangles; a ValueError names the first face with an index out of range."""
    if isinstance(polygons, np.ndarray):
        flat, lengths = polygons.ravel(), np.full(len(polygons), polygons.shape[1])
    else:  # integers may exceed int64, so they are compared before they are converted
        flat, lengths = np.array(list(chain(*polygons))), np.array([len(corners) for corners in polygons])
    outside = (flat < 0) | (flat >= vertices)
    if outside.any():
        face = int(np.searchsorted(np.cumsum(lengths), np.argmax(outside), side="right"))
        index = next(index for index in polygons[face] if not 0 <= index < vertices)
        raise ValueError(f"face {face} names vertex {index}, but the vertices are 0 to {vertices - 1}")
    # The triangles of a polygon that starts at s are (s, s + i, s + i + 1) for i from 1 to its length - 2.
    counts = lengths - 2
    starts = np.repeat(np.cumsum(lengths) - lengths, counts)
    second = starts + 1 + np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return flat.astype(np.int64)[np.stack([starts, second, second + 1], axis=1)]
