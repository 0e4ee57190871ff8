"""Labels and targets that users pass, checked and encoded before any long computation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
import torch

from gcgp._runtime.arrays import as_list, is_missing, plain_array


def encode_labels(y: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and the index of the class of each label; labels are any hashable objects.

    Classes are sorted if they can be compared, otherwise in order of appearance.
    """
    labels = labels_of(y)
    check_length(labels, count)
    if labels.dtype.kind != "O":
        if labels.dtype.kind in "fc" and not np.isfinite(labels).all():  # infinite: NaN is missing
            index = int(np.argmin(np.isfinite(labels)))
            raise ValueError(f"y[{index}] is {labels[index]}; a label must be finite")
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
        raise ValueError(f"y: one class only (all {count} labels are {classes[0]}); need at least two")
    return classes, codes


def labels_of(y: Any) -> np.ndarray:
    """Labels as a one-dimensional array; tuples stay tuples.

    Tensors and arrays of one element stand for that element. A missing label (None, NaN, pandas' NA, masked)
    is a ValueError that names its signal.
    """
    if y is None:
        raise ValueError("y: labels are required, got None")
    error = f"y: expected a list or array of labels, got {type(y).__name__}"
    listed = hasattr(y, "__array__") or isinstance(y, Iterable)
    if not listed or isinstance(y, (str, bytes, Mapping, AbstractSet)) or scipy.sparse.issparse(y):
        raise TypeError(error)
    text_types: tuple[type, ...] = (str,)
    if hasattr(y, "__array__"):
        array = plain_array(y, error)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(f"y: expected one label per signal, got shape {array.shape}")
        if array.dtype.kind == "V":
            raise ValueError(f"y: expected one label per signal, got records of dtype {array.dtype}")
        if array.dtype.kind != "O":
            missing = np.ma.getmaskarray(array) | (np.isnan(array) if array.dtype.kind in "fcmM" else False)
            if missing.any():
                raise _missing_label(array, int(np.argmax(missing)))
            return np.asarray(array)
        text_types = ()  # strings in an array of objects, such as a pandas column, stay objects
        y = array
    items = [_single_label(item, i) for i, item in enumerate(as_list(y, error))]
    for i, item in enumerate(items):
        if is_missing(item):
            raise _missing_label(items, i)
    for kinds in (text_types, (bool, np.bool_), (int, float, np.number)):
        if all(isinstance(item, kinds) for item in items):
            return np.asarray(items)
    return object_array(items)


def _single_label(item: Any, index: int) -> Any:
    """The element of a tensor or array with one element; anything else unchanged."""
    if not isinstance(item, (torch.Tensor, np.ndarray)) or item is np.ma.masked:
        return item
    array = plain_array(item, f"y[{index}] is not a label")
    if array.size != 1:
        raise ValueError(f"y[{index}] has shape {array.shape}: expected one label per signal")
    return array.reshape(-1)[0]


def _missing_label(labels: Any, number: int) -> ValueError:
    label = labels[number]
    text = "masked" if label is np.ma.masked else str(label)
    return ValueError(f"y[{number}] is {text}: signal {number} has no label")


def object_array(items: Sequence[Any]) -> np.ndarray:
    """A one-dimensional array of arbitrary objects."""
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
        index = int(np.argmin(np.isfinite(targets)))
        raise ValueError(f"y[{index}] is {targets[index]}; it must be finite")
    return targets


def check_length(labels: np.ndarray, count: int) -> None:
    """Raise unless there is one label per signal."""
    if len(labels) != count:
        raise ValueError(f"y: {len(labels)} labels for {count} signals")
