"""Graphs of PyTorch Geometric."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from gcgp._runtime.arrays import as_array, as_list, plain_array
from gcgp.domain.graphs import Graphs

if TYPE_CHECKING:
    from gcgp.domain.signals import Signals

EDGE_LENGTH = "edge_length"
"""The edge attribute to which `to_pyg` writes lengths."""


def is_pyg(data: Any) -> bool:
    """Whether this is a graph, a batch of graphs, or a data set of graphs."""
    return hasattr(data, "edge_index") or type(data).__name__ == "HeteroData"


def read_pyg(
    data: Any, edge_lengths: str | bool | None, return_y: bool
) -> tuple[list[Any], list[Any], list[Any] | None, list[Any] | None, np.ndarray | None]:
    """`x`, edges, edge lengths, `pos` and, if asked for, `y` of each graph; see `Signals.from_pyg`."""
    items = _split_batches(data, any_order=return_y)
    for i, item in enumerate(items):
        _check_fields(item, i)
    return (
        [item.x for item in items],
        [_edges(item.edge_index, i) for i, item in enumerate(items)],
        _edge_lengths(items, edge_lengths),
        _optional(items, "pos"),
        _labels(items) if return_y else None,
    )


def _split_batches(data: Any, any_order: bool) -> list[Any]:
    """Single graphs, in order, from a graph, a batch, a data set, a loader, or any iterable of these."""
    if isinstance(data, DataLoader) and not any_order:
        ordered = isinstance(data.sampler, SequentialSampler)
        if not ordered or type(data.batch_sampler) not in (BatchSampler, type(None)):
            raise ValueError(
                "data: the loader shuffles its graphs, so separate labels would not match them; "
                "pass its dataset, or use signals, y = Signals.from_pyg(loader, return_y=True)"
            )
    if is_pyg(data) and not isinstance(data, Dataset):  # a data set has the joined edge_index of its graphs
        data = [data]
    error = f"data: expected PyTorch Geometric data, got {type(data).__name__}"
    if isinstance(data, (str, bytes, Mapping)):
        raise TypeError(error)
    graphs: list[Any] = []
    for item in as_list(data, error):
        for part in item if isinstance(item, (list, tuple)) else [item]:
            if not hasattr(part, "to_data_list"):
                graphs.append(part)
                continue
            try:
                graphs.extend(part.to_data_list())
            except RuntimeError as cause:
                raise _cannot_split(len(graphs)) from cause
    return graphs


def _cannot_split(graph: int) -> ValueError:
    return ValueError(
        f"graph {graph}: a batch of several graphs that cannot be split; pass the list of graphs"
    )


def _check_fields(item: Any, i: int) -> None:
    if not hasattr(item, "edge_index"):
        hint = "; convert it with .to_homogeneous()" if is_pyg(item) else ""
        raise TypeError(f"graph {i}: a {type(item).__name__} instead of PyTorch Geometric Data{hint}")
    batch = getattr(item, "batch", None)
    if batch is not None and len(batch) and bool((batch != batch[0]).any()):
        raise _cannot_split(i)
    if item.edge_index is None:
        is_mesh = getattr(item, "face", None) is not None
        hint = "; for meshes use Signals.on_meshes, or a descriptor of Mesh(data.pos, data.face.T)"
        raise ValueError(f"graph {i}: edge_index is missing{hint if is_mesh else ''}")
    if getattr(item, "x", None) is None:
        raise ValueError(
            f"graph {i}: x is missing; use degrees as values, "
            "data.x = torch_geometric.utils.degree(data.edge_index[0], data.num_nodes)[:, None], "
            "or ones, data.x = torch.ones(data.num_nodes, 1)"
        )


def _edges(edge_index: Any, i: int) -> np.ndarray:
    ends = as_array(edge_index, f"graph {i}", "edge_index")
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise ValueError(f"graph {i}: edge_index must have shape [2, E], got {ends.shape}")
    return ends.T


def _edge_lengths(items: list[Any], name: str | bool | None) -> list[Any] | None:
    """The named edge attribute, or the one that `to_pyg` writes.

    `edge_weight` and `edge_attr` are not used unless named: in PyTorch Geometric they are mostly strengths.
    """
    if name is False:
        return None
    if name is not None and not isinstance(name, str):
        raise TypeError(f"edge_lengths={name!r}: expected the name of an edge attribute, False or None")
    if name is None:
        attributes = ("edge_weight", "edge_attr")
        unused = [name for name in attributes if any(getattr(item, name, None) is not None for item in items)]
        if unused:
            warnings.warn(
                f"from_pyg does not use {' and '.join(unused)}; to use it as edge lengths, pass "
                f"edge_lengths={unused[-1]!r}, otherwise edge_lengths=False",
                UserWarning,
                stacklevel=4,
            )
        return _optional(items, EDGE_LENGTH)
    lengths = _optional(items, name)
    if lengths is None:
        raise ValueError(f"graph 0: {name} is missing")
    arrays = [as_array(length, f"graph {i}", name) for i, length in enumerate(lengths)]
    for i, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[1:] not in ((), (1,)):
            raise ValueError(f"graph {i}: {name} must have shape [E] or [E, 1], got {array.shape}")
    return arrays


def _optional(items: list[Any], field: str) -> list[Any] | None:
    """The field of each item, or None if no item has it."""
    fields = [getattr(item, field, None) for item in items]
    missing = [i for i, value in enumerate(fields) if value is None]
    if missing and len(missing) < len(items):
        raise ValueError(f"graph {missing[0]}: {field} is missing, but other graphs have it")
    return None if missing or not items else fields


def _labels(items: list[Any]) -> np.ndarray:
    """The labels `[N]`, or `[N, k]` if each graph has k of them."""
    labels: list[np.ndarray] = []
    for i, item in enumerate(items):
        label = getattr(item, "y", None)
        if label is None:
            raise ValueError(f"graph {i}: y is missing")
        array = plain_array(label, f"graph {i}: y is not a label")
        if array.size != 1 and (array.ndim != 2 or len(array) != 1):
            raise ValueError(
                f"graph {i}: y has shape {array.shape}; expected one label per graph, [1] or [1, k]"
            )
        labels.append(array.reshape(()) if array.size == 1 else array[0])
        if labels[-1].shape != labels[0].shape:
            raise ValueError(f"graph {i}: y has shape {array.shape}, unlike that of graph 0")
    return np.stack(labels)


def to_pyg(signals: Signals) -> list[Any]:
    """One `torch_geometric.data.Data` per signal, with each edge in both directions."""
    import torch

    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError("to_pyg needs PyTorch Geometric: pip install 'gcgp[graphs]'") from error
    graphs = signals.domains
    if not isinstance(graphs, Graphs):
        raise ValueError(f"to_pyg needs signals on graphs; these are on {type(graphs).__name__.lower()}")
    items = []
    for n, graph in enumerate(signals.domain_of):
        of_edges = slice(*graphs.edge_offsets[graph : graph + 2])
        of_vertices = slice(*graphs.vertex_offsets[graph : graph + 2])
        # Each edge once, the shortest of parallel ones, so that round trips add no edges.
        ends = np.sort(graphs.edges[of_edges], axis=1)
        lengths = np.zeros(len(ends)) if graphs.edge_lengths is None else graphs.edge_lengths[of_edges]
        order = np.lexsort((lengths, ends[:, 1], ends[:, 0]))
        edges, first = np.unique(ends[order], axis=0, return_index=True)
        item = Data(
            x=torch.from_numpy(signals.values[signals.offsets[n] : signals.offsets[n + 1]].copy()),
            edge_index=torch.from_numpy(np.concatenate([edges, edges[:, ::-1]]).T.astype(np.int64)),
        )
        dtype = signals.values.dtype
        if graphs.coordinates is not None:
            item.pos = torch.from_numpy(graphs.coordinates[of_vertices].astype(dtype))
        if graphs.edge_lengths is not None:
            item[EDGE_LENGTH] = torch.from_numpy(np.tile(lengths[order][first].astype(dtype), 2))
        items.append(item)
    return items
