"""Hostile numbers, labels and arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from benchmarks.fuzz.draws import Draw

Change = Callable[[Draw, Any], Any]
NAN, INF = float("nan"), float("inf")
SPECIAL = (
    *(NAN, INF, -INF, 1e20, -1e20, 1e19, 1e38, 3.4e38, -3.4e38, 1e40, 1e-40, 1e-46, 1e-200, 1e200, 1.7e308),
    *(5e-324, -0.0, 2.0**63, -(2.0**31)),
)
OBJECTS: tuple[Any, ...] = (None, "a", "1.5", [], {}, 10**400, 1j, NAN, b"1", np.datetime64("NaT"))
SCALES = (1e-6, 1e6, 1e-15, 1e15, 1e-20, 1e18, 1e20, 1e-40, 1e38, 1e40, 1e-150, 1e150, 1e-300, 1e300, 0.0)


def _one_special(draw: Draw, array: Any) -> Any:
    changed = np.array(array, dtype=np.float64)
    if changed.size:
        changed.reshape(-1)[draw.integer(0, changed.size - 1)] = draw.value("value", SPECIAL)
    return changed


def _scaled(draw: Draw, array: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float64) * draw.value("factor", SCALES)


def _one_scaled(draw: Draw, array: Any) -> Any:
    changed = np.array(array, dtype=np.float64)
    if changed.ndim and len(changed):
        with np.errstate(all="ignore"):
            changed[draw.integer(0, len(changed) - 1)] *= draw.value("factor of one", SCALES)
    return changed


def _shifted(draw: Draw, array: Any) -> Any:
    return np.asarray(array, dtype=np.float64) + draw.value("shift", (1e3, -1e8, 1e16, 1e30, 1e38))


def _repeated(draw: Draw, array: Any) -> Any:
    return np.repeat(np.asarray(array)[:1], len(array), axis=0)


def _sparse_values(draw: Draw, array: Any) -> Any:
    array = np.array(array, dtype=np.float64)
    array[draw.rng.random(array.shape) < 0.9] = 0.0
    return array


MAGNITUDES: dict[str, Change] = {
    "one special value": _one_special,
    "scaled": _scaled,
    "one item scaled": _one_scaled,
    "shifted": _shifted,
    "constant": lambda draw, array: np.full(np.shape(array), draw.value("value", (0.0, 1.0, -3.5, 1e10))),
    "all the same item": _repeated,
    "mostly zero": _sparse_values,
    "wide range": lambda draw, array: array * 10.0 ** draw.rng.uniform(-8, 8, np.shape(array)),
}
"""Changes of values that keep type and shape."""


def _masked(draw: Draw, array: Any) -> Any:
    hidden = draw.rng.random(np.shape(array)) < draw.value("share hidden", (0.0, 0.2, 1.0))
    return np.ma.masked_array(array, hidden)


def _objects(draw: Draw, array: Any) -> Any:
    objects = np.array(array, dtype=object)
    if objects.size and draw.chance(0.7):
        strange = draw.value("object", OBJECTS)
        index = draw.integer(0, objects.size - 1)
        objects.reshape(-1)[index : index + 1] = _single(strange)
    return objects


def _single(item: Any) -> np.ndarray:
    array = np.empty(1, dtype=object)
    array[0] = item
    return array


def _tensor(draw: Draw, array: Any) -> Any:
    kinds = ("float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64")
    with np.errstate(all="ignore"):
        tensor = torch.as_tensor(np.array(array, dtype=np.float64)).to(
            getattr(torch, draw.value("torch dtype", kinds))
        )
    if tensor.is_floating_point() and draw.chance(0.3):
        draw.note("requires_grad")
        tensor.requires_grad_()
    if tensor.ndim == 2 and draw.chance(0.2):
        draw.note("sparse tensor")
        return tensor.detach().to_sparse()
    return tensor


def _cast(draw: Draw, array: Any) -> Any:
    numbers = ("float32", "float16", "longdouble", "int64", "uint8", "int8", "bool", "complex128")
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.asarray(array, dtype=np.float64)).astype(
            draw.value("dtype", (*numbers, "str", "bytes"))
        )


def _table(draw: Draw, array: Any) -> Any:
    array = np.asarray(array)
    if array.ndim == 1:
        return pd.Series(array, index=range(5, 5 + len(array)))
    if array.ndim == 2:
        return pd.DataFrame(array)
    return [pd.DataFrame(item) if np.ndim(item) == 2 else item for item in array]


def _sparse_matrix(draw: Draw, array: Any) -> Any:
    array = np.asarray(array)
    if array.ndim == 2:
        kind = draw.named("format", {"csr": scipy.sparse.csr_array, "coo": scipy.sparse.coo_matrix})
        return kind(array)
    return [scipy.sparse.csr_matrix(item) if np.ndim(item) == 2 else item for item in array]


CONTAINERS: dict[str, Change] = {
    "nested lists": lambda draw, array: np.asarray(array).tolist(),
    "list of arrays": lambda draw, array: list(array),
    "tuple": lambda draw, array: tuple(array),
    "generator": lambda draw, array: (item for item in array),
    "tensor": _tensor,
    "list of tensors": lambda draw, array: [_tensor(draw, item) for item in array[:2]] + list(array[2:]),
    "masked": _masked,
    "objects": _objects,
    "cast": _cast,
    "pandas": _table,
    "sparse matrix": _sparse_matrix,
    "reversed view": lambda draw, array: np.asarray(array)[::-1],
    "Fortran order": lambda draw, array: np.asfortranarray(array),
    "read-only": lambda draw, array: np.lib.stride_tricks.as_strided(np.asarray(array), writeable=False),
    "big endian": lambda draw, array: np.asarray(array, dtype=">f8"),
    "dates": lambda draw, array: np.zeros(np.shape(array), dtype="datetime64[s]"),
    "record array": lambda draw, array: np.zeros(np.shape(array), dtype=[("a", "f8"), ("b", "i4")]),
    "other object": lambda draw, array: draw.value(
        "object",
        (*OBJECTS, 3, 2.5, "text", {"a": 1}, set(), object, True, range(3), ()),
    ),
}
"""The same numbers in other containers and types."""


def _ragged(draw: Draw, array: Any) -> Any:
    items = list(array)
    if items:
        index = draw.integer(0, len(items) - 1)
        items[index] = items[index][:-1] if np.ndim(items[index]) else [items[index]]
    return items


SHAPES: dict[str, Change] = {
    "axis in front": lambda draw, array: np.asarray(array)[None],
    "axis at the end": lambda draw, array: np.asarray(array)[..., None],
    "two axes at the end": lambda draw, array: np.asarray(array)[..., None, None],
    "flat": lambda draw, array: np.ravel(array),
    "transposed": lambda draw, array: np.asarray(array).T,
    "empty": lambda draw, array: np.asarray(array)[:0],
    "empty last axis": lambda draw, array: np.asarray(array)[..., :0],
    "one item": lambda draw, array: np.asarray(array)[:1],
    "one item fewer": lambda draw, array: np.asarray(array)[:-1],
    "first item alone": lambda draw, array: np.asarray(array)[0] if len(array) else array,
    "a number": lambda draw, array: np.float64(1.0),
    "doubled": lambda draw, array: np.concatenate([array, array]),
    "ragged": _ragged,
}
"""The same numbers in other shapes."""


def hostile(draw: Draw, name: str, array: Any, probability: float = 0.5) -> Any:
    """The array with changed values, shape or container; unchanged with probability `1 - probability`."""
    if not draw.chance(probability):
        return array
    with np.errstate(all="ignore"):
        for changes, share in ((MAGNITUDES, 0.5), (SHAPES, 0.25), (CONTAINERS, 0.4)):
            if draw.chance(share):
                array = draw.apply(name, changes, array)
            if not isinstance(array, np.ndarray) or array.ndim == 0:
                break
    return array


def scaled_only(draw: Draw, name: str, array: Any, probability: float = 0.5) -> Any:
    """The array with other values, in the same shape and type."""
    return draw.apply(name, MAGNITUDES, array) if draw.chance(probability) else array


LABELS: dict[str, Callable[[Draw, int], Any]] = {
    "two classes": lambda draw, count: [0, 1] * (count // 2) + [0] * (count % 2),
    "texts": lambda draw, count: (["a", "b", "c"] * count)[:count],
    "random integers": lambda draw, count: draw.rng.integers(0, 3, count),
    "one class": lambda draw, count: np.zeros(count, dtype=int),
    "one signal per class": lambda draw, count: np.arange(count),
    "one signal in a class": lambda draw, count: np.arange(count) == 0,
    "mixed types": lambda draw, count: ([0, "a", 2.5, (1, 2), None, b"x", 1j] * count)[:count],
    "tuples": lambda draw, count: ([(0, 1), (1, 0)] * count)[:count],
    "one-element tensors": lambda draw, count: [torch.tensor([n % 2]) for n in range(count)],
    "tensor": lambda draw, count: torch.arange(count) % 2,
    "column": lambda draw, count: (np.arange(count) % 2)[:, None],
    "one-hot": lambda draw, count: np.eye(2)[np.arange(count) % 2],
    "NaN among numbers": lambda draw, count: [NAN, *(n % 2 for n in range(count - 1))],
    "infinity among numbers": lambda draw, count: [INF, *(n % 2 for n in range(count - 1))],
    "None among numbers": lambda draw, count: [None, *(n % 2 for n in range(count - 1))],
    "masked": lambda draw, count: np.ma.masked_array(np.arange(count) % 2, np.arange(count) == 1),
    "categories": lambda draw, count: pd.Series((["x", "y"] * count)[:count], dtype="category"),
    "missing category": lambda draw, count: pd.Series([None, *["x", "y"] * count][:count], dtype="category"),
    "nullable integers": lambda draw, count: pd.array([None, *[0, 1] * count][:count], dtype="Int64"),
    "unhashable": lambda draw, count: [[0], [1]] * (count // 2),
    "dictionaries": lambda draw, count: [{}] * count,
    "dates": lambda draw, count: np.arange(count).astype("datetime64[D]"),
    "huge integers": lambda draw, count: ([10**30, -(10**30)] * count)[:count],
    "continuous": lambda draw, count: draw.rng.normal(size=count),
    "too few": lambda draw, count: [0, 1] * max(count // 2 - 1, 0),
    "too many": lambda draw, count: [0, 1] * count,
    "nothing": lambda draw, count: draw.value("y", (None, [], 0, "text", {}, set(), np.zeros((0, 2)))),
}
"""Labels for a given number of signals."""
