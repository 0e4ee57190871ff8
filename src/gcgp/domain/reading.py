"""Images and graphs from what users pass to `Signals`. Errors name the item, the field and the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gcgp._numerics.segments import offsets_from_counts, segment_of
from gcgp._runtime.arrays import as_array, as_float, as_float64, as_list, check_vertex_indices, type_text
from gcgp.domain.graphs import Graphs

Numbers: TypeAlias = Any
"""Arrays, tensors, tables, sparse matrices or nested lists of real numbers; or a list of these."""


def as_items(given: Any, field: str, advice: str = "") -> list[Any]:
    """One item per signal or graph, from any iterable except tables, strings, mappings and sets."""
    error = f"{field}: expected a list with one item per graph, got {type_text(given)}{advice}"
    table = hasattr(given, "columns") or scipy.sparse.issparse(given)
    if table or isinstance(given, (str, bytes, Mapping, AbstractSet)):
        raise TypeError(error)
    return as_list(given, error)


def as_channels(item: Any, name: str) -> Float[np.ndarray, "vertices channels"]:
    """Values `[V]` or `[V, d]` of one signal as `[V, d]`."""
    values = as_float(item, name)
    if values.ndim not in (1, 2):
        raise ValueError(f"{name}: values must have shape [V] or [V, d], got {values.shape}")
    return values.reshape(len(values), *values.shape[1:] or (1,))


def as_images(images: Any) -> list[np.ndarray]:
    """One array `[H, W]` or `[H, W, C]` per image, from a stack or a list."""
    if scipy.sparse.issparse(images):
        raise TypeError(f"images: got {type_text(images)}; expected arrays [N, H, W] or [N, H, W, C]")
    if hasattr(images, "__array__"):
        stack = as_array(images, "images", stacked="image")
        if stack.ndim not in (3, 4):
            raise ValueError(f"images: expected shape [N, H, W] or [N, H, W, C], got {stack.shape}")
        return list(as_float(stack, "images"))
    items = [as_float(image, f"image {i}") for i, image in enumerate(as_items(images, "images"))]
    for i, image in enumerate(items):
        if image.ndim not in (2, 3):
            raise ValueError(f"image {i}: expected shape [H, W] or [H, W, C], got {image.shape}")
    return items


def check_finite(array: np.ndarray, offsets: np.ndarray, field: str, item: str = "signal") -> None:
    """Raise a ValueError that names the first entry that is NaN or infinite."""
    if np.isfinite(array).all():
        return
    entry = np.argwhere(~np.isfinite(array))[0]
    segment, row = segment_of(offsets, entry[0])
    index = [row, *map(int, entry[1:])]
    raise ValueError(f"{item} {segment}: {field} at {index} is {array[tuple(entry)]}; it must be finite")


def as_graphs(
    vertex_counts: Sequence[int],
    edges: Sequence[Any],
    edge_lengths: Sequence[Any] | None,
    coordinates: Sequence[Any] | None,
) -> Graphs:
    """Checked graphs with these vertex counts; each field has one item per graph."""
    for field, given in (("edges", edges), ("edge_lengths", edge_lengths), ("coordinates", coordinates)):
        if given is not None and len(given) != len(vertex_counts):
            raise ValueError(f"{field}: {len(given)} items for {len(vertex_counts)} graphs")
    if not vertex_counts:
        raise ValueError("signals: the set is empty (0 signals)")
    edge_items = [_edges(item, i, vertex_counts[i]) for i, item in enumerate(edges)]
    edge_offsets = offsets_from_counts([len(item) for item in edge_items])
    vertex_offsets = offsets_from_counts(vertex_counts)
    return Graphs(
        vertex_offsets,
        np.concatenate(edge_items),
        edge_offsets,
        None if edge_lengths is None else _edge_lengths(edge_lengths, edge_offsets),
        None if coordinates is None else _coordinates(coordinates, vertex_offsets),
    )


def _edge_lengths(
    items: Sequence[Any], edge_offsets: Int[np.ndarray, "graphs_plus_1"]
) -> Float[np.ndarray, "total_edges"]:
    arrays = [as_float64(item, f"graph {i}", "edge_lengths").reshape(-1) for i, item in enumerate(items)]
    for i, expected in enumerate(np.diff(edge_offsets)):
        if len(arrays[i]) != expected:
            raise ValueError(f"graph {i}: {len(arrays[i])} edge_lengths for {expected} edges")
    lengths = np.concatenate(arrays)
    check_finite(lengths, edge_offsets, "edge_lengths", "graph")
    if (lengths < 0).any():
        first = int(np.argmax(lengths < 0))
        graph, edge = segment_of(edge_offsets, first)
        raise ValueError(f"graph {graph}: edge_lengths[{edge}] is {lengths[first]}; it must not be negative")
    return lengths


def _coordinates(
    items: Sequence[Any], vertex_offsets: Int[np.ndarray, "graphs_plus_1"]
) -> Float[np.ndarray, "total_vertices k"]:
    arrays = [as_float64(item, f"graph {i}", "coordinates") for i, item in enumerate(items)]
    for i, (array, expected) in enumerate(zip(arrays, np.diff(vertex_offsets), strict=True)):
        if array.ndim != 2:
            raise ValueError(f"graph {i}: coordinates must have shape [V, k], got {array.shape}")
        if len(array) != expected:
            raise ValueError(f"graph {i}: {len(array)} coordinates for {expected} values")
        if array.shape[1] == 0 or array.shape[1] != arrays[0].shape[1]:
            raise ValueError(
                f"graph {i}: coordinates have {array.shape[1]} dimensions, "
                f"those of graph 0 {arrays[0].shape[1]}"
            )
    coordinates = np.concatenate(arrays)
    check_finite(coordinates, vertex_offsets, "coordinates", "graph")
    return coordinates


def _edges(item: Any, graph: int, vertices: int) -> Int[np.ndarray, "edges 2"]:
    if scipy.sparse.issparse(item):
        edges = _edges_of_adjacency(item, graph)
    else:
        edges = as_array(item, f"graph {graph}", "edges")
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"graph {graph}: edges must have shape [E, 2], got {edges.shape}")
    if edges.dtype.kind not in "iu":
        raise ValueError(f"graph {graph}: edges must be integers, got dtype {edges.dtype}")
    check_vertex_indices(edges, vertices, f"graph {graph}", "edges")
    return edges.astype(np.int64, copy=False)


def _edges_of_adjacency(matrix: Any, graph: int) -> Int[np.ndarray, "edges 2"]:
    """The edges of a sparse adjacency matrix of zeros and ones."""
    entries = matrix.tocoo()
    if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
        raise ValueError(
            f"graph {graph}: edges is a sparse matrix of shape {entries.shape}; an adjacency matrix is square"
        )
    present = entries.data != 0
    other = entries.data[present & (entries.data != 1)]
    if len(other):
        raise ValueError(
            f"graph {graph}: edges is a sparse matrix with an entry of {other[0]}, which may or may not be a "
            "length; pass edges [E, 2], and lengths as edge_lengths"
        )
    return np.stack([entries.row[present], entries.col[present]], axis=1).astype(np.int64)
