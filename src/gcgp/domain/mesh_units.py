"""Warnings about meshes whose sizes suggest that they are in different units."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from gcgp.mesh.mesh import Mesh

MAX_SIZE_RATIO = 10.0
"""Meshes whose sizes differ by more are likely to be in different units, which differ by 10, 25.4 or more."""
ADVICE = 'multiply its vertices to match, or ignore sizes with a descriptor with scale="area"'

UNIT_STACK_LEVEL = 6
"""Frames from the warning up to the call of `fit` or `predict_proba`."""


class MeshUnitWarning(UserWarning):
    """A mesh is so much larger or smaller than others that it may be in other units."""


def warn_about_units(
    meshes: Sequence[Mesh], sizes: Float[np.ndarray, "meshes"], domain_of: Int[np.ndarray, "signals"]
) -> None:
    """Warn if the size of a training mesh differs from the median by more than the ratio."""
    positive = np.where(sizes > 0, sizes, np.nan)
    if np.isnan(positive).all():
        return
    median = float(np.nanmedian(positive))
    ratios = np.nan_to_num(np.abs(np.log(positive / median)))
    i = int(np.argmax(ratios))
    if ratios[i] > np.log(MAX_SIZE_RATIO):
        _warn(
            f"{_name(meshes[i], i, domain_of)} has size {sizes[i]:.3g}, but the median of the training "
            f"meshes is {median:.3g}"
        )


def warn_about_other_units(
    meshes: Sequence[Mesh],
    sizes: Float[np.ndarray, "meshes"],
    domain_of: Int[np.ndarray, "signals"],
    trained: tuple[float, float],
) -> None:
    """Warn if the size of a mesh is out of the range of the training meshes by more than the ratio."""
    smallest, largest = trained
    below, above = sizes * MAX_SIZE_RATIO < smallest, sizes > largest * MAX_SIZE_RATIO
    outside = (below | above) & (sizes > 0)
    if outside.any() and largest > 0:
        i = int(np.argmax(outside))
        _warn(
            f"{_name(meshes[i], i, domain_of)} has size {sizes[i]:.3g}, but those of the training meshes are "
            f"{smallest:.3g} to {largest:.3g}"
        )


def _name(mesh: Mesh, domain: int, domain_of: Int[np.ndarray, "signals"]) -> str:
    signal = int(np.argmax(domain_of == domain))
    return f"X[{signal}], {mesh.title}," if mesh.name else f"X[{signal}]"


def _warn(message: str) -> None:
    warnings.warn(
        f"{message} (square roots of areas). Is it in other units? If so, {ADVICE}.",
        MeshUnitWarning,
        stacklevel=UNIT_STACK_LEVEL,
    )
