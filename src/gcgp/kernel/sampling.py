"""Random samples of the patches of signals, for unbiased estimates of sums over pairs of patches."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from gcgp.patches import Patches


def independent_halves(
    patches: Patches, draws: int, seed: int, indices: Int[np.ndarray, "N"]
) -> tuple[Patches, Patches]:
    """Two independent samples of the patches of each signal, of `draws // 2` patches each.

    Patches are drawn in proportion to their multiplicities and get equal multiplicities with the same total,
    so that bilinear forms of the two samples are unbiased. Draws depend on the seed and the signal's index.
    """
    from gcgp.kernel.engine.loops import draw_rows

    if draws < 2 or bool((patches.offsets.diff() <= draws).any()):
        raise ValueError(f"draws={draws!r}: expected at least 2, and fewer than the patches of any signal")
    magnitude = patches.multiplicity.detach().abs().cpu().numpy()
    rows, totals = draw_rows(magnitude, patches.offsets.numpy(), draws, seed, indices)
    half = draws // 2

    def sample(columns: slice) -> Patches:
        flat = torch.from_numpy(rows[:, columns].ravel())
        m = patches.multiplicity[flat]
        sign = m / m.detach().abs().clamp_min(torch.finfo(m.dtype).tiny)
        share = torch.from_numpy(np.repeat(totals / half, half)).to(m)
        offsets = torch.arange(len(patches) + 1) * half
        return Patches(patches.values[flat], sign * share, offsets, patches.vertices[flat])

    return sample(slice(half)), sample(slice(half, 2 * half))
