"""From what people pass to signals, class numbers and bytes; every error before any long work."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
import torch

from gcgp._runtime.arrays import as_list, is_missing, plain_array
from gcgp.domain import Graphs, Signals
from gcgp.domain.adapters import is_mesh, is_networkx
from gcgp.domain.pyg import is_pyg

NO_VALUES = (
    "X: got meshes, which have no values on their vertices; put a descriptor before the estimator, as in "
    "make_pipeline(GeometryVectors(), GCGPClassifier()), or use Signals.on_meshes(values, meshes)"
)


def as_signals(X: Any) -> Signals:
    """Signals from signals, images, or graphs of PyTorch Geometric or NetworkX; or from a list of these."""
    if isinstance(X, Signals):
        if len(X) == 0:
            raise ValueError("X: the set is empty (0 signals)")
        return X
    if is_pyg(X) or isinstance(X, torch.utils.data.DataLoader):
        return Signals.from_pyg(X)
    if is_networkx(X):
        return Signals.from_networkx(X)
    if is_mesh(X):
        raise ValueError(NO_VALUES)
    if hasattr(X, "__array__") and not hasattr(X, "ndim"):
        X = plain_array(X, "X: values are no rectangular array")
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
    return _of_items(as_list(X, error))


def _of_items(items: list[Any]) -> Signals:
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
    for belongs, read in readers:
        fits = [belongs(item) for item in items]
        if all(fits):
            return read(items)
        if any(fits):
            other = fits.index(not fits[0])
            raise TypeError(
                f"X[{other}] is a {type(items[other]).__name__}, but X[0] a {type(items[0]).__name__}; "
                "all items must be of one type"
            )
    return Signals.from_images(items)


def check_same_graphs(graphs: Graphs, dimensions: int, edge_lengths: bool | None) -> None:
    """Raise unless coordinates and edge lengths are present as they were in training.

    `dimensions` are those of the coordinates of training, 0 without any; `edge_lengths` says whether edges
    had lengths, and is None where the chart does not use them.
    """
    if graphs.dimensions != dimensions:
        raise ValueError(
            f"X: graphs {_coordinates_text(graphs.dimensions)}, but training had graphs "
            f"{_coordinates_text(dimensions)}; distances would be measured differently"
        )
    given = graphs.edge_lengths is not None
    if edge_lengths is not None and given != edge_lengths:
        raise ValueError(
            f"X: graphs {_with(given)} edge_lengths (lengths), but training had graphs "
            f"{_with(edge_lengths)}; distances along edges would be measured differently"
        )


def _coordinates_text(dimensions: int) -> str:
    return f"with {dimensions}-D coordinates" if dimensions else "without coordinates"


def _with(present: bool) -> str:
    return "with" if present else "without"


def encode_labels(y: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes and the number of each label's class; labels are anything hashable.

    Classes are sorted where they can be compared, else in order of appearance.
    """
    labels = labels_of(y)
    check_length(labels, count)
    if labels.dtype.kind != "O":
        if labels.dtype.kind in "fc" and not np.isfinite(labels).all():  # infinite: NaN is missing
            place = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"y[{place}] is {labels[place]}; a label must be finite")
        classes, codes = np.unique(labels, return_inverse=True)
        fractions = labels.dtype.kind == "f" and (labels != np.floor(labels)).any()
        if fractions and len(classes) > max(2, count / 2):
            raise ValueError(
                f"y: Unknown label type: continuous ({len(classes)} different numbers for {count} signals, "
                f"among them {labels[labels != np.floor(labels)][0]}); use GCGPRegressor"
            )
    else:
        seen: dict[Hashable, int] = {}
        for i, label in enumerate(labels):
            try:
                seen.setdefault(label, len(seen))
            except TypeError as error:
                raise ValueError(f"y[{i}] is {label!r}, which is not hashable") from error
        try:
            ordered = sorted(seen)  # type: ignore[type-var]
        except TypeError:
            ordered = list(seen)
        numbers = {label: i for i, label in enumerate(ordered)}
        classes = object_array(ordered)
        codes = np.array([numbers[label] for label in labels])
    if len(classes) < 2:
        raise ValueError(f"y: one class only (all {count} labels are {classes[0]}); need two at least")
    return classes, codes


def labels_of(y: Any) -> np.ndarray:
    """Labels as a one-dimensional array; a list of tuples stays a list of tuples.

    Tensors and arrays of one element, alone or in a list, are the number they hold. A missing label (None,
    NaN, pandas' NA, masked) is a ValueError that names its signal.
    """
    if y is None:
        raise ValueError("y: labels are required, got None")
    error = f"y: expected a list or array of labels, got {type(y).__name__}"
    listed = hasattr(y, "__array__") or isinstance(y, Iterable)
    if not listed or isinstance(y, (str, bytes, Mapping, AbstractSet)) or scipy.sparse.issparse(y):
        raise TypeError(error)
    texts: tuple[type, ...] = (str,)
    if hasattr(y, "__array__"):
        array = plain_array(y, error)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(f"y: expected one label per signal, got shape {array.shape}")
        if array.dtype.kind == "V":
            raise ValueError(f"y: expected one label per signal, got records of dtype {array.dtype}")
        if array.dtype.kind != "O":
            lost = np.ma.getmaskarray(array) | (np.isnan(array) if array.dtype.kind in "fcmM" else False)
            if lost.any():
                raise _no_label(array, int(np.argmax(lost)))
            return np.asarray(array)
        texts = ()  # texts in an array of objects, such as a pandas column, stay objects
        y = array
    items = [_one_label(item, i) for i, item in enumerate(as_list(y, error))]
    for i, item in enumerate(items):
        if is_missing(item):
            raise _no_label(items, i)
    for kinds in (texts, (bool, np.bool_), (int, float, np.number)):
        if all(isinstance(item, kinds) for item in items):
            return np.asarray(items)
    return object_array(items)


def _one_label(item: Any, number: int) -> Any:
    """The number that a tensor or array of one element holds; anything else as it is."""
    if not isinstance(item, (torch.Tensor, np.ndarray)) or item is np.ma.masked:
        return item
    array = plain_array(item, f"y[{number}] is no label")
    if array.size != 1:
        raise ValueError(f"y[{number}] has shape {array.shape}: expected one label per signal")
    return array.reshape(-1)[0]


def _no_label(labels: Any, number: int) -> ValueError:
    label = labels[number]
    text = "masked" if label is np.ma.masked else str(label)
    return ValueError(f"y[{number}] is {text}: signal {number} has no label")


def object_array(items: Sequence[Any]) -> np.ndarray:
    """A one-dimensional array of objects, whatever these are."""
    array = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        array[i] = item
    return array


def as_targets(y: Any, count: int) -> np.ndarray:
    """Regression targets `[N]` in float64."""
    targets = labels_of(y)
    check_length(targets, count)
    if targets.dtype.kind not in "fiub":
        for i, target in enumerate(targets):
            if not isinstance(target, Real):
                raise ValueError(f"y[{i}] is {target!r}; targets must be real numbers")
    targets = targets.astype(np.float64)
    if not np.isfinite(targets).all():
        place = int(np.argmin(np.isfinite(targets)))
        raise ValueError(f"y[{place}] is {targets[place]}; it must be finite")
    return targets


def check_length(labels: np.ndarray, count: int) -> None:
    """Raise unless there is one label a signal."""
    if len(labels) != count:
        raise ValueError(f"y: {len(labels)} labels for {count} signals")


UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def as_bytes(limit: Any) -> int:
    """A number of bytes from a number or a text such as `"500 MB"`."""
    if isinstance(limit, (int, np.integer)) and not isinstance(limit, bool) and limit > 0:
        return int(limit)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B)?\s*", str(limit), re.IGNORECASE)
    if found is None or not isinstance(limit, str) or float(found[1]) <= 0:
        raise ValueError(f"memory_limit={limit!r}: expected bytes, or a text such as '500 MB'")
    return int(float(found[1]) * UNITS[(found[2] or "").upper()])


def as_device(name: Any) -> torch.device:
    """The device of that name, if torch has it here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={name!r}: torch has no such device here ({reason})") from error
    if device.type == "meta":
        raise ValueError(f"device={name!r}: tensors of this device hold no numbers")
    return device
