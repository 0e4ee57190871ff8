"""Graphs of NetworkX."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from gcgp._runtime.arrays import as_array, as_list


def is_networkx(item: Any) -> bool:
    """Whether this is a graph of NetworkX."""
    return all(hasattr(item, name) for name in ("nodes", "edges", "adj", "is_directed"))


def read_networkx(
    graphs: Any,
    values: str | Sequence[str],
    coordinates: str | bool | None,
    edge_lengths: str | bool | None,
) -> tuple[list[Any], list[Any], list[Any] | None, list[Any] | None]:
    """Values, edges, edge lengths and coordinates of each graph; see `Signals.from_networkx`."""
    error = f"graphs: expected graphs of NetworkX, got {type(graphs).__name__}"
    items = [graphs] if is_networkx(graphs) else as_list(graphs, error)
    for i, graph in enumerate(items):
        if not is_networkx(graph):
            raise TypeError(f"graph {i}: expected a NetworkX graph, got {type(graph).__name__}")
    _warn_about_unused(items, coordinates, edge_lengths)
    error = f"values={values!r}: expected the name of a node attribute, or a list of names"
    names = [values] if isinstance(values, str) else as_list(values, error)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(error)
    return (
        [_node_attributes(graph, i, names) for i, graph in enumerate(items)],
        [_edges(graph) for graph in items],
        [_edge_attribute(graph, i, edge_lengths) for i, graph in enumerate(items)]
        if isinstance(edge_lengths, str)
        else None,
        [_node_attributes(graph, i, [coordinates]) for i, graph in enumerate(items)]
        if isinstance(coordinates, str)
        else None,
    )


def _warn_about_unused(
    graphs: Sequence[Any], coordinates: str | bool | None, edge_lengths: str | bool | None
) -> None:
    """Warn about NetworkX's usual attributes `pos` and `weight`; the latter may be a length or a strength."""
    nodes = (data for graph in graphs for _, data in graph.nodes(data=True))
    edges = (data for graph in graphs for *_, data in graph.edges(data=True))
    unused = []
    if coordinates is None and any("pos" in data for data in nodes):
        unused.append("node attribute 'pos' is not used; pass coordinates='pos' or coordinates=False")
    if edge_lengths is None and any("weight" in data for data in edges):
        unused.append("edge attribute 'weight' is not used; pass edge_lengths='weight' or edge_lengths=False")
    if any(graph.is_directed() for graph in graphs):
        unused.append("edge directions are not used")
    if unused:
        warnings.warn(f"from_networkx: {'; '.join(unused)}", UserWarning, stacklevel=4)


def _node_attributes(graph: Any, index: int, names: Sequence[str]) -> list[np.ndarray]:
    """One row per node: the named attributes, side by side."""
    rows = []
    for node, data in graph.nodes(data=True):
        for name in names:
            if name not in data:
                raise ValueError(
                    f"graph {index}: node {node!r} has no attribute {name!r}; name those that hold values, "
                    "Signals.from_networkx(graphs, values=...), for example degrees, "
                    "nx.set_node_attributes(graph, dict(graph.degree()), 'degree')"
                )
        parts = [as_array(data[name], f"graph {index}: node {node!r}", name) for name in names]
        rows.append(np.concatenate([np.atleast_1d(part) for part in parts]))
    return rows


def _edges(graph: Any) -> np.ndarray:
    number = {node: i for i, node in enumerate(graph.nodes)}
    ends = [(number[a], number[b]) for a, b, _ in graph.edges(data=True)]
    return np.array(ends, dtype=np.int64).reshape(-1, 2)


def _edge_attribute(graph: Any, index: int, name: str) -> list[Any]:
    for a, b, data in graph.edges(data=True):
        if name not in data:
            raise ValueError(f"graph {index}: edge {a!r}–{b!r} has no attribute {name!r}")
    return [data[name] for *_, data in graph.edges(data=True)]
