"""Base kernels k_g between patches: GPyTorch's, with a fused form for functions of distance."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, ScaleKernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.kernel.rotation_average import RotationAverage

NAMES = ("rbf", "matern12", "matern32", "matern52")


def check_columns(kernel: Kernel, columns: int) -> None:
    """Raise a ValueError if a kernel of the user's is made for another number of columns."""
    if type(kernel) is ScaleKernel:  # its active_dims are a copy of its part's
        return check_columns(kernel.base_kernel, columns)
    name = type(kernel).__name__
    if kernel.active_dims is not None:
        outside = kernel.active_dims[(kernel.active_dims >= columns) | (kernel.active_dims < -columns)]
        if len(outside):
            raise ValueError(
                f"kernel: {name} has active_dims {kernel.active_dims.tolist()}, "
                f"but there are {columns} columns, 0 to {columns - 1}, and no column {int(outside[0])}"
            )
        columns = len(kernel.active_dims)
    if kernel.ard_num_dims not in (None, 1, columns):
        raise ValueError(
            f"kernel: {name} has ard_num_dims={kernel.ard_num_dims}, but there are {columns} columns"
        )
    for child in kernel.children():
        for part in child if isinstance(child, torch.nn.ModuleList) else [child]:
            if isinstance(part, Kernel):
                check_columns(part, columns)
    return None


def base_kernel(name: str, columns: dict[str, slice]) -> Kernel:
    """The named kernel on patches with these columns, one lengthscale a column.

    A position, if there is one, is a factor of its own: an RBF on the position's columns. For the RBF
    that is the same as an RBF on all columns.
    """
    if name not in NAMES:
        raise unknown_option("kernel", name, NAMES)
    total = max(part.stop for part in columns.values())
    if name == "rbf":
        return RBFKernel(ard_num_dims=total)
    nu = int(name[-2]) / 2
    if "position" not in columns:
        return MaternKernel(nu=nu, ard_num_dims=total)
    start = columns["position"].start
    return ProductKernel(
        MaternKernel(nu=nu, ard_num_dims=start, active_dims=torch.arange(start)),
        RBFKernel(ard_num_dims=total - start, active_dims=torch.arange(start, total)),
    )


def set_lengthscales(kernel: Kernel, lengthscales: Float[Tensor, "dim"]) -> None:
    """Set the lengthscale of every column, in a kernel made by `base_kernel`."""
    if isinstance(kernel, ProductKernel):
        for factor in kernel.kernels:
            factor.lengthscale = lengthscales[factor.active_dims].to(factor.lengthscale)
    else:
        kernel.lengthscale = lengthscales.to(kernel.lengthscale)


def lengthscale_parts(kernel: Kernel) -> list[tuple[Kernel, Int[Tensor, "own"]]]:
    """The factors of a kernel made by `base_kernel`, pooled or not, with the columns each looks at.

    Empty for a kernel of another kind.
    """
    if type(kernel) is RotationAverage:
        return lengthscale_parts(kernel.base_kernel)
    factors = list(kernel.kernels) if type(kernel) is ProductKernel else [kernel]
    if any(type(part) not in (RBFKernel, MaternKernel) or part.ard_num_dims is None for part in factors):
        return []
    return [
        (part, torch.arange(part.ard_num_dims) if part.active_dims is None else part.active_dims)
        for part in factors
    ]


def on_device(kernel: Kernel, device: torch.device) -> Kernel:
    """The kernel, or a copy of it there, whose gradients come back to the parameters of the original."""
    if all(tensor.device == device for tensor in (*kernel.parameters(), *kernel.buffers())):
        return kernel
    return _copied(kernel, device)


def doubled(kernel: Kernel) -> Kernel:
    """A copy of the kernel in float64, whose gradients come back to the parameters of the original."""
    return _copied(kernel, torch.float64)


def _copied(kernel: Kernel, to: torch.device | torch.dtype) -> Kernel:
    copied = copy.deepcopy(kernel).to(to)
    for path, parameter in kernel.named_parameters():
        *owners, name = path.split(".")
        module = copied.get_submodule(".".join(owners))
        del module._parameters[name]
        setattr(module, name, parameter.to(to))
    return copied


@dataclass(frozen=True)
class DistanceForm:
    """A kernel that is scale · h(|x − y|²) of inputs divided by lengthscales."""

    lengthscale: Float[Tensor, "..."]
    scale: Float[Tensor, ""] | float
    of_squared_distance: Callable[[Tensor], Tensor] | None
    """h, applied in place where it can be; None for the RBF, which is fused with the product."""
    kink: bool = False
    """Whether h has a kink at 0, where squared distances by a product of float32 are too coarse."""


def distance_form(kernel: Kernel) -> DistanceForm | None:
    """The fused form of an RBF or Matérn kernel, scaled or not; None for any other kernel."""
    return None if kernel.active_dims is not None else _form_of_columns(kernel)


def _form_of_columns(kernel: Kernel) -> DistanceForm | None:
    """The fused form of a kernel of columns that have been selected already."""
    scale: Tensor | float = 1.0
    while type(kernel) is ScaleKernel and not kernel.batch_shape:
        scale = scale * kernel.outputscale
        kernel = kernel.base_kernel
    if kernel.batch_shape:
        return None
    if type(kernel) is RBFKernel:
        return DistanceForm(kernel.lengthscale[0], scale, None)
    if type(kernel) is MaternKernel:
        return DistanceForm(kernel.lengthscale[0], scale, _matern(kernel.nu), kernel.nu == 0.5)
    return None


def is_function_of_distance(kernel: Kernel) -> bool:
    """Whether `evaluate` computes the kernel itself: RBF, Matérn, their sums, products and multiples."""
    if kernel.batch_shape:
        return False
    if type(kernel) in (AdditiveKernel, ProductKernel):
        return all(map(is_function_of_distance, kernel.kernels))
    if type(kernel) in (ScaleKernel, RotationAverage):
        return is_function_of_distance(kernel.base_kernel)
    return _form_of_columns(kernel) is not None


def _matern(nu: float) -> Callable[[Tensor], Tensor]:
    """h(r²) for ν = 1/2, 3/2, 5/2; the floor under r² keeps the gradient at r = 0 finite."""

    def of_squared_distance(squared: Tensor) -> Tensor:
        r = (squared.clamp_min(1e-15) * (2 * nu)).sqrt()
        decay = torch.exp(-r)
        if nu == 0.5:
            return decay
        return (1 + r) * decay if nu == 1.5 else (1 + r + r.square() / 3) * decay

    return of_squared_distance


def evaluate(
    kernel: Kernel, x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"], *, exact: bool = False
) -> Float[Tensor, "*batch a b"]:
    """k_g(x, y) as a dense matrix, in the inputs' precision.

    `exact` computes distances by differences of coordinates instead of a matrix product.
    """
    if type(kernel) is RotationAverage:
        return kernel.pooled(evaluate(kernel.base_kernel, x, kernel.turned(y), exact=exact))
    if not is_function_of_distance(kernel):
        # A sum is taken apart here: GPyTorch may factorize a part, which adds jitter to it.
        if type(kernel) is AdditiveKernel and not kernel.batch_shape:
            return torch.stack([evaluate(part, x, y, exact=exact) for part in kernel.kernels]).sum(dim=0)
        if type(kernel) is ScaleKernel and kernel.active_dims is None and not kernel.batch_shape:
            return evaluate(kernel.base_kernel, x, y, exact=exact) * kernel.outputscale
        with gpytorch.settings.lazily_evaluate_kernels(False):
            return kernel(y, x).to_dense().mT  # GPyTorch centers on its first argument
    if kernel.active_dims is not None:
        x, y = x[..., kernel.active_dims], y[..., kernel.active_dims]
    return _function_of_distance(kernel, x, y, exact)


def _function_of_distance(kernel: Kernel, x: Tensor, y: Tensor, exact: bool) -> Tensor:
    """The value of a kernel of columns that have been selected already."""
    if type(kernel) is AdditiveKernel:
        return torch.stack([evaluate(part, x, y, exact=exact) for part in kernel.kernels]).sum(dim=0)
    if type(kernel) is ProductKernel:
        return reduce(torch.mul, [evaluate(part, x, y, exact=exact) for part in kernel.kernels])
    form = _form_of_columns(kernel)
    if form is None:
        return _function_of_distance(kernel.base_kernel, x, y, exact) * kernel.outputscale
    lengthscale = form.lengthscale.to(x.dtype)
    x, y = x / lengthscale, y / lengthscale
    squared = exact_squared_distances(x, y) if form.kink or exact else squared_distances(x, y)
    h = form.of_squared_distance
    value = torch.exp(-0.5 * squared) if h is None else h(squared)
    return value * form.scale


LARGEST_COORDINATE = {torch.float32: 1e17, torch.float64: 1e150}
"""Coordinates in lengthscales are limited to this, so that sums of their squares stay finite."""


def limited(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Coordinates in lengthscales, so far as their squares can be summed."""
    largest = LARGEST_COORDINATE[x.dtype]
    return x.clamp(-largest, largest)


def squared_distances(
    x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"]
) -> Float[Tensor, "*batch a b"]:
    """|x − y|², never negative; the rows are centered on the mean of y, which keeps float32 accurate."""
    center = y.mean(dim=-2, keepdim=True).detach()
    x, y = limited(x - center), limited(y - center)
    norms = x.square().sum(dim=-1, keepdim=True) + y.square().sum(dim=-1)[..., None, :]
    return (norms - 2 * (x @ y.transpose(-1, -2))).clamp_min(0.0)


def exact_squared_distances(
    x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"]
) -> Float[Tensor, "*batch a b"]:
    """|x − y|² by differences: slower, but exactly 0 between equal rows."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()


def prior_variance(kernel: Kernel, x: Float[Tensor, "a dim"]) -> Float[Tensor, "a"]:
    """k_g(x, x)."""
    if type(kernel) is RotationAverage:
        turns = [paired(kernel.base_kernel, x, x[:, turn]) for turn in kernel.rotations]
        return torch.stack(turns).mean(dim=0)
    form = distance_form(kernel)
    if form is not None:
        return torch.ones(len(x), dtype=x.dtype) * form.scale
    return kernel(x, diag=True)


def paired(kernel: Kernel, x: Float[Tensor, "a dim"], y: Float[Tensor, "a dim"]) -> Float[Tensor, "a"]:
    """k_g(x_i, y_i) of each row with its like."""
    form = distance_form(kernel)
    if form is None:
        return kernel(x, y, diag=True)
    squared = ((x - y) / form.lengthscale.to(x.dtype)).square().sum(dim=-1)
    h = form.of_squared_distance
    return (torch.exp(-0.5 * squared) if h is None else h(squared)) * form.scale
