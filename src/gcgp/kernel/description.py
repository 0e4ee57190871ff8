"""GPyTorch kernels as plain descriptions, so that a model file names its kernel and never runs code."""

from __future__ import annotations

from typing import Any

import gpytorch.kernels as kernels
import torch
from gpytorch.kernels import Kernel

from gcgp.kernel.rotations import RotationPooled

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


def describe(kernel: Kernel) -> dict[str, Any]:
    """What `build` needs to make a kernel of the same form; its numbers are in its state."""
    name = type(kernel).__name__
    if type(kernel) is RotationPooled:
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
    """A kernel of the described form."""
    name = description["class"]
    if name == "RotationPooled":
        rotations = torch.zeros(description["rotations"], dtype=torch.int64)
        return RotationPooled(build(description["parts"][0]), rotations)
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
