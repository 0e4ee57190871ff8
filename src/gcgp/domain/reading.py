"""From what users pass as numbers to checked arrays; errors name the item, the field and the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from gcgp._runtime.arrays import as_array, as_list, type_text
from gcgp.domain.graphs import Graphs

Numbers: TypeAlias = Any
"""Arrays, tensors, tables, sparse matrices or nested lists of real numbers; or a list of these."""


def as_items(given: Any, field: str, advice: str = "") -> list[Any]:
    """One item per signal or graph, from any iterable whose items can be meant so."""
    error = f"{field}: expected a list with one item per graph, got {type_text(given)}{advice}"
    table = hasattr(given, "columns") or scipy.sparse.issparse(given)
    if table or isinstance(given, (str, bytes, Mapping, AbstractSet)):
        raise TypeError(error)
    return as_list(given, error)


def as_float(array: np.ndarray, name: str, field: str = "values") -> np.ndarray:
    """Float32 and float64 as they are, other real numbers as float32."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: {field} must be real numbers, got dtype {array.dtype}")
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" and array.itemsize >= 8 else np.float32)


def as_float64(item: Any, name: str, field: str) -> Float[np.ndarray, "..."]:
    """Real numbers in float64."""
    array = as_array(item, name, field)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: {field} must be real numbers, got dtype {array.dtype}")
    return array.astype(np.float64)


def as_channels(item: Any, name: str) -> Float[np.ndarray, "vertices channels"]:
    """Values `[V]` or `[V, d]` of one signal as `[V, d]`."""
    values = as_array(item, name)
    if values.ndim not in (1, 2):
        raise ValueError(f"{name}: values must have shape [V] or [V, d], got {values.shape}")
    return as_float(values, name).reshape(
        len(values), -1 if values.size else max(values.shape[1:], default=1)
    )


def as_images(images: Any) -> list[np.ndarray]:
    """One array `[H, W]` or `[H, W, C]` per image, of a stack or of a list."""
    if scipy.sparse.issparse(images):
        raise TypeError(f"images: got {type_text(images)}; expected arrays [N, H, W] or [N, H, W, C]")
    if hasattr(images, "__array__"):
        stack = as_array(images, "images", stacked="image")
        if stack.ndim not in (3, 4):
            raise ValueError(f"images: expected shape [N, H, W] or [N, H, W, C], got {stack.shape}")
        return list(as_float(stack, "images"))
    given = as_items(images, "images")
    items = [as_float(as_array(image, f"image {i}"), f"image {i}") for i, image in enumerate(given)]
    for i, image in enumerate(items):
        if image.ndim not in (2, 3):
            raise ValueError(f"image {i}: expected shape [H, W] or [H, W, C], got {image.shape}")
    return items


def check_finite(array: np.ndarray, offsets: np.ndarray, field: str, item: str = "signal") -> None:
    """Raise a ValueError that names the first place that is NaN or infinite."""
    if np.isfinite(array).all():
        return
    place = np.argwhere(~np.isfinite(array))[0]
    index = int(np.searchsorted(offsets, place[0], side="right") - 1)
    within = [int(place[0] - offsets[index]), *map(int, place[1:])]
    raise ValueError(f"{item} {index}: {field} at {within} is {array[tuple(place)]}; it must be finite")


def as_graphs(
    vertex_counts: Sequence[int],
    edges: Sequence[Any],
    edge_lengths: Sequence[Any] | None,
    coordinates: Sequence[Any] | None,
) -> Graphs:
    """Checked graphs with these vertex counts; every field has one item per graph."""
    for field, given in (("edges", edges), ("edge_lengths", edge_lengths), ("coordinates", coordinates)):
        if given is not None and len(given) != len(vertex_counts):
            raise ValueError(f"{field}: {len(given)} items for {len(vertex_counts)} graphs")
    if not vertex_counts:
        raise ValueError("signals: the set is empty (0 signals)")
    edge_items = [_edges(item, i, vertex_counts[i]) for i, item in enumerate(edges)]
    edge_offsets = np.concatenate([[0], np.cumsum([len(item) for item in edge_items])]).astype(np.int64)
    vertex_offsets = np.concatenate([[0], np.cumsum(vertex_counts)]).astype(np.int64)
    return Graphs(
        vertex_offsets,
        np.concatenate(edge_items),
        edge_offsets,
        None if edge_lengths is None else _lengths(edge_lengths, edge_offsets),
        None if coordinates is None else _coordinates(coordinates, vertex_offsets),
    )


def _lengths(
    items: Sequence[Any], edge_offsets: Int[np.ndarray, "graphs_plus_1"]
) -> Float[np.ndarray, "total_edges"]:
    lengths = [as_float64(item, f"graph {i}", "edge_lengths").reshape(-1) for i, item in enumerate(items)]
    for i, expected in enumerate(np.diff(edge_offsets)):
        if len(lengths[i]) != expected:
            raise ValueError(f"graph {i}: {len(lengths[i])} edge_lengths for {expected} edges")
    weights = np.concatenate(lengths)
    check_finite(weights, edge_offsets, "edge_lengths", "graph")
    if (weights < 0).any():
        place = int(np.argmax(weights < 0))
        graph = int(np.searchsorted(edge_offsets, place, side="right") - 1)
        raise ValueError(
            f"graph {graph}: edge_lengths[{place - edge_offsets[graph]}] is {weights[place]}; "
            "a length cannot be negative"
        )
    return weights


def _coordinates(
    items: Sequence[Any], vertex_offsets: Int[np.ndarray, "graphs_plus_1"]
) -> Float[np.ndarray, "total_vertices k"]:
    places = [as_float64(item, f"graph {i}", "coordinates") for i, item in enumerate(items)]
    for i, (place, expected) in enumerate(zip(places, np.diff(vertex_offsets), strict=True)):
        if place.ndim != 2:
            raise ValueError(f"graph {i}: coordinates must have shape [V, k], got {place.shape}")
        if len(place) != expected:
            raise ValueError(f"graph {i}: {len(place)} coordinates for {expected} values")
        if place.shape[-1] == 0 or place.shape[-1] != places[0].shape[-1]:
            raise ValueError(
                f"graph {i}: coordinates have {place.shape[-1]} dimensions, "
                f"those of graph 0 {places[0].shape[-1]}"
            )
    positions = np.concatenate(places)
    check_finite(positions, vertex_offsets, "coordinates", "graph")
    return positions


def _edges(item: Any, graph: int, vertices: int) -> Int[np.ndarray, "edges 2"]:
    edges = _edges_of_adjacency(item, graph) if scipy.sparse.issparse(item) else None
    edges = as_array(item, f"graph {graph}", "edges") if edges is None else edges
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"graph {graph}: edges must have shape [E, 2], got {edges.shape}")
    if edges.dtype.kind not in "iu":
        raise ValueError(f"graph {graph}: edges must be whole numbers, got dtype {edges.dtype}")
    outside = (edges < 0) | (edges >= vertices)
    if outside.any():
        place = int(np.argmax(outside.any(axis=1)))
        raise ValueError(
            f"graph {graph}: edges[{place}] is {edges[place].tolist()}, "
            f"but its vertices are 0 to {vertices - 1}"
        )
    return edges.astype(np.int64, copy=False)


def _edges_of_adjacency(matrix: Any, graph: int) -> Int[np.ndarray, "edges 2"]:
    """The edges of a sparse adjacency matrix of zeros and ones."""
    entries = matrix.tocoo()
    if entries.ndim != 2 or entries.shape[0] != entries.shape[1]:
        raise ValueError(
            f"graph {graph}: edges is a sparse matrix of shape {entries.shape}; an adjacency matrix is square"
        )
    present = entries.data != 0
    if (entries.data[present] != 1).any():
        value = entries.data[present][np.argmax(entries.data[present] != 1)]
        raise ValueError(
            f"graph {graph}: edges is a sparse matrix with an entry of {value}, and whether that is a length "
            "is not known; give edges [E, 2], and lengths as edge_lengths"
        )
    return np.stack([entries.row[present], entries.col[present]], axis=1).astype(np.int64)
