"""GPyTorch kernels as plain descriptions, so that a model file names its kernel and never runs code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gpytorch
import gpytorch.kernels as kernels
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gcgp.io.checked_json import as_choice, as_integer, as_list, as_number, as_object, invalid
from gcgp.kernel.rotation_average import RotationAverage

SIMPLE: dict[str, tuple[str, ...]] = {
    "RBFKernel": (),
    "MaternKernel": ("nu",),
    "RQKernel": (),
    "LinearKernel": (),
    "PeriodicKernel": (),
    "CosineKernel": (),
    "PolynomialKernel": ("power",),
    "ConstantKernel": (),
}
"""Kernels that can be described, with the arguments that their state does not hold."""
COMPOSED = {"AdditiveKernel", "ProductKernel"}
MAX_DEPTH = 8
"""Kernels inside one another. GPyTorch takes twice as long for each further `ScaleKernel`."""
MAX_PARTS = 64
"""Kernels in one sum or product."""
MAX_KERNELS = 256
MAX_POWER = 64
"""Of a polynomial kernel."""
MAX_COLUMNS = 2**31
GIVEN = ("lower_bound", "upper_bound", "active_dims")
"""Parts of a state that follow from the description."""


def describe(kernel: Kernel) -> dict[str, Any]:
    """What `build` needs to make a kernel of the same form; its numbers are in its state."""
    name = type(kernel).__name__
    if type(kernel) is RotationAverage:
        shape = list(kernel.rotations.shape)
        return {"class": name, "parts": [describe(kernel.base_kernel)], "rotations": shape}
    known = type(kernel) is getattr(kernels, name, None) and not kernel.batch_shape
    dims = None if kernel.active_dims is None else kernel.active_dims.tolist()
    description: dict[str, Any] = {"class": name, "active_dims": dims}
    if known and name == "ScaleKernel":
        description |= {"parts": [describe(kernel.base_kernel)]}
        if not _unlike(kernel, build(description)):
            return description
    if known and name in COMPOSED:
        return description | {"parts": [describe(part) for part in kernel.kernels]}
    if known and name in SIMPLE:
        arguments = {key: getattr(kernel, key) for key in SIMPLE[name]}
        description |= {"ard_num_dims": kernel.ard_num_dims, "arguments": arguments}
        if not _unlike(kernel, build(description)):
            return description
    raise ValueError(
        f"a {name} cannot be written to a model file; "
        f"those that can: {', '.join([*SIMPLE, 'ScaleKernel', *sorted(COMPOSED)])}"
    )


def _unlike(kernel: Kernel, twin: Kernel) -> bool:
    """Whether the state means something else in `twin`: other constraints, or priors."""
    if next(iter(kernel.named_priors()), None) is not None:
        return True
    pairs = zip(kernel.named_constraints(), twin.named_constraints(), strict=True)
    return any(
        type(a) is not type(b)
        or repr(a._transform) != repr(b._transform)
        or not (a.lower_bound == b.lower_bound).all()
        or not (a.upper_bound == b.upper_bound).all()
        for (_, a), (_, b) in pairs
    )


def build(description: dict[str, Any]) -> Kernel:
    """A kernel of the described form; see `check` for descriptions that come from elsewhere."""
    name = description["class"]
    if name == "RotationAverage":
        rotations = torch.zeros(description["rotations"], dtype=torch.int64)
        return RotationAverage(build(description["parts"][0]), rotations)
    dims = description["active_dims"]
    if name == "ScaleKernel":
        return kernels.ScaleKernel(build(description["parts"][0]), active_dims=dims)
    if name in COMPOSED:
        return getattr(kernels, name)(*map(build, description["parts"]))
    if name not in SIMPLE:
        raise ValueError(f"unknown kernel {name!r}")
    ard = {} if description["ard_num_dims"] is None else {"ard_num_dims": description["ard_num_dims"]}
    arguments = {key: description["arguments"][key] for key in SIMPLE[name]}
    return getattr(kernels, name)(active_dims=dims, **ard, **arguments)


def check(
    description: Any, shapes: Mapping[str, Sequence[int]], where: str, columns: int = MAX_COLUMNS
) -> None:
    """Raise a ValueError unless `build` makes a kernel of it that is no larger than its stored state.

    `shapes` are those of the tensors of the state, by name, and `columns` is the length of a patch.
    """
    stack = [(description, "", where, 1)]
    seen = 0
    while stack:
        own, prefix, place, depth = stack.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_KERNELS:
            raise ValueError(
                f"{place}: more than {MAX_DEPTH} kernels inside one another, or {MAX_KERNELS} in all"
            )
        if not isinstance(own, dict):
            raise invalid(place, own, "the description of a kernel")
        composed = ("RotationAverage", "ScaleKernel", *sorted(COMPOSED))
        name = as_choice(f"{place}.class", own.get("class"), (*SIMPLE, *composed))
        if name in SIMPLE:
            as_object(place, own, ("class", "active_dims", "ard_num_dims", "arguments"))
            _check_simple(own, shapes, prefix, place)
        elif name == "RotationAverage":
            as_object(place, own, ("class", "parts", "rotations"))
            _check_rotations(own["rotations"], shapes, prefix, place, columns)
        else:
            as_object(place, own, ("class", "active_dims", "parts"))
        if name != "RotationAverage":
            _check_active_dims(own["active_dims"], shapes, prefix, place, columns)
        if name in SIMPLE:
            continue
        single = name not in COMPOSED
        for i, part in enumerate(as_list(f"{place}.parts", own["parts"], 1, 1 if single else MAX_PARTS)):
            below = f"{prefix}base_kernel." if single else f"{prefix}kernels.{i}."
            stack.append((part, below, f"{place}.parts[{i}]", depth + 1))


def _check_simple(own: dict[str, Any], shapes: Mapping[str, Sequence[int]], prefix: str, place: str) -> None:
    ard = own["ard_num_dims"]
    if ard is not None:
        as_integer(f"{place}.ard_num_dims", ard, 1)
        stored = {
            shape[-1] for key, shape in shapes.items() if key.startswith(prefix + "raw_") and len(shape)
        }
        if ard not in stored:
            raise ValueError(f"{place}.ard_num_dims = {ard}: no stored parameter has this number of columns")
    arguments = as_object(f"{place}.arguments", own["arguments"], SIMPLE[own["class"]])
    if "nu" in arguments and arguments["nu"] not in (0.5, 1.5, 2.5):
        raise invalid(f"{place}.arguments.nu", arguments["nu"], "0.5, 1.5 or 2.5")
    if "power" in arguments:
        as_number(f"{place}.arguments.power", arguments["power"], 1, MAX_POWER)


def _check_rotations(
    rotations: Any, shapes: Mapping[str, Sequence[int]], prefix: str, place: str, columns: int
) -> None:
    as_list(f"{place}.rotations", rotations, 2, 2)
    stored = list(shapes.get(prefix + "rotations", ()))
    if rotations != stored or 0 in stored:
        raise ValueError(f"{place}.rotations = {rotations!r}, but the stored rotations have shape {stored}")
    if stored[1] != columns and columns != MAX_COLUMNS:
        raise ValueError(f"{place}.rotations: {stored[1]} columns, but patches have {columns}")


def _check_active_dims(
    dims: Any, shapes: Mapping[str, Sequence[int]], prefix: str, place: str, columns: int
) -> None:
    stored = shapes.get(prefix + "active_dims")
    if dims is None and stored is None:
        return
    count = 0 if stored is None or len(stored) != 1 else stored[0]
    for i, column in enumerate(as_list(f"{place}.active_dims", dims, max(1, count), count)):
        as_integer(f"{place}.active_dims[{i}]", column, 0, columns - 1)


def load_state(module: gpytorch.Module, state: Mapping[str, Tensor], where: str) -> None:
    """Load a stored state into a module that was built like the stored one, once all of it fits.

    Names, shapes and dtypes must be those of the module, values finite and inside their constraints, and
    bounds of constraints and chosen columns as the module has them.
    """
    expected = module.state_dict()
    if state.keys() != expected.keys():
        name = min(state.keys() ^ expected.keys())
        verb = "is missing" if name in expected else "belongs to no part of the model"
        raise ValueError(f"{where}: the stored tensor {name!r} {verb}")
    for name, tensor in state.items():
        own, field = expected[name], f"{where}: the stored tensor {name!r}"
        if tensor.shape != own.shape:
            raise ValueError(f"{field} has shape {list(tensor.shape)}, expected {list(own.shape)}")
        if tensor.dtype != own.dtype:
            raise ValueError(f"{field} is of {tensor.dtype}, expected {own.dtype}")
        last = name.rpartition(".")[2]
        if last == "rotations":
            _check_permutations(tensor, field)
        elif last in GIVEN and not torch.equal(tensor, own):
            raise ValueError(f"{field} has values that do not fit the description")
        elif last not in GIVEN and not torch.isfinite(tensor).all():
            raise ValueError(f"{field} has values that are not finite")
    module.load_state_dict(dict(state))
    _check_constrained(module, where)


def _check_permutations(rotations: Tensor, field: str) -> None:
    wanted = torch.arange(rotations.shape[1]).expand_as(rotations)
    if not torch.equal(rotations.sort(dim=1).values, wanted):
        raise ValueError(f"{field}: each row must hold each column once")


def _check_constrained(module: gpytorch.Module, where: str) -> None:
    """Raise unless every parameter, as it is used, has a square, and if it is positive an inverse square."""
    for name, parameter, constraint in module.named_parameters_and_constraints():
        limits = torch.finfo(parameter.dtype)
        value = parameter.detach() if constraint is None else constraint.transform(parameter.detach())
        small = constraint is not None and bool((constraint.lower_bound >= 0).all())
        least = limits.tiny**0.5 if small else -(limits.max**0.5)
        if not ((value >= least) & (value <= limits.max**0.5)).all():
            raise ValueError(f"{where}: the parameter {name!r} has values that are too large or too small")
