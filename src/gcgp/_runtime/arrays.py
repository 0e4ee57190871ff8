"""Arrays from whatever users pass as numbers. Errors name the item, the field and the value."""

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
    """A tensor on any device, with or without gradients, as an array; half precision becomes float32."""
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
    """The items of an iterable; a TypeError with this message if it cannot be iterated."""
    try:
        return list(given)
    except Exception as cause:  # iterators of other libraries may raise anything
        raise TypeError(error) from cause


def plain_array(item: Any, error: str) -> np.ndarray:
    """The item as an array, which may be masked; a ValueError with this message if NumPy cannot read it."""
    try:
        return tensor_array(item) if isinstance(item, torch.Tensor) else np.asanyarray(item)
    except Exception as cause:  # __array__ of other libraries may raise anything
        raise ValueError(f"{error} ({cause})") from cause


def as_array(item: Any, name: str, field: str = "values", stacked: str = "") -> np.ndarray:
    """Numbers as an array, from tensors, sparse matrices, tables or (nested) lists.

    `stacked` is the name of the items along the first axis; errors then name the item and not `name`.
    """
    if scipy.sparse.issparse(item):
        return item.toarray()
    special = (torch.Tensor, np.ma.MaskedArray)  # NumPy fails on lists of tensors and drops masks
    if isinstance(item, (list, tuple)) and any(isinstance(part, special) for part in item):
        item = [as_array(part, f"{name}: {field}[{i}]", field) for i, part in enumerate(item)]
    array = plain_array(item, f"{name}: {field} are not a rectangular array")
    mask = np.ma.getmask(array)
    if mask is not np.ma.nomask and mask.any():
        index = np.argwhere(mask)[0].tolist()
        if stacked and index:
            name, index = f"{stacked} {index[0]}", index[1:]
        raise ValueError(f"{name}: {field} at {index} is masked; fill masked values or leave them out")
    array = np.asarray(array)
    return _from_objects(array, name, field) if array.dtype.kind == "O" else array


def as_float(item: Any, name: str, field: str = "values") -> np.ndarray:
    """Real numbers as floats: float32 and float64 unchanged, all others as float32."""
    array = _as_real(item, name, field)
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float64 if array.dtype.kind == "f" and array.itemsize >= 8 else np.float32)


def as_float64(item: Any, name: str, field: str) -> np.ndarray:
    """Real numbers in float64."""
    return _as_real(item, name, field).astype(np.float64)


def check_vertex_indices(indices: np.ndarray, vertices: int, name: str, field: str) -> None:
    """Raise a ValueError that names the first row with an index that is not from 0 to `vertices` - 1."""
    outside = (indices < 0) | (indices >= vertices)
    if outside.any():
        row = int(np.argwhere(outside)[0, 0])
        raise ValueError(
            f"{name}: {field}[{row}] is {indices[row].tolist()}, but its vertices are 0 to {vertices - 1}"
        )


def _as_real(item: Any, name: str, field: str) -> np.ndarray:
    array = as_array(item, name, field)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: {field} must be real numbers, got dtype {array.dtype}")
    return array


def _from_objects(array: np.ndarray, name: str, field: str) -> np.ndarray:
    """Integers or floats from an array of Python numbers, such as a table with missing values."""
    flat = array.reshape(-1).tolist()
    for i, item in enumerate(flat):
        index = [int(k) for k in np.unravel_index(i, array.shape)]
        if is_missing(item):
            raise ValueError(f"{name}: {field} at {index} is {item}; it must be finite")
        if not isinstance(item, numbers.Real):
            raise ValueError(f"{name}: {field} at {index} is {type_text(item)}; it must be a real number")
    integers = all(isinstance(item, numbers.Integral) for item in flat)
    try:
        return np.array(flat, dtype=np.int64 if integers else np.float64).reshape(array.shape)
    except OverflowError as error:
        raise ValueError(f"{name}: {field} are too large ({error})") from error


def type_text(item: Any) -> str:
    """The type of an object, for error messages."""
    if scipy.sparse.issparse(item):
        return f"a sparse matrix of shape {item.shape}"
    return f"a {type(item).__name__}"
