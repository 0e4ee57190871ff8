"""Constructor arguments and labels as JSON and back. What is read is checked before it is built."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from torch import Tensor

from gcgp._runtime.options import Options
from gcgp.descriptors import SpectralDescriptor
from gcgp.io import checks
from gcgp.io.classes import argument_names, describe_object, find_class
from gcgp.io.kernels import describe_kernel, rebuild_kernel
from gcgp.io.tensors import module_state
from gcgp.io.weightings import describe_weighting, rebuild_weighting
from gcgp.layers import Layer
from gcgp.weighting import Weighting

MAX_ARRAY_BYTES = 16 << 20
DTYPE_PATTERN = r"bool|u?int(8|16|32|64)|float(16|32|64)|[<>][iuf][248]|[<>]U\d{1,7}"
Validated = TypeVar("Validated", Options, SpectralDescriptor, Layer)
VALUE_KINDS = ("options", "descriptor", "layer", "weighting", "kernel", "array", "list", "tuple")


def plain_parameter(name: str, value: Any) -> Any:
    """A constructor argument as JSON; everything but scalars is an object with the key `is`."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return plain_parameter(name, value.item())
    if isinstance(value, (Path, torch.device)):
        return str(value)
    if isinstance(value, Options):
        return {"is": "options", **describe_instance(value)}
    if isinstance(value, SpectralDescriptor):
        return {"is": "descriptor", **describe_instance(value)}
    if isinstance(value, Layer):
        return {"is": "layer", **describe_instance(value)}
    if isinstance(value, Weighting):
        return {"is": "weighting", **describe_weighting(value)}
    if isinstance(value, Kernel):
        state = {key: plain_parameter(key, tensor) for key, tensor in module_state(value).items()}
        return {"is": "kernel", "kernel": describe_kernel(value), "state": state}
    if isinstance(value, (np.ndarray, Tensor)):
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        if re.fullmatch(DTYPE_PATTERN, str(array.dtype)):
            return {"is": "array", "dtype": str(array.dtype), "items": array.tolist()}
        return plain_parameter(name, array.tolist())
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {"is": kind, "items": [plain_parameter(name, item) for item in value]}
    if isinstance(value, np.random.RandomState):
        return None  # fitting has changed its state, and the fitted model does not need it
    raise ValueError(f"{name}={value!r} cannot be written to a model file")


def describe_instance(instance: BaseEstimator) -> dict[str, Any]:
    """The class and the constructor arguments of an object with scikit-learn's parameter contract."""
    parameters = instance.get_params(deep=False).items()
    return describe_object(instance, {name: plain_parameter(name, value) for name, value in parameters})


def parameter(where: str, value: Any, nesting: int = checks.MAX_NESTING) -> Any:
    """The constructor argument that `plain_parameter` described."""
    if not isinstance(value, dict):
        return checks.as_scalar(where, value)
    if nesting == 0:
        raise checks.invalid(where, value, "fewer nested objects")
    kind = checks.as_choice(f"{where}.is", value.get("is"), VALUE_KINDS)
    content = {key: item for key, item in value.items() if key != "is"}
    if kind == "options":
        return _with_parameters(where, content, Options, nesting - 1)
    if kind == "descriptor":
        return _with_parameters(where, content, SpectralDescriptor, nesting - 1)
    if kind == "layer":
        return _with_parameters(where, content, Layer, nesting - 1)
    if kind == "weighting":
        return rebuild_weighting(where, content)
    if kind == "kernel":
        return _kernel(where, content)
    if kind == "array":
        return _array(where, content)
    listed = checks.as_list(f"{where}.items", checks.as_object(where, content, ("items",))["items"])
    items = [parameter(f"{where}.items[{i}]", item, nesting - 1) for i, item in enumerate(listed)]
    return tuple(items) if kind == "tuple" else items


def rebuild_parameters(
    where: str, kind: type, described: Any, nesting: int = checks.MAX_NESTING
) -> dict[str, Any]:
    """Described constructor arguments of a class."""
    checks.as_object(where, described, (), argument_names(kind))
    return {name: parameter(f"{where}.{name}", value, nesting) for name, value in described.items()}


def _with_parameters(where: str, description: Any, base: type[Validated], nesting: int) -> Validated:
    """An instance of a subclass of `base` that `describe_instance` described."""
    checks.as_object(where, description, ("class", "parameters"), ("defined_in",))
    kind = base if description["class"] == base.__name__ else find_class(where, description, base)
    instance = kind(**rebuild_parameters(f"{where}.parameters", kind, description["parameters"], nesting))
    try:
        instance.validate()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error
    return instance


def _kernel(where: str, description: Any) -> Kernel:
    checks.as_object(where, description, ("kernel", "state"))
    described = checks.as_object(f"{where}.state", description["state"], (), description["state"])
    state = {}
    for key, value in described.items():
        array = _array(f"{where}.state", {k: item for k, item in dict(value).items() if k != "is"})
        state[key] = torch.from_numpy(array)
    return rebuild_kernel(f"{where}.kernel", description["kernel"], state)


def _array(where: str, description: Any) -> np.ndarray:
    """An array of numbers or strings whose values the dtype represents exactly."""
    checks.as_object(where, description, ("dtype", "items"))
    dtype, items = description["dtype"], description["items"]
    if not isinstance(dtype, str) or not re.fullmatch(DTYPE_PATTERN, dtype):
        raise checks.invalid(f"{where}.dtype", dtype, "the name of a dtype of numbers or strings")
    array: Any = np.asarray(checks.as_nested(f"{where}.items", items), dtype=object)
    if array.size * np.dtype(dtype).itemsize > MAX_ARRAY_BYTES:
        raise checks.invalid(f"{where}.dtype", dtype, f"at most {MAX_ARRAY_BYTES} bytes in total")
    with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError, OverflowError):
        converted: np.ndarray = array.astype(dtype)
        if np.array_equal(converted, array):
            return converted
    raise checks.invalid(f"{where}.items", items, f"lists of equal lengths, of values of dtype {dtype}")


def rebuild_labels(where: str, description: Any) -> np.ndarray:
    """Class labels that `plain_parameter` described: strings, numbers, None, and tuples of these."""
    described = parameter(where, description)
    if isinstance(described, list):  # of an array of objects
        described = np.fromiter(described, dtype=object, count=len(described))
    if not isinstance(described, np.ndarray) or described.ndim != 1 or not _are_labels(described.tolist()):
        raise checks.invalid(where, description, "a list of strings, numbers, or tuples of these")
    if len(set(described.tolist())) != len(described) or len(described) < 2:
        raise checks.invalid(where, description, "at least two labels, all different")
    return described


def _are_labels(items: list[Any] | tuple[Any, ...]) -> bool:
    scalars = (str, bool, int, float, type(None))
    return all(_are_labels(item) if isinstance(item, tuple) else isinstance(item, scalars) for item in items)
