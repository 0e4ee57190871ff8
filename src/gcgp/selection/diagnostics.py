"""A warning for training signals whose patches are all identical, from which nothing can be learned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch

from gcgp.domain import Graphs, Grids, Signals
from gcgp.selection.term_specs import ROUNDING, TermSpec

USER_CALL = 5
"""Frames from the warning up to the call of `fit`."""


def warn_if_identical(drafts: Sequence[TermSpec], trial: Signals) -> None:
    """Warn if, in every term, all patches of the trial signals are the same up to rounding.

    The position appended to a patch is not compared: it says nothing about the neighborhood. Sums over
    signals of different size still differ, so `aggregate="sum"` does not warn for these.
    """
    if not all(_identical(draft) for draft in drafts) or _sizes_tell(drafts[0]):
        return
    located = "position" in drafts[0].columns
    what = "identical apart from its position" if located else "identical"
    lost = "only positions can be" if located else "nothing but the class frequencies or mean target can be"
    warnings.warn(
        f"X: every patch is {what}, so {lost} learned: {_cause(drafts[0], trial)}. "
        f"{_remedy(drafts[0], trial)}",
        UserWarning,
        stacklevel=USER_CALL,
    )


def _identical(draft: TermSpec) -> bool:
    """Whether the bins and masses of all trial patches are equal up to rounding."""
    compared = [part for name, part in draft.columns.items() if name != "position"]
    rows = torch.cat([draft.trial.values[:, part] for part in compared], dim=1)
    low, high = rows.amin(dim=0), rows.amax(dim=0)
    rounding = ROUNDING * torch.finfo(rows.dtype).eps * torch.maximum(low.abs(), high.abs())
    return bool((high - low <= rounding).all())


def _sizes_tell(draft: TermSpec) -> bool:
    """Whether sums over vertices differ between signals although patches do not."""
    if draft.aggregate != "sum":
        return False
    totals = torch.zeros(len(draft.trial)).index_add(
        0, draft.trial.signal_of, draft.trial.multiplicity.float()
    )
    return bool(totals.max() - totals.min() > 1e-4 * totals.abs().max())


def _constant(trial: Signals) -> bool:
    return bool((np.ptp(trial.values, axis=0) == 0).all())


def _edges_unused(draft: TermSpec, trial: Signals) -> bool:
    graphs = trial.domains
    return isinstance(graphs, Graphs) and draft.convolution.chart == "euclidean" and len(graphs.edges) > 0


def _cause(draft: TermSpec, trial: Signals) -> str:
    if not _constant(trial):
        return "no bin of the weighting holds a vertex whose value differs from others"
    cause = "values are the same at every vertex of every signal"
    if _edges_unused(draft, trial):
        return f'{cause}, and edges are not used: coordinates define the neighborhoods (chart="euclidean")'
    return f"{cause}, and so are the bins of the weighting"


def _remedy(draft: TermSpec, trial: Signals) -> str:
    if not _constant(trial):
        spacing = trial.domains.spacing()
        weighting = draft.convolution.weighting
        return f"Choose other radii for {weighting!r}; neighbors are about {spacing:g} apart."
    if isinstance(trial.domains, Grids):
        return "Check that the images were read correctly."
    remedies = ["give values that differ between vertices, such as their degrees"]
    if _edges_unused(draft, trial):
        remedies.append('use the edges: chart="path", bin_counts=True')
    if not draft.convolution.bin_counts:
        remedies.append("let the number of vertices in each bin count: bin_counts=True")
    elif draft.aggregate != "sum":
        remedies.append('if the number of vertices matters, use aggregate="sum"')
    return f"To change this, {'; or '.join(remedies)}."
