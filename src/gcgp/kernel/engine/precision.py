"""Signals for which matrix products in their dtype are not accurate enough.

A squared distance |x|² + |y|² − 2x·y has an error of about eps · (|x|² + |y|²), for centered coordinates in
lengthscales. Signals whose patches are too far apart for float32 are computed in float64, and those too far
apart for float64 by differences of coordinates. The decision is made per signal, so no signal affects the
precision of another.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Bool, Float
from torch import Tensor

from gcgp.kernel.base import distance_form, is_function_of_distance
from gcgp.kernel.rotation_average import RotationAverage
from gcgp.patches import Patches

MAX_SQUARED_NORM = {torch.float32: 2.0**13, torch.float64: 1e6}
"""In squared lengthscales. Up to this, squared distances have errors of about 0.001 in float32 and 1e-9 in
float64, where a Cholesky factor of Kuu may amplify them by 1e4."""
NEGLIGIBLE_DISTANCE = 14.0
"""In lengthscales: exp(−½ · 14²) is 3e-43."""


def shortest_lengthscale(kernel: Kernel) -> Float[Tensor, "..."]:
    """The lengthscales of a function of distance; of any other kernel the shortest one, or 1 without any."""
    form = distance_form(kernel.base_kernel if type(kernel) is RotationAverage else kernel)
    if form is not None:
        return form.lengthscale.detach()
    lengthscales = [
        module.lengthscale.detach().min()
        for module in kernel.modules()
        if isinstance(module, Kernel) and module.has_lengthscale
    ]
    return torch.stack(lengthscales).min() if lengthscales else torch.ones(())


def signal_means(patches: Patches) -> Float[Tensor, "N dim"]:
    """The mean patch of each signal, summed in float64."""
    values = patches.values.detach()
    sums = torch.zeros(len(patches), values.shape[1], dtype=torch.float64, device=values.device)
    sums.index_add_(0, patches.signal_of.to(values.device), values.double())
    return sums / patches.offsets.diff().clamp_min(1).to(sums)[:, None]


def largest_squared_norms(
    patches: Patches, center: Float[Tensor, "N dim"], lengthscale: Float[Tensor, "..."]
) -> Float[Tensor, "N"]:
    """The largest squared norm of a patch of each signal around its center, in lengthscales."""
    values, signal_of = patches.values.detach(), patches.signal_of.to(patches.values.device)
    if values.is_meta:
        return torch.zeros(len(patches))
    # Squares may overflow to infinity in float32, which is large enough.
    norms = ((values - center.to(values)[signal_of]) / lengthscale.to(values)).square().sum(dim=1)
    norms = torch.where(norms.isnan(), math.inf, norms)
    largest = torch.zeros(len(patches), dtype=norms.dtype, device=norms.device)
    return largest.scatter_reduce(0, signal_of, norms, "amax").cpu()


def wide_signals(kernel: Kernel, patches: Patches) -> Bool[Tensor, "N"]:
    """Signals whose patches are too far from each other."""
    norms = largest_squared_norms(patches, signal_means(patches), shortest_lengthscale(kernel))
    return norms > MAX_SQUARED_NORM[patches.values.dtype]


def far_apart(kernel: Kernel, rows: Float[Tensor, "M dim"]) -> bool:
    """Whether rows are too far from each other."""
    if rows.is_meta:
        return False
    rows = rows.detach()
    norms = ((rows - rows.mean(dim=0)) / shortest_lengthscale(kernel).to(rows)).square().sum(dim=1)
    return not bool(norms.max() <= MAX_SQUARED_NORM[rows.dtype])


def coarse_signals(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Bool[Tensor, "N"]:
    """Signals with patches too far from the center of the inducing patches.

    None if such patches are also far from all inducing patches, where the kernel is negligible in any dtype.
    """
    lengthscale, center = shortest_lengthscale(kernel).to(inducing), inducing.detach().mean(dim=0)
    if inducing.is_meta:
        return torch.zeros(len(patches), dtype=torch.bool)
    radius = float(((inducing.detach() - center) / lengthscale).square().sum(dim=1).max()) ** 0.5
    limit = MAX_SQUARED_NORM[patches.values.dtype]
    if (2 * radius + 2 * NEGLIGIBLE_DISTANCE) ** 2 <= limit and is_function_of_distance(kernel):
        return torch.zeros(len(patches), dtype=torch.bool)
    return largest_squared_norms(patches, center.expand(len(patches), -1), lengthscale) > limit
