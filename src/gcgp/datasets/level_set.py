"""The surface where a function of space is 0, as a triangle mesh: marching tetrahedra."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

BLOCK = 4
"""Lattice cells along a block: those far from the surface are left out block by block."""
STEEPEST = 1.3
"""The function changes by no more than this a unit of length."""


def level_set(
    distance: Callable[[Float[np.ndarray, "M 3"]], Float[np.ndarray, "M"]], cells: Int[np.ndarray, "3"]
) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """Vertices and faces of the surface where `distance` is 0, by marching tetrahedra on the unit lattice.

    Each of the `cells` (so many along each axis) is cut into six tetrahedra around its diagonal, in the same
    way: neighbors agree, and the surface is closed if it stays inside. Normals point to positive distances.
    """
    blocks = -(-cells // BLOCK)
    shape = blocks * BLOCK + 1
    size = int(shape.prod())
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    block = BLOCK * np.indices(tuple(blocks)).reshape(3, -1).T
    near = np.abs(distance(block + BLOCK / 2)) < STEEPEST * np.sqrt(3) * BLOCK / 2
    cell = (block[near][:, None] + np.indices((BLOCK,) * 3).reshape(3, -1).T) @ strides
    corners = cell.reshape(-1, 1) + np.indices((2, 2, 2)).reshape(3, -1).T @ strides

    values = np.zeros(size)
    values[corners] = 1
    points = np.flatnonzero(values)
    values[points] = distance(np.column_stack(np.unravel_index(points, tuple(shape))))
    inside = values < 0
    filled = inside[corners].sum(axis=1)
    tetrahedra = corners[(filled > 0) & (filled < 8)][:, TETRAHEDRA].reshape(-1, 4)

    case = inside[tetrahedra] @ [1, 2, 4, 8]
    ends = np.sort(
        np.concatenate([tetrahedra[case == c][:, cuts].reshape(-1, 2) for c, cuts in CUTS.items()])
    )
    edges, faces = np.unique(ends[:, 0] * size + ends[:, 1], return_inverse=True)
    first, second = np.divmod(edges, size)
    share = (values[first] / (values[first] - values[second]))[:, None]
    start, end = (np.column_stack(np.unravel_index(corner, tuple(shape))) for corner in (first, second))
    return start + share * (end - start), faces.reshape(-1, 3)


def _odd(order: Sequence[int]) -> bool:
    return sum(a > b for a, b in itertools.combinations(order, 2)) % 2 == 1


def _tetrahedra() -> Int[np.ndarray, "6 4"]:
    """Corners of a cell, numbered 4x + 2y + z, along the six ways from 0 to 7; all turned the same way."""
    ways = []
    for x, y, z in itertools.permutations((0, 1, 2)):
        one, two = 4 >> x, (4 >> x) + (4 >> y)
        ways.append([0, two, one, 7] if _odd((x, y, z)) else [0, one, two, 7])
    return np.array(ways)


def _cuts() -> dict[int, Int[np.ndarray, "triangles 3 2"]]:
    """For each set of corners inside (bit c for corner c) the triangles, as edges between two corners."""
    cuts = {}
    for case in range(1, 15):
        inner = [c for c in range(4) if case >> c & 1]
        outer = [c for c in range(4) if not case >> c & 1]
        if _odd(inner + outer):
            # A swap on one side of the surface turns the triangles round.
            several = inner if len(inner) > 1 else outer
            several[:2] = several[1::-1]
        a, b, c, d = inner + outer
        if len(inner) == 1:
            triangles = [[(a, b), (a, c), (a, d)]]
        elif len(inner) == 2:
            triangles = [[(a, c), (a, d), (b, d)], [(a, c), (b, d), (b, c)]]
        else:
            triangles = [[(d, a), (d, b), (d, c)]]
        cuts[case] = np.array(triangles)
    return cuts


TETRAHEDRA = _tetrahedra()
CUTS = _cuts()
