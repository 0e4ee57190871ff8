"""Base kernels k_g between patches: GPyTorch kernels, with a fast form for functions of distance."""

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

KERNEL_NAMES = ("rbf", "matern12", "matern32", "matern52")
MAX_SCALED_COORDINATE = {torch.float32: 1e17, torch.float64: 1e150}
"""Limit of coordinates in lengthscales, so that sums of their squares are finite."""
MAX_DIFFERENCE_COLUMNS = 256
"""Distances of longer rows in float64 are computed by a matrix product, which is many times faster."""
ROUNDING_OF_DISTANCES = 1e-13
"""Squared distances below this multiple of the largest squared norm are rounding errors of a product."""


def base_kernel(name: str, columns: dict[str, slice]) -> Kernel:
    """The named kernel on patches with these columns, one lengthscale per column.

    A Matérn kernel is multiplied by an RBF kernel on the position columns, if there are any. An RBF kernel on
    all columns is already such a product.

    >>> base_kernel("rbf", {"bins": slice(0, 24)}).lengthscale.shape
    torch.Size([1, 24])
    """
    if name not in KERNEL_NAMES:
        raise unknown_option("kernel", name, KERNEL_NAMES)
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


def check_columns(kernel: Kernel, columns: int) -> None:
    """Raise a ValueError if a kernel expects another number of columns."""
    if type(kernel) is ScaleKernel:  # its active_dims are a copy of those of its base kernel
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


def lengthscale_parts(kernel: Kernel) -> list[tuple[Kernel, Int[Tensor, "columns"]]]:
    """The factors of a kernel made by `base_kernel`, with or without rotation average, and their columns.

    Empty for other kernels.
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


def set_lengthscales(kernel: Kernel, lengthscales: Float[Tensor, "dim"]) -> None:
    """Set the lengthscale of each column, in a kernel made by `base_kernel`."""
    for factor, columns in lengthscale_parts(kernel):
        factor.lengthscale = lengthscales[columns].to(factor.lengthscale)


def on_device(kernel: Kernel, device: torch.device) -> Kernel:
    """The kernel, or a copy on the device whose gradients flow to the parameters of the original."""
    if all(tensor.device == device for tensor in (*kernel.parameters(), *kernel.buffers())):
        return kernel
    return converted(kernel, device)


def converted(kernel: Kernel, to: torch.device | torch.dtype) -> Kernel:
    """A copy on a device or in a dtype whose gradients flow to the parameters of the original."""
    copied = copy.deepcopy(kernel).to(to)
    for path, parameter in kernel.named_parameters():
        *owners, name = path.split(".")
        module = copied.get_submodule(".".join(owners))
        del module._parameters[name]
        setattr(module, name, parameter.to(to))
    return copied


@dataclass(frozen=True)
class DistanceForm:
    """A kernel of the form scale · h(|x − y|²), for inputs divided by lengthscales."""

    lengthscale: Float[Tensor, "..."]
    scale: Float[Tensor, ""] | float
    of_squared_distance: Callable[[Tensor], Tensor] | None
    """h; None for the RBF kernel, whose exponential is computed together with the sum."""
    kink: bool = False
    """Whether h has a kink at 0, where squared distances by matrix products in float32 are too inaccurate."""

    @property
    def is_rbf(self) -> bool:
        """Whether h is exp(−½r²)."""
        return self.of_squared_distance is None

    @property
    def constant_scale(self) -> Float[Tensor, ""] | float:
        """The scale without its gradient."""
        return self.scale.detach() if isinstance(self.scale, Tensor) else self.scale

    def __call__(self, squared: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """scale · h."""
        h = self.of_squared_distance
        return (torch.exp(-0.5 * squared) if h is None else h(squared)) * self.scale


def distance_form(kernel: Kernel) -> DistanceForm | None:
    """The form of an RBF or Matérn kernel, scaled or not, on all columns; None for any other kernel."""
    return None if kernel.active_dims is not None else _form_of_columns(kernel)


def _form_of_columns(kernel: Kernel) -> DistanceForm | None:
    """`distance_form` of a kernel whose active columns are already selected."""
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


def _matern(nu: float) -> Callable[[Tensor], Tensor]:
    """h(r²) for ν = 1/2, 3/2, 5/2; the lower bound of r² keeps the gradient at r = 0 finite."""

    def of_squared_distance(squared: Tensor) -> Tensor:
        r = (squared.clamp_min(1e-15) * (2 * nu)).sqrt()
        decay = torch.exp(-r)
        if nu == 0.5:
            return decay
        return (1 + r) * decay if nu == 1.5 else (1 + r + r.square() / 3) * decay

    return of_squared_distance


def is_function_of_distance(kernel: Kernel) -> bool:
    """Whether `evaluate` computes the kernel without GPyTorch: RBF, Matérn and compositions of these."""
    if kernel.batch_shape:
        return False
    if type(kernel) in (AdditiveKernel, ProductKernel):
        return all(map(is_function_of_distance, kernel.kernels))
    if type(kernel) is RotationAverage:
        return is_function_of_distance(kernel.base_kernel)
    if type(kernel) is ScaleKernel and type(kernel.base_kernel) is not RotationAverage:
        return is_function_of_distance(kernel.base_kernel)
    return _form_of_columns(kernel) is not None


def evaluate(
    kernel: Kernel, x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"], *, exact: bool = False
) -> Float[Tensor, "*batch a b"]:
    """k_g(x, y) as a dense matrix, in the dtype of the inputs.

    `exact` computes distances by differences of coordinates instead of a matrix product.
    """
    if type(kernel) is RotationAverage:
        return kernel.average(evaluate(kernel.base_kernel, x, kernel.rotated(y), exact=exact))
    if is_function_of_distance(kernel):
        if kernel.active_dims is not None:
            x, y = x[..., kernel.active_dims], y[..., kernel.active_dims]
        return _function_of_distance(kernel, x, y, exact)
    if type(kernel) is AdditiveKernel and not kernel.batch_shape:
        # Not left to GPyTorch, which may factorize a part and add jitter to it.
        return torch.stack([evaluate(part, x, y, exact=exact) for part in kernel.kernels]).sum(dim=0)
    if type(kernel) is ScaleKernel and kernel.active_dims is None and not kernel.batch_shape:
        return evaluate(kernel.base_kernel, x, y, exact=exact) * kernel.outputscale
    with gpytorch.settings.lazily_evaluate_kernels(False):
        return kernel(y, x).to_dense().mT  # GPyTorch centers on its first argument


def _function_of_distance(kernel: Kernel, x: Tensor, y: Tensor, exact: bool) -> Tensor:
    """`evaluate` for a kernel whose active columns are already selected."""
    if type(kernel) is AdditiveKernel:
        return torch.stack([evaluate(part, x, y, exact=exact) for part in kernel.kernels]).sum(dim=0)
    if type(kernel) is ProductKernel:
        return reduce(torch.mul, [evaluate(part, x, y, exact=exact) for part in kernel.kernels])
    form = _form_of_columns(kernel)
    if form is None:
        return _function_of_distance(kernel.base_kernel, x, y, exact) * kernel.outputscale
    lengthscale = form.lengthscale.to(x.dtype)
    x, y = x / lengthscale, y / lengthscale
    if not (form.kink or exact):
        return form(squared_distances(x, y))
    if x.dtype == torch.float64 and x.shape[-1] > MAX_DIFFERENCE_COLUMNS:
        return form(_distinct_distances(x, y))
    # Slower, but exactly 0 between equal rows.
    return form(torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square())


def _distinct_distances(
    x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"]
) -> Float[Tensor, "*batch a b"]:
    """`squared_distances` of long rows, exactly 0 where they are as small as rounding errors."""
    distances = squared_distances(x, y)
    center = y.mean(dim=-2, keepdim=True).detach()
    largest = (x.detach() - center).square().sum(dim=-1).amax() if x.numel() else 0.0
    return torch.where(distances > ROUNDING_OF_DISTANCES * largest, distances, 0.0)


def limited(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Coordinates in lengthscales, clipped so that their squares can be summed."""
    return x.clamp(-MAX_SCALED_COORDINATE[x.dtype], MAX_SCALED_COORDINATE[x.dtype])


def squared_distances(
    x: Float[Tensor, "*batch a dim"], y: Float[Tensor, "*batch b dim"]
) -> Float[Tensor, "*batch a b"]:
    """|x − y|² ≥ 0 by a matrix product; rows are centered on the mean of y for accuracy in float32."""
    center = y.mean(dim=-2, keepdim=True).detach()
    x, y = limited(x - center), limited(y - center)
    norms = x.square().sum(dim=-1, keepdim=True) + y.square().sum(dim=-1)[..., None, :]
    return (norms - 2 * (x @ y.transpose(-1, -2))).clamp_min(0.0)


def prior_variance(kernel: Kernel, x: Float[Tensor, "a dim"]) -> Float[Tensor, "a"]:
    """k_g(x, x)."""
    if type(kernel) is RotationAverage:
        parts = [_row_by_row(kernel.base_kernel, x, x[:, rotation]) for rotation in kernel.rotations]
        return torch.stack(parts).mean(dim=0)
    form = distance_form(kernel)
    return kernel(x, diag=True) if form is None else x.new_ones(len(x)) * form.scale


def _row_by_row(kernel: Kernel, x: Float[Tensor, "a dim"], y: Float[Tensor, "a dim"]) -> Float[Tensor, "a"]:
    """k_g(x_i, y_i)."""
    form = distance_form(kernel)
    if form is None:
        return kernel(x, y, diag=True)
    return form(((x - y) / form.lengthscale.to(x.dtype)).square().sum(dim=-1))
