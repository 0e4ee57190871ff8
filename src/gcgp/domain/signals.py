"""Sets of signals: values on the vertices of domains, stored flat with offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Float, Int

from gcgp._numerics.segments import join_offsets, offsets_from_counts, take_segments
from gcgp._runtime.arrays import as_array
from gcgp.domain.adapters.meshes import as_meshes
from gcgp.domain.adapters.networkx import read_networkx
from gcgp.domain.adapters.pyg import read_pyg, to_pyg
from gcgp.domain.base import Domains
from gcgp.domain.grids import Grids
from gcgp.domain.meshes import Meshes
from gcgp.domain.reading import Numbers, as_channels, as_graphs, as_images, as_items, check_finite


@dataclass(frozen=True, eq=False)
class Signals:
    """N signals; signal `n` has `values[offsets[n]:offsets[n + 1]]` on `domains[domain_of[n]]`.

    Created by `from_images`, `from_graphs`, `on_graph`, `on_meshes`, `from_pyg` and `from_networkx`, which
    read arrays, tensors, pandas tables, sparse matrices and nested lists. Indexing by an integer, a slice, a
    mask or an array of integers gives `Signals`, so scikit-learn's splitters work on it.

    >>> import numpy as np
    >>> signals = Signals.from_images(np.zeros((5, 28, 28)))
    >>> len(signals), signals.channels, len(signals[[0, 3]])
    (5, 1, 2)
    """

    values: Float[np.ndarray, "total_vertices channels"]
    offsets: Int[np.ndarray, "signals_plus_1"]
    domains: Domains
    domain_of: Int[np.ndarray, "signals"]

    @classmethod
    def from_images(cls, images: Numbers) -> Signals:
        """Images `[N, H, W]` or `[N, H, W, C]`, or a list of `[H, W]` or `[H, W, C]` of any sizes.

        Values are not rescaled; integers become float32.

        >>> Signals.from_images([np.zeros((4, 4)), np.zeros((6, 5))]).vertex_counts.tolist()
        [16, 30]
        """
        items = as_images(images)
        if not items:
            raise ValueError("images: the set is empty (0 signals)")
        shapes = np.array([image.shape[:2] for image in items], dtype=np.int64)
        grids, (domain_of,) = Grids.concatenate([Grids(shapes)])
        flat = [image.reshape(image.shape[0] * image.shape[1], *image.shape[2:] or (1,)) for image in items]
        return _checked(flat, grids, domain_of)

    @classmethod
    def from_graphs(
        cls, values: Numbers, edges: Numbers, edge_lengths: Numbers = None, coordinates: Numbers = None
    ) -> Signals:
        """One graph per signal: values `[V]` or `[V, d]`, edges `[E, 2]`, lengths `[E]`, positions `[V, k]`.

        Edges are undirected; instead of a list they may be a sparse adjacency matrix of zeros and ones. With
        coordinates, estimators measure straight-line distances and use edges only with `chart="path"`.

        >>> triangle = [[0, 1], [1, 2], [2, 0]]
        >>> Signals.from_graphs([[1.0, 2.0, 3.0]], [triangle]).vertex_counts.tolist()
        [3]
        """
        advice = "; for N signals on one graph use Signals.on_graph(values, edges)"
        items = [as_channels(item, f"graph {i}") for i, item in enumerate(as_items(values, "values", advice))]
        graphs = as_graphs(
            [len(item) for item in items],
            as_items(edges, "edges", advice),
            None if edge_lengths is None else as_items(edge_lengths, "edge_lengths"),
            None if coordinates is None else as_items(coordinates, "coordinates"),
        )
        return _checked(items, graphs, np.arange(len(items)))

    @classmethod
    def on_graph(
        cls, values: Numbers, edges: Numbers, edge_lengths: Numbers = None, coordinates: Numbers = None
    ) -> Signals:
        """N signals `[N, V]` or `[N, V, d]` on one graph, such as a sensor network.

        >>> Signals.on_graph(np.zeros((10, 3)), [[0, 1], [1, 2]]).vertex_counts.tolist()[:2]
        [3, 3]
        """
        stack = as_array(values, "values", stacked="signal")
        if stack.ndim not in (2, 3):
            raise ValueError(f"values: expected shape [N, V] or [N, V, d], got {stack.shape}")
        items = [as_channels(item, f"signal {i}") for i, item in enumerate(stack)]
        graphs = as_graphs(
            [stack.shape[1]],
            [edges],
            None if edge_lengths is None else [edge_lengths],
            None if coordinates is None else [coordinates],
        )
        return _checked(items, graphs, np.zeros(len(items), dtype=np.int64))

    @classmethod
    def on_meshes(cls, values: Numbers, meshes: Any) -> Signals:
        """One mesh per signal, a `Mesh` or a trimesh object, with values `[V]` or `[V, d]` on its vertices.

        >>> from gcgp import Mesh
        >>> triangle = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        >>> Signals.on_meshes([[1.0, 2.0, 3.0]], [triangle]).vertex_counts.tolist()
        [3]
        """
        items = [as_channels(item, f"signal {i}") for i, item in enumerate(as_items(values, "values"))]
        surfaces = as_meshes(meshes)
        if len(items) != len(surfaces):
            raise ValueError(f"values: {len(items)} items for {len(surfaces)} meshes")
        for i, (item, mesh) in enumerate(zip(items, surfaces, strict=True)):
            if len(item) != len(mesh.vertices):
                raise ValueError(
                    f"signal {i}: {len(item)} values for {len(mesh.vertices)} vertices of its mesh"
                )
        return _checked(items, Meshes(tuple(surfaces)), np.arange(len(items)))

    @overload
    @classmethod
    def from_pyg(
        cls, data: Any, edge_lengths: str | bool | None = None, return_y: Literal[False] = False
    ) -> Signals: ...

    @overload
    @classmethod
    def from_pyg(
        cls, data: Any, edge_lengths: str | bool | None = None, *, return_y: Literal[True]
    ) -> tuple[Signals, np.ndarray]: ...

    @classmethod
    def from_pyg(
        cls, data: Any, edge_lengths: str | bool | None = None, return_y: bool = False
    ) -> Signals | tuple[Signals, np.ndarray]:
        """Graphs of PyTorch Geometric with `x`, `edge_index` and optionally `pos`, the coordinates.

        Args:
            data: A `Data`, a list or data set of them, a `Batch`, or a `DataLoader`; batches are split.
            edge_lengths: The edge attribute that holds lengths, such as `"edge_attr"`. By default
                `edge_length`, which `to_pyg` writes, with a warning if there is an `edge_weight` or
                `edge_attr`. False: none, without a warning.
            return_y: Also return the labels `y` of the graphs, `[N]` or `[N, k]`.

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> data = [Data(x=torch.ones(3, 1), edge_index=edges, y=torch.tensor([n])) for n in range(4)]
        >>> signals, y = Signals.from_pyg(data, return_y=True)
        >>> len(signals), y.tolist()
        (4, [0, 1, 2, 3])
        """
        *fields, y = read_pyg(data, edge_lengths, return_y)
        signals = cls.from_graphs(*fields)
        return signals if y is None else (signals, y)

    @classmethod
    def from_networkx(
        cls,
        graphs: Any,
        values: str | Sequence[str] = "x",
        coordinates: str | bool | None = None,
        edge_lengths: str | bool | None = None,
    ) -> Signals:
        """One graph of NetworkX or a list; vertices are numbered in the order of `graph.nodes`.

        Args:
            graphs: Directions of edges are ignored, with a warning.
            values: Name or names of the node attributes that hold the values.
            coordinates: The node attribute that holds coordinates. None: none, with a warning if there is a
                `pos`. False: none, without a warning.
            edge_lengths: The edge attribute that holds lengths. None: all edges have length 1, with a warning
                if there is a `weight`. False: the same without a warning.

        >>> import networkx as nx
        >>> graph = nx.path_graph(4)
        >>> nx.set_node_attributes(graph, dict(graph.degree()), "degree")
        >>> Signals.from_networkx([graph], values="degree").values[:, 0].tolist()
        [1.0, 2.0, 2.0, 1.0]
        """
        return cls.from_graphs(*read_networkx(graphs, values, coordinates, edge_lengths))

    def to_pyg(self) -> list[Any]:
        """One PyTorch Geometric `Data` per signal, with lengths as `edge_length`; needs `gcgp[graphs]`."""
        return to_pyg(self)

    @classmethod
    def concatenate(cls, parts: Sequence[Signals]) -> Signals:
        """All signals of all parts, in order."""
        if not parts:
            raise ValueError("signals: nothing to concatenate")
        for i, part in enumerate(parts):
            if not isinstance(part, Signals):
                raise TypeError(f"part {i}: expected Signals, got {type(part).__name__}")
            if type(part.domains) is not type(parts[0].domains):
                raise ValueError(
                    f"part {i}: domains are {type(part.domains).__name__}, "
                    f"those of part 0 are {type(parts[0].domains).__name__}"
                )
            if part.channels != parts[0].channels:
                raise ValueError(f"part {i}: {part.channels} channels, part 0 has {parts[0].channels}")
        domains, indices = type(parts[0].domains).concatenate([part.domains for part in parts])
        return cls(
            np.concatenate([part.values for part in parts]),
            join_offsets([part.offsets for part in parts]),
            domains,
            np.concatenate([index[part.domain_of] for part, index in zip(parts, indices, strict=True)]),
        )

    def __len__(self) -> int:
        return len(self.domain_of)

    @property
    def shape(self) -> tuple[int]:
        """`(N,)`, by which scikit-learn counts samples."""
        return (len(self),)

    @property
    def channels(self) -> int:
        """Number of values per vertex."""
        return self.values.shape[1]

    @property
    def vertex_counts(self) -> Int[np.ndarray, "signals"]:
        """Number of vertices of each signal."""
        return np.diff(self.offsets)

    @property
    def domain_rows(self) -> Int[np.ndarray, "total_vertices"]:
        """For each vertex of each signal, its index among the vertices of all domains."""
        return take_segments(offsets_from_counts(self.domains.vertex_counts), self.domain_of)[0]

    def __getitem__(self, key: Any) -> Signals:
        if isinstance(key, tuple):  # scikit-learn indexes with (key, ...)
            if len(key) != 2 or key[1] is not Ellipsis:
                raise IndexError(f"signals have one axis; the index was {key!r}")
            key = key[0]
        chosen = np.atleast_1d(np.arange(len(self))[key])
        used, domain_of = np.unique(self.domain_of[chosen], return_inverse=True)
        positions, offsets = take_segments(self.offsets, chosen)
        if len(chosen) > 0 and bool(np.all(np.diff(chosen) == 1)):  # a run of signals is not copied
            values = self.values[self.offsets[chosen[0]] : self.offsets[chosen[-1] + 1]]
        else:
            values = self.values[positions]
        return Signals(values, offsets, self.domains.take(used), domain_of.reshape(-1))

    def __iter__(self) -> Iterator[Signals]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        counts = self.vertex_counts
        sizes = " to ".join(map(str, sorted({counts.min(), counts.max()}))) if len(counts) else "no"
        return (
            f"Signals({len(self)} signals on {type(self.domains).__name__.lower()}, "
            f"{sizes} vertices, {self.channels} channels)"
        )


def _checked(items: list[np.ndarray], domains: Domains, domain_of: np.ndarray) -> Signals:
    """Signals of these items, after checking their shapes and values."""
    if not items:
        raise ValueError("signals: the set is empty (0 signals)")
    for i, item in enumerate(items):
        if len(item) == 0:
            raise ValueError(f"signal {i}: values has no vertices (shape {item.shape})")
        if item.shape[1] == 0 or item.shape[1] != items[0].shape[1]:
            raise ValueError(f"signal {i}: {item.shape[1]} channels, signal 0 has {items[0].shape[1]}")
    values = np.concatenate(items)
    offsets = offsets_from_counts([len(item) for item in items])
    check_finite(values, offsets, "values")
    return Signals(values, offsets, domains, domain_of)
