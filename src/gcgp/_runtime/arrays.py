"""Arrays from whatever users pass as numbers; errors name the item, the field and the value."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import scipy.sparse
import torch


def is_missing(item: Any) -> bool:
    """Whether the item stands for a missing value: None, NaN, NaT, pandas' NA, or a masked entry."""
    if item is None or item is np.ma.masked or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, (np.generic, numbers.Number)) and bool(item != item)


def tensor_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor on any device, with gradients or without, as an array; half precision becomes float32."""
    if tensor.is_meta:
        raise ValueError("a tensor on the device 'meta' has a shape but no values")
    plain = tensor.detach().cpu()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    if plain.dtype.is_floating_point and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()
    return plain.resolve_conj().resolve_neg().numpy()


def as_list(given: Any, error: str) -> list[Any]:
    """The items of an iterable; a TypeError with this message if they cannot be had."""
    try:
        return list(given)
    except Exception as cause:  # whatever the iterator of a foreign object raises
        raise TypeError(error) from cause


def plain_array(item: Any, error: str) -> np.ndarray:
    """An array, masked or not, from what NumPy can read; a ValueError with this message from the rest."""
    try:
        return tensor_array(item) if isinstance(item, torch.Tensor) else np.asanyarray(item)
    except Exception as cause:  # whatever the __array__ of a foreign object raises
        raise ValueError(f"{error} ({cause})") from cause


def as_array(item: Any, name: str, field: str = "values", stacked: str = "") -> np.ndarray:
    """Numbers as an array: of tensors, sparse matrices, tables, or (nested) lists.

    `stacked` names the items of the first axis, if errors are to name one of these instead of `name`.
    """
    if scipy.sparse.issparse(item):
        return item.toarray()
    special = (torch.Tensor, np.ma.MaskedArray)  # which NumPy would fail on, or whose mask it would drop
    if isinstance(item, (list, tuple)) and any(isinstance(part, special) for part in item):
        item = [as_array(part, f"{name}: {field}[{i}]", field) for i, part in enumerate(item)]
    array = plain_array(item, f"{name}: {field} are no rectangular array")
    mask = np.ma.getmask(array)
    if mask is not np.ma.nomask and mask.any():
        place = np.argwhere(mask)[0].tolist()
        name, place = (f"{stacked} {place[0]}", place[1:]) if stacked and place else (name, place)
        raise ValueError(f"{name}: {field} at {place} is masked; fill masked values or leave them out")
    array = np.asarray(array)
    return _from_objects(array, name, field) if array.dtype.kind == "O" else array


def _from_objects(array: np.ndarray, name: str, field: str) -> np.ndarray:
    """Integers or floats from an array of Python numbers, such as a table with missing values."""
    flat = array.reshape(-1).tolist()
    for i, item in enumerate(flat):
        place = [int(index) for index in np.unravel_index(i, array.shape)]
        if is_missing(item):
            raise ValueError(f"{name}: {field} at {place} is {item}; it must be finite")
        if not isinstance(item, numbers.Real):
            raise ValueError(f"{name}: {field} at {place} is {type_text(item)}; it must be a real number")
    whole = all(isinstance(item, numbers.Integral) for item in flat)
    try:
        return np.array(flat, dtype=np.int64 if whole else np.float64).reshape(array.shape)
    except OverflowError as error:
        raise ValueError(f"{name}: {field} are too large ({error})") from error


def type_text(item: Any) -> str:
    """The type of an object in words that a user knows."""
    if scipy.sparse.issparse(item):
        return f"a sparse matrix of shape {item.shape}"
    return f"a {type(item).__name__}"
