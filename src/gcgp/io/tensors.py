"""Stored tensors: checks of shape, dtype and values, and loading them into modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import gpytorch
import torch
from torch import Tensor

from gcgp.io.checks import fits_shape

DERIVED_BUFFERS = ("lower_bound", "upper_bound", "active_dims")
"""Buffers of GPyTorch modules that follow from the description and are not stored."""


def module_state(module: gpytorch.Module) -> dict[str, Tensor]:
    """The tensors of a module that its description does not determine."""
    return {k: v for k, v in module.state_dict().items() if k.rpartition(".")[2] not in DERIVED_BUFFERS}


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with longer names."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def take_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors whose names start with `prefix`; returns them without it."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def check_all_used(where: str, remaining: Mapping[str, Tensor]) -> None:
    """Raise if tensors are left over."""
    if remaining:
        raise ValueError(f"{where}: the stored tensor {min(remaining)!r} belongs to no part of the model")


def checked_tensor(
    where: str, tensor: Tensor | None, shape: Sequence[int | None], dtype: torch.dtype
) -> Tensor:
    """The tensor, if it is finite and has this dtype and shape (None: any length of at least 1)."""
    if tensor is None:
        raise ValueError(f"{where}: the stored tensor is missing")
    if not fits_shape(tensor.shape, shape):
        expected = ", ".join("n" if n is None else str(n) for n in shape)
        raise ValueError(f"{where}: the stored tensor has shape {list(tensor.shape)}, expected [{expected}]")
    if tensor.dtype != dtype:
        raise ValueError(f"{where}: the stored tensor has dtype {tensor.dtype}, expected {dtype}")
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{where}: the stored tensor has values that are not finite")
    return tensor


def load_state(where: str, module: gpytorch.Module, state: Mapping[str, Tensor]) -> None:
    """Load the stored state of a module that was built from the same description.

    The module takes the floating-point dtype of the state. Names and shapes must be those of the module,
    values finite and within the range in which their squares and inverse squares are finite.
    """
    dtypes = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(map(str, dtypes)))
        raise ValueError(f"{where}: stored tensors of dtype {names}, expected either float32 or float64")
    module.to(next(iter(dtypes), torch.float32))
    expected = module_state(module)
    if state.keys() != expected.keys():
        name = min(state.keys() ^ expected.keys())
        problem = "is missing" if name in expected else "belongs to no part of the model"
        raise ValueError(f"{where}: the stored tensor {name!r} {problem}")
    for name, tensor in state.items():
        checked_tensor(f"{where}: {name!r}", tensor, expected[name].shape, expected[name].dtype)
    module.load_state_dict(dict(state), strict=False)
    for name, parameter, constraint in module.named_parameters_and_constraints():
        limits = torch.finfo(parameter.dtype)
        value = parameter.detach() if constraint is None else constraint.transform(parameter.detach())
        positive = constraint is not None and bool((constraint.lower_bound >= 0).all())
        least = limits.tiny**0.5 if positive else -(limits.max**0.5)
        if not ((value >= least) & (value <= limits.max**0.5)).all():
            raise ValueError(f"{where}: the parameter {name!r} has values that are too large or too small")
