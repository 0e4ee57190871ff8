"""Options, weightings and labels as JSON and back. What comes back is checked before it is built."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gcgp import weighting as weightings
from gcgp.estimators.validation import object_array
from gcgp.io.checked_json import (
    as_choice,
    as_flag,
    as_integer,
    as_list,
    as_numbers,
    as_object,
    as_plain,
    as_scalar,
    as_text,
    invalid,
)
from gcgp.io.kernels import build, check, describe, load_state
from gcgp.weighting import Weighting

LIBRARY: dict[str, type[Weighting]] = {
    name: getattr(weightings, name) for name in weightings.__all__ if name != "Weighting"
}
"""gcgp's own weightings. No class of the user takes the place of one of these."""
NUMBERS: dict[str, int] = {
    **dict.fromkeys(("radial_width", "angular_width", "along", "across", "reach"), 0),
    **dict.fromkeys(("radii", "angles"), 1),
    **dict.fromkeys(("means", "scales"), 2),
    "shear": 3,
}
"""Numerical arguments of gcgp's weightings, with the number of dimensions that they have in a file."""
SIZES = ("side", "rays")
FLAGS = ("normalize", "inside")
MAX_SIZE = 4096
MAX_ITEMS = 10**6
MAX_DEPTH = 8
"""Lists or tuples inside one another."""
MAX_LABEL = 1 << 16
"""Characters of a label."""
MAX_ARRAY_BYTES = 16 << 20
DTYPE = r"bool|u?int(8|16|32|64)|float(16|32|64)|[<>][iuf][248]|[<>]U(?P<characters>\d{1,7})|object"


def plain_parameter(name: str, value: Any) -> Any:
    """A constructor argument as JSON; weightings, kernels, arrays and lists are marked as such."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Path, torch.device)):
        return str(value)
    if isinstance(value, Weighting):
        return {"is": "weighting", **plain_weighting(value)}
    if isinstance(value, Kernel):
        state = {key: tensor.tolist() for key, tensor in value.state_dict().items()}
        return {"is": "kernel", "base": describe(value), "state": state}
    if isinstance(value, (np.ndarray, Tensor)):
        array = np.asarray(value)
        return {"is": "array", "dtype": str(array.dtype), "items": array.tolist()}
    if isinstance(value, (list, tuple)):
        return {"is": "list", "items": [plain_parameter(name, item) for item in value]}
    if isinstance(value, np.random.RandomState):
        return None  # a generator's state is spent by fitting; the fitted model needs none
    raise ValueError(f"{name}={value!r} cannot be written to a model file")


def parameter(where: str, value: Any, depth: int = MAX_DEPTH) -> Any:
    """The constructor argument that `plain_parameter` described."""
    if not isinstance(value, dict):
        return as_scalar(where, value)
    kind = as_choice(f"{where}.is", value.get("is"), ("weighting", "kernel", "array", "list"))
    if kind == "weighting":
        return checked_weighting(where, {key: item for key, item in value.items() if key != "is"})
    if kind == "kernel":
        return _kernel(where, as_object(where, value, ("is", "base", "state")))
    if kind == "array":
        as_object(where, value, ("is", "dtype", "items"))
        return plain_array(where, value["dtype"], as_plain(f"{where}.items", value["items"]))
    as_object(where, value, ("is", "items"))
    if depth == 0:
        raise invalid(where, value, "fewer nested lists")
    items = as_list(f"{where}.items", value["items"], 0, MAX_ITEMS)
    return [parameter(f"{where}.items[{i}]", item, depth - 1) for i, item in enumerate(items)]


def _kernel(where: str, value: dict[str, Any]) -> Kernel:
    if not isinstance(value["state"], dict):
        raise invalid(f"{where}.state", value["state"], "an object")
    state = {}
    for key, numbers in value["state"].items():
        array = np.asarray(numbers)
        if array.dtype.kind not in "if":
            raise invalid(f"{where}.state.{key}", numbers, "numbers")
        dtype = torch.int64 if array.dtype.kind == "i" else torch.get_default_dtype()
        state[key] = torch.as_tensor(array, dtype=dtype)
    check(value["base"], {key: tensor.shape for key, tensor in state.items()}, f"{where}.base")
    kernel = build(value["base"]).to(torch.get_default_dtype())
    load_state(kernel, state, f"{where}.state")
    return kernel


def plain_weighting(weighting: Weighting) -> dict[str, Any]:
    """A weighting as JSON; a family that is not gcgp's own with the module that defines it."""
    family = type(weighting)
    configuration = {
        name: bool(value) if name in FLAGS else value.item() if isinstance(value, np.generic) else value
        for name, value in weighting.configuration().items()
    }
    description: dict[str, Any] = {"family": family.__name__, "configuration": configuration}
    if LIBRARY.get(family.__name__) is not family:
        description["defined_in"] = _address(family)
    return description


def checked_weighting(where: str, description: Any, state: Mapping[str, Tensor] | None = None) -> Weighting:
    """The weighting of this description, with its stored state if there is one."""
    as_object(where, description, ("family", "configuration"), ("defined_in",))
    family = _family(where, description)
    signature = inspect.signature(family).parameters
    own = family in LIBRARY.values()
    configuration = as_object(f"{where}.configuration", description["configuration"], (), tuple(signature))
    state_shapes = {key: tuple(tensor.shape) for key, tensor in (state or {}).items()}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, value in configuration.items():
        field = f"{where}.configuration.{name}"
        stored = state_shapes.get(f"raw_{name}")
        if stored is not None:
            shapes[name] = as_numbers(field, value, stored).shape
        elif own and name in NUMBERS:
            shapes[name] = as_numbers(field, value, (None,) * NUMBERS[name]).shape
        elif own and name in SIZES:
            as_integer(field, value, 1, MAX_SIZE)
        elif own and name in FLAGS:
            as_flag(field, value)
        else:
            as_plain(field, value)
    if "means" in shapes and own:
        components, k = shapes["means"]
        for name, shape in (("scales", (components, k)), ("shear", (components, k, k))):
            if shapes.get(name, shape) != shape or (name == "shear" and name not in shapes):
                raise ValueError(f"{where}.configuration.{name}: expected shape {list(shape)}")
    weighting = family(**configuration)
    if state is None:
        return weighting
    dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        raise ValueError(f"{where}: the stored tensors are of {', '.join(map(str, dtypes))}")
    weighting = weighting.to(next(iter(dtypes), torch.float32))
    load_state(weighting, state, where)
    for name, value in weighting.configuration().items() if own else ():
        if name in shapes and not np.allclose(value, configuration[name], rtol=1e-3, atol=1e-6):
            raise ValueError(f"{where}.configuration.{name} does not agree with the stored tensor")
    return weighting.requires_grad_(False)


def _family(where: str, description: Mapping[str, Any]) -> type[Weighting]:
    """The class of a weighting: one of gcgp's, or the user's class that was defined where it was before."""
    name, defined = as_text(f"{where}.family", description["family"]), description.get("defined_in")
    if defined is None and name in LIBRARY:
        return LIBRARY[name]
    latest = Weighting.families.get(name)
    own = [f for f in _subclasses(Weighting) if f.__name__ == name and f not in LIBRARY.values()]
    if latest is None or not own:
        raise ValueError(
            f"{where}: the model uses the weighting {name!r}, which is not part of gcgp; "
            "import the module that defines it before loading"
        )
    if latest not in own:
        latest = own[-1]
    exact = [family for family in own if _address(family) == defined]
    if defined is not None and not exact:
        warnings.warn(
            f"{where}: the weighting {name!r} was defined in {as_text(where, defined)} when the model was "
            f"saved; {_address(latest)} is used instead",
            stacklevel=2,
        )
    return exact[-1] if exact and latest not in exact else latest


def _subclasses(family: type[Weighting]) -> Iterator[type[Weighting]]:
    for below in family.__subclasses__():
        yield below
        yield from _subclasses(below)


def _address(family: type[Weighting]) -> str:
    return f"{family.__module__}.{family.__qualname__}"


def plain_array(where: str, dtype: Any, items: Any) -> np.ndarray:
    """An array of one of the plain dtypes, from nested lists."""
    named = re.fullmatch(DTYPE, dtype) if isinstance(dtype, str) and len(dtype) <= 16 else None
    if named is None or dtype == "object":
        raise invalid(f"{where}.dtype", dtype, "the name of a dtype of numbers or texts")
    array = np.asarray(items)
    kinds = {"b": "b", "i": "i", "u": "iu", "f": "iuf", "U": "U"}[np.dtype(dtype).kind]
    if array.size and array.dtype.kind not in kinds:
        raise invalid(f"{where}.items", items, f"values of {dtype}")
    characters = int(named["characters"] or 0)
    if array.dtype.kind == "U" and array.dtype.itemsize > 4 * max(1, characters):
        raise invalid(f"{where}.items", items, f"texts of at most {characters} characters")
    if array.size * np.dtype(dtype).itemsize > MAX_ARRAY_BYTES:
        raise invalid(f"{where}.dtype", dtype, f"at most {MAX_ARRAY_BYTES} bytes in all")
    if np.dtype(dtype).kind in "iu" and array.size:
        limits = np.iinfo(np.dtype(dtype))
        if not limits.min <= int(array.min()) <= int(array.max()) <= limits.max:
            raise invalid(f"{where}.items", items, f"values of {dtype}")
    return np.array(items, dtype=dtype)


def plain_labels(classes: np.ndarray) -> dict[str, Any]:
    """Class labels as JSON: texts, numbers, None, and tuples of these."""
    return {
        "dtype": str(classes.dtype),
        "items": [_plain_label(label) for label in classes.tolist()],
    }


def _plain_label(label: Any) -> Any:
    if label is None or isinstance(label, (str, bool, int, float)):
        return label
    if isinstance(label, tuple):
        return {"tuple": [_plain_label(part) for part in label]}
    if isinstance(label, np.generic):
        return label.item()
    raise ValueError(f"the class {label!r} cannot be written to a model file: it is no text or number")


def labels(where: str, description: Any, count: int) -> np.ndarray:
    """The labels of `count` classes."""
    as_object(where, description, ("dtype", "items"))
    listed = as_list(f"{where}.items", description["items"], count, count)
    items = [_label(f"{where}.items[{i}]", item) for i, item in enumerate(listed)]
    if description["dtype"] == "object":
        classes = object_array(items)
    else:
        classes = plain_array(where, description["dtype"], items)
    if classes.shape != (count,) or count < 2 or len(set(classes.tolist())) != count:
        raise invalid(f"{where}.items", description["items"], "two different labels at least")
    return classes


def _label(where: str, item: Any, depth: int = MAX_DEPTH) -> Any:
    if isinstance(item, str):
        return as_text(where, item, MAX_LABEL)
    if item is None or isinstance(item, (bool, int)):
        return item
    if isinstance(item, float):
        if not math.isfinite(item):
            raise invalid(where, item, "a finite number")
        return item
    parts = as_list(where, as_object(where, item, ("tuple",))["tuple"], 0, MAX_ITEMS)
    if depth == 0:
        raise invalid(where, item, "fewer nested tuples")
    return tuple(_label(f"{where}[{i}]", part, depth - 1) for i, part in enumerate(parts))
