"""GPyTorch kernels as JSON descriptions and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gpytorch.kernels as kernels
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Int
from torch import Tensor

from gcgp.io.checks import as_choice, as_integer, as_list, as_number, as_object, invalid
from gcgp.io.tensors import load_state, module_state
from gcgp.kernel.rotation_average import RotationAverage

SIMPLE_KERNELS: dict[str, tuple[str, ...]] = {
    "RBFKernel": (),
    "MaternKernel": ("nu",),
    "RQKernel": (),
    "LinearKernel": (),
    "PeriodicKernel": (),
    "CosineKernel": (),
    "PolynomialKernel": ("power",),
    "ConstantKernel": (),
}
"""Kernels that can be described, with the arguments that their state does not contain."""
COMPOSED_KERNELS = ("AdditiveKernel", "ProductKernel")
MAX_KERNEL_NESTING = 8
"""Kernels inside one another. Each further `ScaleKernel` doubles GPyTorch's run time."""
MAX_KERNEL_PARTS = 64
MAX_POLYNOMIAL_POWER = 64
MAX_PATCH_COLUMNS = 2**31


def describe_kernel(kernel: Kernel) -> dict[str, Any]:
    """The form of a kernel; its values are in its state. A ValueError if it cannot be rebuilt."""
    description = _describe(kernel)
    twin = rebuild_kernel("kernel", description, module_state(kernel))
    if any(kernel.named_priors()) or _constraints(kernel) != _constraints(twin):
        raise ValueError(
            f"a {type(kernel).__name__} with priors, or with constraints other than GPyTorch's defaults, "
            "cannot be written to a model file"
        )
    return description


def _constraints(kernel: Kernel) -> list[tuple[Any, ...]]:
    """What turns the state of a kernel into its parameters."""
    return [
        (name, type(c), repr(c._transform), c.lower_bound.tolist(), c.upper_bound.tolist())
        for name, c in kernel.named_constraints()
    ]


def _describe(kernel: Kernel) -> dict[str, Any]:
    name = type(kernel).__name__
    if type(kernel) is RotationAverage:
        return {"class": name, "parts": [_describe(kernel.base_kernel)]}
    if type(kernel) is getattr(kernels, name, None) and not kernel.batch_shape:
        columns = None if kernel.active_dims is None else kernel.active_dims.tolist()
        if name in COMPOSED_KERNELS and columns is None:
            return {"class": name, "parts": [_describe(part) for part in kernel.kernels]}
        if name == "ScaleKernel":
            return {"class": name, "active_dims": columns, "parts": [_describe(kernel.base_kernel)]}
        if name in SIMPLE_KERNELS:
            arguments = {key: getattr(kernel, key) for key in SIMPLE_KERNELS[name]}
            ard = kernel.ard_num_dims
            return {"class": name, "active_dims": columns, "ard_num_dims": ard, "arguments": arguments}
    raise ValueError(
        f"a {name} cannot be written to a model file; "
        f"those that can: {', '.join([*SIMPLE_KERNELS, 'ScaleKernel', *COMPOSED_KERNELS])}"
    )


def rebuild_kernel(
    where: str, description: Any, state: Mapping[str, Tensor], columns: int = MAX_PATCH_COLUMNS
) -> Kernel:
    """The kernel of a description and a state, on patches with this number of columns.

    Everything is checked against the state before it is built, so that nothing larger is built.
    """
    kernel = _build(where, description, state, columns, MAX_KERNEL_NESTING)
    load_state(where, kernel, state)
    return kernel


def _build(where: str, description: Any, state: Mapping[str, Tensor], columns: int, nesting: int) -> Kernel:
    if nesting == 0:
        raise ValueError(f"{where}: more than {MAX_KERNEL_NESTING} kernels inside one another")
    if not isinstance(description, dict):
        raise invalid(where, description, "the description of a kernel")
    known = (*SIMPLE_KERNELS, "ScaleKernel", "RotationAverage", *COMPOSED_KERNELS)
    name = as_choice(f"{where}.class", description.get("class"), known)
    if not any(key.startswith("raw_") for key in state) and name in SIMPLE_KERNELS:
        raise ValueError(f"{where}: no stored tensor belongs to this {name}")
    if name in SIMPLE_KERNELS:
        return _build_simple(where, description, state, columns)
    scaled, composed = name == "ScaleKernel", name in COMPOSED_KERNELS
    as_object(where, description, ("class", "parts", "active_dims") if scaled else ("class", "parts"))
    parts = []
    listed = as_list(f"{where}.parts", description["parts"], 1, MAX_KERNEL_PARTS if composed else 1)
    for i, part in enumerate(listed):
        prefix = f"kernels.{i}." if composed else "base_kernel."
        below = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
        parts.append(_build(f"{where}.parts[{i}]", part, below, columns, nesting - 1))
    if scaled:
        return kernels.ScaleKernel(parts[0], active_dims=_active_dims(where, description, columns))
    if composed:
        return getattr(kernels, name)(*parts)
    return RotationAverage(parts[0], _rotations(where, state, columns))


def _build_simple(
    where: str, description: dict[str, Any], state: Mapping[str, Tensor], columns: int
) -> Kernel:
    as_object(where, description, ("class", "active_dims", "ard_num_dims", "arguments"))
    name, ard = description["class"], description["ard_num_dims"]
    sizes = {tensor.shape[-1] for key, tensor in state.items() if key.startswith("raw_") and tensor.ndim}
    if ard is not None and as_integer(f"{where}.ard_num_dims", ard, 1) not in sizes:
        raise ValueError(f"{where}.ard_num_dims = {ard}: no stored parameter has this number of columns")
    arguments = as_object(f"{where}.arguments", description["arguments"], SIMPLE_KERNELS[name])
    if "nu" in arguments and arguments["nu"] not in (0.5, 1.5, 2.5):
        raise invalid(f"{where}.arguments.nu", arguments["nu"], "0.5, 1.5 or 2.5")
    if "power" in arguments:
        as_number(f"{where}.arguments.power", arguments["power"], 1, MAX_POLYNOMIAL_POWER)
    sized = {} if ard is None else {"ard_num_dims": ard}
    return getattr(kernels, name)(active_dims=_active_dims(where, description, columns), **sized, **arguments)


def _active_dims(where: str, description: dict[str, Any], columns: int) -> list[int] | None:
    if description["active_dims"] is None:
        return None
    listed = as_list(f"{where}.active_dims", description["active_dims"], 1)
    return [as_integer(f"{where}.active_dims[{i}]", dim, 0, columns - 1) for i, dim in enumerate(listed)]


def _rotations(where: str, state: Mapping[str, Tensor], columns: int) -> Int[Tensor, "J dim"]:
    rotations = state.get("rotations", torch.zeros(0))
    if rotations.ndim != 2 or rotations.dtype != torch.int64 or 0 in rotations.shape:
        raise ValueError(f"{where}: the stored tensor 'rotations' is missing, or not a matrix of integers")
    if columns not in (MAX_PATCH_COLUMNS, rotations.shape[1]):
        raise ValueError(f"{where}: rotations of {rotations.shape[1]} columns, but patches have {columns}")
    if not torch.equal(rotations.sort(dim=1).values, torch.arange(rotations.shape[1]).expand_as(rotations)):
        raise ValueError(f"{where}: each row of the stored tensor 'rotations' must be a permutation")
    return rotations
