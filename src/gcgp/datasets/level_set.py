"""The surface where a function of space is 0, as a triangle mesh: marching tetrahedra."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

CELLS_PER_BLOCK = 4
"""Lattice cells along a block; blocks far from the surface are skipped."""
MAX_SLOPE = 1.3
"""Upper bound of the slope of the function."""


def level_set(
    distance: Callable[[Float[np.ndarray, "M 3"]], Float[np.ndarray, "M"]], cells: Int[np.ndarray, "3"]
) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """Vertices and faces of the surface where `distance` is 0, by marching tetrahedra on the unit lattice.

    All cells (`cells` along each axis) are split in the same way into six tetrahedra around their diagonal,
    so neighbors agree, and the surface is closed if it stays inside. Normals point to positive distances.
    """
    blocks = -(-cells // CELLS_PER_BLOCK)
    shape = blocks * CELLS_PER_BLOCK + 1
    size = int(shape.prod())
    strides = np.array([shape[1] * shape[2], shape[2], 1])
    block = CELLS_PER_BLOCK * np.indices(tuple(blocks)).reshape(3, -1).T
    near = np.abs(distance(block + CELLS_PER_BLOCK / 2)) < MAX_SLOPE * np.sqrt(3) * CELLS_PER_BLOCK / 2
    cell = (block[near][:, None] + np.indices((CELLS_PER_BLOCK,) * 3).reshape(3, -1).T) @ strides
    corners = cell.reshape(-1, 1) + np.indices((2, 2, 2)).reshape(3, -1).T @ strides

    values = np.zeros(size)
    values[corners] = 1
    points = np.flatnonzero(values)
    values[points] = distance(np.column_stack(np.unravel_index(points, tuple(shape))))
    inside = values < 0
    inside_count = inside[corners].sum(axis=1)
    tetrahedra = corners[(inside_count > 0) & (inside_count < 8)][:, TETRAHEDRA].reshape(-1, 4)

    case = inside[tetrahedra] @ [1, 2, 4, 8]
    cut = [tetrahedra[case == c][:, edges].reshape(-1, 2) for c, edges in CUT_EDGES.items()]
    ends = np.sort(np.concatenate(cut))
    edges, faces = np.unique(ends[:, 0] * size + ends[:, 1], return_inverse=True)
    first, second = np.divmod(edges, size)
    share = (values[first] / (values[first] - values[second]))[:, None]
    start, end = (np.column_stack(np.unravel_index(corner, tuple(shape))) for corner in (first, second))
    return start + share * (end - start), faces.reshape(-1, 3)


def _is_odd(permutation: Sequence[int]) -> bool:
    return sum(a > b for a, b in itertools.combinations(permutation, 2)) % 2 == 1


def _tetrahedra() -> Int[np.ndarray, "6 4"]:
    """Corners of a cell, numbered 4x + 2y + z, along the six paths from 0 to 7; all with one orientation."""
    paths = []
    for x, y, z in itertools.permutations((0, 1, 2)):
        one, two = 4 >> x, (4 >> x) + (4 >> y)
        paths.append([0, two, one, 7] if _is_odd((x, y, z)) else [0, one, two, 7])
    return np.array(paths)


def _cut_edges() -> dict[int, Int[np.ndarray, "triangles 3 2"]]:
    """For each set of corners inside (bit c for corner c) the triangles, as edges between two corners."""
    cuts = {}
    for case in range(1, 15):
        inner = [c for c in range(4) if case >> c & 1]
        outer = [c for c in range(4) if not case >> c & 1]
        if _is_odd(inner + outer):
            # A swap on one side of the surface reverses the orientation of the triangles.
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
CUT_EDGES = _cut_edges()
