"""Which signals need more than float32, and kernels in float64 for these.

A squared distance by a matrix product, |x|² + |y|² − 2x·y, has an error of about eps·(|x|² + |y|²), with
norms in lengthscales around a center. Signals whose patches are so far apart that this matters are computed
in float64, and signals for which that is not enough by differences of coordinates. The decision is made for
each signal separately, so that no signal changes what is computed for another.
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

LARGEST_SQUARED_NORM = {torch.float32: 2.0**13, torch.float64: 1e6}
"""Up to these squared norms, in lengthscales, squared distances by products have errors of about 0.001 in
float32 and 1e-9 in float64, where a factor of Kuu may amplify them ten thousand times."""
NEGLIGIBLE_DISTANCE = 14.0
"""In lengthscales: exp(−½ · 14²) is 3e-43."""


def shortest_lengthscale(kernel: Kernel) -> Float[Tensor, "..."]:
    """The lengthscales of a function of distance; of any other kernel, the shortest there is (1 if none)."""
    form = distance_form(kernel.base_kernel if type(kernel) is RotationAverage else kernel)
    if form is not None:
        return form.lengthscale.detach()
    known = [
        module.lengthscale.detach().min()
        for module in kernel.modules()
        if isinstance(module, Kernel) and module.has_lengthscale
    ]
    return torch.stack(known).min() if known else torch.ones(())


def signal_means(patches: Patches) -> Float[Tensor, "N dim"]:
    """The mean patch of each signal, summed in float64."""
    values = patches.values.detach()
    sums = torch.zeros(len(patches), values.shape[1], dtype=torch.float64, device=values.device)
    sums.index_add_(0, patches.signal_of.to(values.device), values.double())
    return sums / patches.offsets.diff().clamp_min(1).to(sums)[:, None]


def largest_squared_norms(
    patches: Patches, center: Float[Tensor, "N dim"], lengthscale: Float[Tensor, "..."]
) -> Float[Tensor, "N"]:
    """Of each signal, the largest squared norm of a patch around the signal's center, in lengthscales."""
    values, signal_of = patches.values.detach(), patches.signal_of.to(patches.values.device)
    if values.is_meta:  # has no values to look at
        return torch.zeros(len(patches))
    # Squares of float32 may overflow to infinity, which is as large as it has to be.
    away = (values - center.to(values)[signal_of]) / lengthscale.to(values)
    norms = away.square().sum(dim=1)
    norms = torch.where(norms.isnan(), math.inf, norms)
    largest = torch.zeros(len(patches), dtype=norms.dtype, device=norms.device)
    return largest.scatter_reduce(0, signal_of, norms, "amax").cpu()


def wide_signals(kernel: Kernel, patches: Patches) -> Bool[Tensor, "N"]:
    """Signals whose own patches are too far apart for products in their dtype."""
    norms = largest_squared_norms(patches, signal_means(patches), shortest_lengthscale(kernel))
    return norms > LARGEST_SQUARED_NORM[patches.values.dtype]


def far_apart(kernel: Kernel, rows: Float[Tensor, "M dim"]) -> bool:
    """Whether rows are too far apart for squared distances by products in their dtype."""
    if rows.is_meta:
        return False
    away = (rows.detach() - rows.detach().mean(dim=0)) / shortest_lengthscale(kernel).to(rows)
    return not bool(away.square().sum(dim=1).max() <= LARGEST_SQUARED_NORM[rows.dtype])


def coarse_signals(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Bool[Tensor, "N"]:
    """Signals with patches too far from the center of the inducing patches for products in their dtype.

    Unless they are far from all inducing patches too: then the kernel is negligible in any dtype.
    """
    lengthscale, center = shortest_lengthscale(kernel).to(inducing), inducing.detach().mean(dim=0)
    if inducing.is_meta:
        return torch.zeros(len(patches), dtype=torch.bool)
    reach = float(((inducing.detach() - center) / lengthscale).square().sum(dim=1).max())
    limit = LARGEST_SQUARED_NORM[patches.values.dtype]
    near = (2 * math.sqrt(reach) + 2 * NEGLIGIBLE_DISTANCE) ** 2 <= limit
    if near and is_function_of_distance(kernel):
        return torch.zeros(len(patches), dtype=torch.bool)
    norms = largest_squared_norms(patches, center.expand(len(patches), -1), lengthscale)
    return norms > limit
