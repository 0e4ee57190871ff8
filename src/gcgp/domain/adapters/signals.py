"""Signals from whatever users pass as X."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import scipy.sparse
from torch.utils.data import DataLoader

from gcgp._runtime.arrays import as_list, plain_array
from gcgp.domain.adapters.meshes import as_meshes, is_mesh
from gcgp.domain.adapters.networkx import is_networkx
from gcgp.domain.adapters.pyg import is_pyg
from gcgp.domain.signals import Signals
from gcgp.mesh.mesh import Mesh

NO_VALUES = (
    "X: got meshes, which have no values on their vertices; fit an estimator to a list of meshes, compute "
    "values with a descriptor such as GeometryVectors(), or use Signals.on_meshes(values, meshes)"
)


def as_meshes_or_signals(X: Any) -> Signals | list[Mesh]:
    """A list of meshes from a list or array of `Mesh` or trimesh objects; signals from anything else."""
    listed = isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype == object)
    if not listed or not any(is_mesh(item) for item in X):
        return as_signals(X)
    for i, item in enumerate(X):
        if not is_mesh(item):
            raise ValueError(
                f"X[{i}]: expected a Mesh, got {type(item).__name__}, but other items are meshes"
            )
    return as_meshes(X)


def as_signals(X: Any) -> Signals:
    """Signals from signals, images, or graphs of PyTorch Geometric or NetworkX; or from a list of these."""
    if isinstance(X, Signals):
        if len(X) == 0:
            raise ValueError("X: the set is empty (0 signals)")
        return X
    if is_pyg(X) or isinstance(X, DataLoader):
        return Signals.from_pyg(X)
    if is_networkx(X):
        return Signals.from_networkx(X)
    if is_mesh(X):
        raise ValueError(NO_VALUES)
    if hasattr(X, "__array__") and not hasattr(X, "ndim"):
        X = plain_array(X, "X: values are not a rectangular array")
    if scipy.sparse.issparse(X) or (hasattr(X, "__array__") and X.ndim == 2):
        raise ValueError(
            f"X: got a table of shape {tuple(X.shape)}; expected Signals, or images "
            "[N, H, W] or [N, H, W, C]. For values on a graph use Signals.on_graph(values, edges)."
        )
    if hasattr(X, "__array__") and not (X.ndim == 1 and X.dtype == object):
        return Signals.from_images(X)
    error = f"X: expected Signals or an array of images, got {type(X).__name__}"
    if not isinstance(X, Iterable) or isinstance(X, (str, bytes, Mapping, AbstractSet)):
        raise ValueError(error)
    return _from_items(as_list(X, error))


def _from_items(items: list[Any]) -> Signals:
    if not items:
        raise ValueError("X: the set is empty (0 signals)")
    if any(is_mesh(item) for item in items):
        raise ValueError(NO_VALUES)
    if any(scipy.sparse.issparse(item) for item in items):
        raise TypeError(
            "X: got sparse matrices; for graphs use Signals.from_graphs(values, edges), whose edges may be "
            "sparse adjacency matrices, and for images use .toarray()"
        )
    readers: list[tuple[Callable[[Any], bool], Callable[[Any], Signals]]] = [
        (lambda item: isinstance(item, Signals), Signals.concatenate),
        (is_pyg, Signals.from_pyg),
        (is_networkx, Signals.from_networkx),
    ]
    for matches, read in readers:
        matched = [matches(item) for item in items]
        if all(matched):
            return read(items)
        if any(matched):
            other = matched.index(not matched[0])
            raise TypeError(
                f"X[{other}] is a {type(items[other]).__name__}, but X[0] a {type(items[0]).__name__}; "
                "all items must be of one type"
            )
    return Signals.from_images(items)
