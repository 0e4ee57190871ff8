"""To and from PyTorch Geometric. Reading needs only the attributes, not the package."""

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

HETEROGENEOUS = "HeteroData"
LENGTH = "edge_length"
"""The attribute in which `to_pyg` writes lengths of edges."""
UNCLEAR = ("edge_weight", "edge_attr")
"""Attributes that may hold lengths, but in PyTorch Geometric mostly do not: weights are strengths there."""


def from_pyg(
    data: Any, edge_lengths: str | bool | None = None, return_y: bool = False
) -> Signals | tuple[Signals, np.ndarray]:
    """Signals from graphs with `x`, `edge_index` and, if there, `pos`; see `Signals.from_pyg`."""
    from gcgp.domain.signals import Signals

    items = _graphs(data, any_order=return_y)
    for i, item in enumerate(items):
        _check_fields(item, i)
    edges = [_edges(item.edge_index, i) for i, item in enumerate(items)]
    signals = Signals.from_graphs(
        [item.x for item in items],
        edges,
        _lengths(items, edge_lengths),
        _optional(items, "pos"),
    )
    return (signals, _labels(items)) if return_y else signals


def is_pyg(data: Any) -> bool:
    """Whether this is a graph, a batch of graphs, or a data set of graphs."""
    return hasattr(data, "edge_index") or type(data).__name__ == HETEROGENEOUS


def _graphs(data: Any, any_order: bool) -> list[Any]:
    """Single graphs, in order, from one graph, a batch, a data set, a loader, or any iterable of these."""
    if isinstance(data, DataLoader) and not any_order:
        ordered = isinstance(data.sampler, SequentialSampler)
        if not ordered or type(data.batch_sampler) not in (BatchSampler, type(None)):
            raise ValueError(
                "data: the loader shuffles its graphs, so that labels from elsewhere would not be theirs; "
                "give its dataset, or use signals, y = Signals.from_pyg(loader, return_y=True)"
            )
    if is_pyg(data) and not isinstance(data, Dataset):  # a data set has the joined edge_index of its graphs
        data = [data]
    error = f"data: expected PyTorch Geometric data, got {type(data).__name__}"
    if isinstance(data, (str, bytes, Mapping)):
        raise TypeError(error)
    graphs: list[Any] = []
    for item in as_list(data, error):
        for part in item if isinstance(item, (list, tuple)) else [item]:
            graphs.extend(_split(part, len(graphs)) if hasattr(part, "to_data_list") else [part])
    return graphs


def _split(batch: Any, first: int) -> list[Any]:
    try:
        return list(batch.to_data_list())
    except RuntimeError as error:
        raise _unsplit(first) from error


def _unsplit(graph: int) -> ValueError:
    return ValueError(
        f"graph {graph}: a batch of several graphs that cannot be split; give the list of graphs"
    )


def _check_fields(item: Any, i: int) -> None:
    if not hasattr(item, "edge_index"):
        hint = "; convert it with .to_homogeneous()" if type(item).__name__ == HETEROGENEOUS else ""
        raise TypeError(f"graph {i}: a {type(item).__name__} instead of PyTorch Geometric Data{hint}")
    batch = getattr(item, "batch", None)
    if batch is not None and len(batch) and bool((batch != batch[0]).any()):
        raise _unsplit(i)
    if getattr(item, "edge_index", None) is None:
        hint = ""
        if getattr(item, "face", None) is not None:
            hint = "; for a mesh use Signals.on_meshes, or a descriptor of Mesh(data.pos, data.face.T)"
        raise ValueError(f"graph {i}: its edge_index is missing{hint}")
    if getattr(item, "x", None) is None:
        raise ValueError(
            f"graph {i}: its x is missing; give vertices their degrees as values, "
            "data.x = torch_geometric.utils.degree(data.edge_index[0], data.num_nodes)[:, None], "
            "or ones, data.x = torch.ones(data.num_nodes, 1)"
        )


def _edges(edge_index: Any, i: int) -> np.ndarray:
    ends = as_array(edge_index, f"graph {i}", "edge_index")
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise ValueError(f"graph {i}: edge_index must have shape [2, E], got {ends.shape}")
    return ends.T


def _lengths(items: list[Any], name: str | bool | None) -> list[Any] | None:
    """The lengths of the edges: the named attribute, or what `to_pyg` wrote."""
    if name is False:
        return None
    if name is not None and not isinstance(name, str):
        raise TypeError(f"edge_lengths={name!r}: expected the name of an attribute, False or None")
    if name is None:
        unused = [f for f in UNCLEAR if any(getattr(item, f, None) is not None for item in items)]
        if unused:
            warnings.warn(
                f"from_pyg: {' and '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used; if edge "
                f"lengths are meant, say so: Signals.from_pyg(data, edge_lengths={unused[-1]!r}); if not, "
                "edge_lengths=False",
                UserWarning,
                stacklevel=4,
            )
        return _optional(items, LENGTH)
    lengths = _optional(items, name)
    if lengths is None:
        raise ValueError(f"graph 0: its {name} is missing")
    arrays = [as_array(length, f"graph {i}", name) for i, length in enumerate(lengths)]
    for i, array in enumerate(arrays):
        if array.ndim == 0 or array.shape[1:] not in ((), (1,)):
            raise ValueError(f"graph {i}: {name} must have shape [E] or [E, 1], got {array.shape}")
    return arrays


def _labels(items: list[Any]) -> np.ndarray:
    """The labels of graphs, `[N]`, or `[N, k]` where each has k of them."""
    labels: list[np.ndarray] = []
    for i, item in enumerate(items):
        label = getattr(item, "y", None)
        if label is None:
            raise ValueError(f"graph {i}: its y is missing")
        array = plain_array(label, f"graph {i}: y is no label")
        if array.size != 1 and (array.ndim != 2 or len(array) != 1):
            raise ValueError(
                f"graph {i}: y has shape {array.shape}; expected one label per graph, [1] or [1, k]"
            )
        labels.append(array.reshape(()) if array.size == 1 else array[0])
        if labels[-1].shape != labels[0].shape:
            raise ValueError(f"graph {i}: y has shape {array.shape}, unlike that of graph 0")
    return np.stack(labels)


def to_pyg(signals: Signals) -> list[Any]:
    """One `torch_geometric.data.Data` per signal, every edge in both directions."""
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
        # Each edge once, the shortest of parallel ones, so that a round trip adds none.
        ends = np.sort(graphs.edges[of_edges], axis=1)
        lengths = np.zeros(len(ends)) if graphs.edge_lengths is None else graphs.edge_lengths[of_edges]
        order = np.lexsort((lengths, ends[:, 1], ends[:, 0]))
        edges, first = np.unique(ends[order], axis=0, return_index=True)
        item = Data(
            x=torch.from_numpy(signals.values[signals.offsets[n] : signals.offsets[n + 1]].copy()),
            edge_index=torch.from_numpy(np.concatenate([edges, edges[:, ::-1]]).T.astype(np.int64)),
        )
        if graphs.coordinates is not None:
            item.pos = torch.from_numpy(graphs.coordinates[of_vertices].astype(signals.values.dtype))
        if graphs.edge_lengths is not None:
            weights = lengths[order][first].astype(signals.values.dtype)
            setattr(item, LENGTH, torch.from_numpy(np.tile(weights, 2)))
        items.append(item)
    return items


def _optional(items: list[Any], field: str) -> list[Any] | None:
    """The field of every item, or None if no item has it."""
    given = [getattr(item, field, None) is not None for item in items]
    if not any(given):
        return None
    if not all(given):
        raise ValueError(f"graph {given.index(False)}: its {field} is missing, though others have it")
    return [getattr(item, field) for item in items]
