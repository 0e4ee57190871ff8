"""Kernel matrices of signals and inducing patches (Walker & Glocker 2019, eq. 9).

Z_n[v] are the patches of signal n, with multiplicities m_v, and U the inducing patches. The engine computes
all sums in blocks, also for gradients, so memory does not grow with the number of kernel values.
"""

from __future__ import annotations

from itertools import groupby, pairwise

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gcgp.kernel.base import evaluate
from gcgp.kernel.engine.patch_sums import double_sums, single_sums
from gcgp.kernel.engine.precision import far_apart
from gcgp.patches import Patches


def kuu(kernel: Kernel, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "M M"]:
    """Kuu[m, m'] = k_g(U_m, U_m')."""
    return evaluate(kernel, inducing, inducing, exact=far_apart(kernel, inducing))


def kfu(kernel: Kernel, patches: Patches, inducing: Float[Tensor, "M dim"]) -> Float[Tensor, "N M"]:
    """Kfu[n, m] = Σ_v m_v k_g(Z_n[v], U_m), the transpose of Kuf."""
    if len(patches.values) == 0:
        return inducing.new_zeros(len(patches), len(inducing))
    return single_sums(kernel, patches, inducing)


def kff(kernel: Kernel, left: Patches, right: Patches) -> Float[Tensor, "N N2"]:
    """Kff[n, n'] = Σ_v Σ_v' m_v m_v' k_g(Z_n[v], Z_n'[v']), by Kfu with the patches of one signal at a time.

    Consecutive signals with one patch, such as inducing patches, are computed together.
    """
    columns = []
    spans = pairwise(right.offsets.tolist())
    for single, group in groupby(spans, lambda span: span[1] - span[0] == 1):
        parts = list(group)
        for start, stop in [(parts[0][0], parts[-1][1])] if single else parts:
            if start == stop:
                columns.append(left.values.new_zeros(len(left), 1))
                continue
            values, m = kfu(kernel, left, right.values[start:stop]), right.multiplicity[start:stop]
            columns.append(values * m if single else (values @ m)[:, None])
    return torch.cat(columns, dim=1)


def kff_diagonal(kernel: Kernel, patches: Patches) -> Float[Tensor, "N"]:
    """Kff[n, n] = Σ_v Σ_v' m_v m_v' k_g(Z_n[v], Z_n[v'])."""
    if len(patches.values) == 0:
        return patches.values.new_zeros(len(patches))
    return double_sums(kernel, patches)
