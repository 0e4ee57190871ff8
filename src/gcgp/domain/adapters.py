"""Graphs of NetworkX and meshes of trimesh. Reading needs only their attributes, not the packages."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gcgp._runtime.arrays import as_array, as_list
from gcgp.mesh.mesh import Mesh

if TYPE_CHECKING:
    from gcgp.domain.signals import Signals

POSITION, WEIGHT = "pos", "weight"
"""NetworkX's usual names; the latter may be a length or a strength."""


def is_networkx(item: Any) -> bool:
    """Whether this is a graph of NetworkX."""
    return all(hasattr(item, name) for name in ("nodes", "edges", "adj", "is_directed"))


def is_mesh(item: Any) -> bool:
    """Whether this is a `Mesh` or a mesh of trimesh."""
    return hasattr(item, "vertices") and hasattr(item, "faces")


def as_mesh(item: Any, name: str) -> Mesh:
    """A `Mesh` as it is, or the mesh with the vertices and faces of a trimesh object."""
    if isinstance(item, Mesh):
        return item
    if not is_mesh(item):
        raise TypeError(f"{name}: expected a Mesh, got {type(item).__name__}")
    return Mesh(np.array(item.vertices), np.array(item.faces))


def as_meshes(meshes: Any) -> list[Mesh]:
    """One `Mesh` per item; the same object gives the same mesh."""
    error = f"meshes: expected a list with one item per signal, got a {type(meshes).__name__}"
    if is_mesh(meshes):
        raise TypeError(error)
    items = as_list(meshes, error)
    read: dict[int, Mesh] = {}
    for i, item in enumerate(items):
        if id(item) not in read:
            read[id(item)] = as_mesh(item, f"mesh {i}")
    return [read[id(item)] for item in items]


def from_networkx(
    graphs: Any,
    values: str | Sequence[str] = "x",
    coordinates: str | bool | None = None,
    edge_lengths: str | bool | None = None,
) -> Signals:
    """Signals from graphs of NetworkX; see `Signals.from_networkx`."""
    from gcgp.domain.signals import Signals

    error = f"graphs: expected graphs of NetworkX, got {type(graphs).__name__}"
    items = [graphs] if is_networkx(graphs) else as_list(graphs, error)
    for i, graph in enumerate(items):
        if not is_networkx(graph):
            raise TypeError(f"graph {i}: expected a NetworkX graph, got {type(graph).__name__}")
    _warn_of_unused(items, coordinates, edge_lengths)
    error = f"values={values!r}: expected the name of a node attribute, or a list of names"
    names = [values] if isinstance(values, str) else as_list(values, error)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(error)
    return Signals.from_graphs(
        [_node_values(graph, i, names) for i, graph in enumerate(items)],
        [_edges(graph) for graph in items],
        [_edge_values(graph, i, edge_lengths) for i, graph in enumerate(items)]
        if isinstance(edge_lengths, str)
        else None,
        [_node_values(graph, i, [coordinates]) for i, graph in enumerate(items)]
        if isinstance(coordinates, str)
        else None,
    )


def _warn_of_unused(
    graphs: Sequence[Any], coordinates: str | bool | None, edge_lengths: str | bool | None
) -> None:
    unused, arguments = [], []
    nodes = (data for graph in graphs for _, data in graph.nodes(data=True))
    edges = (data for graph in graphs for *_, data in graph.edges(data=True))
    if coordinates is None and any(POSITION in data for data in nodes):
        unused.append(f"{POSITION} of nodes")
        arguments.append(f"coordinates={POSITION!r}")
    if edge_lengths is None and any(WEIGHT in data for data in edges):
        unused.append(f"{WEIGHT} of edges")
        arguments.append(f"edge_lengths={WEIGHT!r}")
    if unused:
        warnings.warn(
            f"from_networkx: {' and '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used; name "
            f"what is meant, Signals.from_networkx(graphs, {', '.join(arguments)}), or give False",
            UserWarning,
            stacklevel=4,
        )
    if any(graph.is_directed() for graph in graphs):
        warnings.warn("from_networkx: directions of edges are not used", UserWarning, stacklevel=4)


def _node_values(graph: Any, number: int, names: Sequence[str]) -> list[np.ndarray]:
    """One row per node: the named attributes, side by side."""
    rows = []
    for node, data in graph.nodes(data=True):
        for name in names:
            if name not in data:
                raise ValueError(
                    f"graph {number}: node {node!r} has no attribute {name!r}; name those that hold values, "
                    "Signals.from_networkx(graphs, values=...), such as degrees, "
                    "nx.set_node_attributes(graph, dict(graph.degree()), 'degree')"
                )
        parts = [as_array(data[name], f"graph {number}: node {node!r}", name) for name in names]
        rows.append(np.concatenate([np.atleast_1d(part) for part in parts]))
    return rows


def _edges(graph: Any) -> np.ndarray:
    place = {node: i for i, node in enumerate(graph.nodes)}
    ends = [(place[a], place[b]) for a, b, _ in graph.edges(data=True)]
    return np.array(ends, dtype=np.int64).reshape(-1, 2)


def _edge_values(graph: Any, number: int, name: str) -> list[Any]:
    values = []
    for a, b, data in graph.edges(data=True):
        if name not in data:
            raise ValueError(f"graph {number}: edge {a!r}–{b!r} has no attribute {name!r}")
        values.append(data[name])
    return values
