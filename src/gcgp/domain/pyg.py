"""To and from PyTorch Geometric. Reading needs only the attributes, not the package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gcgp.domain.graphs import Graphs

if TYPE_CHECKING:
    from gcgp.domain.signals import Signals


def from_pyg(data: Iterable[Any]) -> Signals:
    """Signals from objects with `x`, `edge_index` and, if there, `pos` and `edge_weight`."""
    from gcgp.domain.signals import Signals

    items = list(data)
    for i, item in enumerate(items):
        for field in ("x", "edge_index"):
            if getattr(item, field, None) is None:
                raise ValueError(f"graph {i}: its {field} is missing")
        if item.edge_index.ndim != 2 or item.edge_index.shape[0] != 2:
            raise ValueError(
                f"graph {i}: edge_index must have shape [2, E], got {tuple(item.edge_index.shape)}"
            )
    return Signals.from_graphs(
        [_array(item.x) for item in items],
        [_array(item.edge_index).T for item in items],
        _optional(items, "edge_weight"),
        _optional(items, "pos"),
    )


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
        lengths = np.zeros(len(ends)) if graphs.edge_weights is None else graphs.edge_weights[of_edges]
        order = np.lexsort((lengths, ends[:, 1], ends[:, 0]))
        edges, first = np.unique(ends[order], axis=0, return_index=True)
        item = Data(
            x=torch.from_numpy(signals.values[signals.offsets[n] : signals.offsets[n + 1]].copy()),
            edge_index=torch.from_numpy(np.concatenate([edges, edges[:, ::-1]]).T.astype(np.int64)),
        )
        if graphs.coordinates is not None:
            item.pos = torch.from_numpy(graphs.coordinates[of_vertices].astype(signals.values.dtype))
        if graphs.edge_weights is not None:
            weights = lengths[order][first].astype(signals.values.dtype)
            item.edge_weight = torch.from_numpy(np.tile(weights, 2))
        items.append(item)
    return items


def _optional(items: list[Any], field: str) -> list[np.ndarray] | None:
    """The field of every item, or None if no item has it."""
    given = [getattr(item, field, None) is not None for item in items]
    if not any(given):
        return None
    if not all(given):
        raise ValueError(f"graph {given.index(False)}: its {field} is missing, though others have it")
    return [_array(getattr(item, field)) for item in items]


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu() if hasattr(tensor, "detach") else tensor)
