"""A warning for training signals whose patches are all identical, from which nothing can be learned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch

from gcgp.domain import Signals
from gcgp.selection.patch_distances import ROUNDING_ULPS
from gcgp.selection.term_specs import TermSpec

USER_STACK_LEVEL = 5
"""Frames from the warning up to the call of `fit`."""


def warn_if_identical(specs: Sequence[TermSpec], trial: Signals) -> bool:
    """Warn, and return True, if all patches of the trial signals are identical up to rounding in every term.

    The position in a patch is not compared: it says nothing about the neighborhood. Sums over signals of
    different sizes still differ, so there is no warning for these with `aggregate="sum"`.
    """
    if not all(_identical(spec) for spec in specs) or _sums_differ(specs[0]):
        return False
    positioned = "position" in specs[0].columns
    what = "identical apart from its position" if positioned else "identical"
    without_position = "nothing but the class frequencies or mean target can be"
    lost = "only positions can be" if positioned else without_position
    warnings.warn(
        f"X: every patch is {what}, so {lost} learned: {_cause(specs[0], trial)}. {_remedy(specs[0], trial)}",
        UserWarning,
        stacklevel=USER_STACK_LEVEL,
    )
    return True


def _identical(spec: TermSpec) -> bool:
    """Whether bins and bin counts of all trial patches are equal up to rounding."""
    compared = [part for name, part in spec.columns.items() if name != "position"]
    rows = torch.cat([spec.trial.values[:, part] for part in compared], dim=1)
    low, high = rows.amin(dim=0), rows.amax(dim=0)
    rounding = ROUNDING_ULPS * torch.finfo(rows.dtype).eps * torch.maximum(low.abs(), high.abs())
    return bool((high - low <= rounding).all())


def _sums_differ(spec: TermSpec) -> bool:
    """Whether sums over vertices differ between signals although patches do not."""
    if spec.aggregate != "sum":
        return False
    totals = torch.zeros(len(spec.trial)).index_add(0, spec.trial.signal_of, spec.trial.multiplicity.float())
    return bool(totals.max() - totals.min() > 1e-4 * totals.abs().max())


def _constant(trial: Signals) -> bool:
    return bool((np.ptp(trial.values, axis=0) == 0).all())


def _edges_unused(spec: TermSpec, trial: Signals) -> bool:
    return trial.domains.has_unused_edges and spec.convolution.chart == "euclidean"


def _cause(spec: TermSpec, trial: Signals) -> str:
    if not _constant(trial):
        return "no bin of the weighting holds a vertex whose value differs from others"
    cause = "values are the same at every vertex of every signal"
    if _edges_unused(spec, trial):
        return f'{cause}, and edges are not used: coordinates define the neighborhoods (chart="euclidean")'
    return f"{cause}, and so are the bins of the weighting"


def _remedy(spec: TermSpec, trial: Signals) -> str:
    if not _constant(trial):
        spacing, weighting = trial.domains.spacing(), spec.convolution.weighting
        return f"Choose other radii for {weighting!r}; neighbors are about {spacing:g} apart."
    if trial.domains.one_chart:
        return "Check that the images were read correctly."
    remedies = ["give values that differ between vertices, such as their degrees"]
    if _edges_unused(spec, trial):
        remedies.append('use the edges: chart="path", patch=Patch(bin_counts=True)')
    if not spec.convolution.bin_counts:
        remedies.append("count the vertices in each bin: patch=Patch(bin_counts=True)")
    elif spec.aggregate != "sum":
        remedies.append('if the number of vertices matters, use aggregate="sum"')
    return f"To change this, {'; or '.join(remedies)}."
