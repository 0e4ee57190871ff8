"""Choice of a mesh descriptor and of the scale of meshes, by leave-one-out likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from gcgp._runtime.errors import unknown_option
from gcgp._runtime.processes import ProcessGroup
from gcgp.descriptors import GeometryVectors, HeatKernelSignature, SpectralDescriptor, WaveKernelSignature
from gcgp.descriptors.base import fit_transform_all
from gcgp.domain import Mesh, Signals
from gcgp.inference.context import FitContext, Progress
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.configurations import default_configuration
from gcgp.selection.content_order import content_order
from gcgp.selection.options import ModelOptions
from gcgp.selection.search import MIN_GAIN_OF_CHANGE, ModelSearch, Rung, SearchTable
from gcgp.selection.term_specs import MAX_TRIAL_PATCHES
from gcgp.selection.trial import Trial
from gcgp.weighting import Weighting

DESCRIPTOR_RUNG = Rung(200, MAX_TRIAL_PATCHES, 300, (1.0, 1.0), 1)
"""Effort per descriptor. All trial meshes are scored: meshes are few, and their patches costly."""
MIN_TOTAL_GAIN_OF_DESCRIPTOR = 0.5
"""The gain of all scored meshes together (nats) must exceed this: losses with other samples of vertices and
inducing patches differ by about 0.1."""
SEARCHED = "fast"
"""How `ModelSearch` treats a comparison of descriptors; its rungs are not used."""


@dataclass(frozen=True)
class Described:
    """Meshes as signals, with the descriptor that computed their values."""

    signals: Signals
    descriptor: SpectralDescriptor | None = None
    """None: the user gave values."""


def resolve_descriptors(option: Any) -> list[SpectralDescriptor] | None:
    """The descriptors that an estimator's argument `descriptor` stands for; None for `"auto"`."""
    if isinstance(option, str) and option == "auto":
        return None
    listed = list(option) if isinstance(option, (list, tuple)) else [option]
    if not listed:
        raise ValueError("descriptor=[]: expected at least one descriptor")
    for item in listed:
        if not isinstance(item, SpectralDescriptor):
            raise unknown_option("descriptor", item, ("auto", "any SpectralDescriptor", "a list of these"))
        item.validate()
    return listed


def candidate_descriptors(options: ModelOptions) -> list[SpectralDescriptor]:
    """The descriptors that are compared; the first is the default.

    The user's, or each kind at both scales. If the user gave a weighting with its radii, meshes keep their
    units. Without a search only the default is left.
    """
    if options.descriptors is not None:
        return [clone(descriptor) for descriptor in options.descriptors]
    weightings = options.weighting if isinstance(options.weighting, (list, tuple)) else [options.weighting]
    radii_given = any(isinstance(weighting, Weighting) for weighting in weightings)
    scales = (None,) if radii_given else ("area", None)
    kinds = (GeometryVectors, WaveKernelSignature, HeatKernelSignature)
    candidates: list[SpectralDescriptor] = [kind(scale=scale) for scale in scales for kind in kinds]
    return candidates if options.search is not None else candidates[:1]


def described_candidates(
    X: Signals | list[Mesh], options: ModelOptions, processes: ProcessGroup
) -> list[Described]:
    """The training signals as they are given, or those of each candidate descriptor on training meshes."""
    if isinstance(X, Signals):
        if options.descriptors is not None:
            raise ValueError(
                f"descriptor={list(options.descriptors)!r}: X has values already; a descriptor needs meshes"
            )
        return [Described(X)]
    if processes.size > 1:
        raise ValueError(
            "X: with several processes a list of meshes is not supported, because a descriptor learns from "
            "all meshes; compute signals with a fitted descriptor first"
        )
    descriptors = candidate_descriptors(options)
    signals = fit_transform_all(descriptors, X)
    return [Described(*pair) for pair in zip(signals, descriptors, strict=True)]


def select_descriptor(
    candidates: Sequence[Described],
    data: TrainingSet,
    options: ModelOptions,
    context: FitContext,
    table: SearchTable,
) -> Described:
    """The candidate with the best leave-one-out likelihood.

    `data` has the signals of the first candidate. All are compared with the default configuration, on the
    same meshes and vertices. Before labels are seen none is more plausible than others: smaller gains count
    than in the search of structures. With one mesh per class nothing can be left out: the first is chosen.
    """
    seed = int(context.rng.integers(2**31))
    rows = _trial_rows(data, np.random.default_rng(seed))
    options = replace(options, search=SEARCHED)
    best, lowest = candidates[0], math.inf
    for candidate in candidates:
        table.common = {"descriptor": repr(candidate.descriptor)}
        trial_data = replace(data, signals=candidate.signals).gathered(rows)
        template = Trial(
            trial_data,
            options.likelihood.closed_form(),
            options.variance,
            options.n_inducing,
            options.trial_inducing_method,
            device=context.device,
            progress=context.progress.update,
        )
        quiet = replace(context, rng=np.random.default_rng(seed), progress=Progress())
        search = ModelSearch(trial_data, template, options, len(rows), None, quiet, table)
        configuration = default_configuration(options, trial_data.signals)
        loss = search.evaluate(configuration, 0, DESCRIPTOR_RUNG).candidate.loss
        if loss < lowest - max(MIN_GAIN_OF_CHANGE, MIN_TOTAL_GAIN_OF_DESCRIPTOR / len(rows)):
            best, lowest = candidate, loss
    table.common = {"descriptor": repr(best.descriptor)}
    table.rungs = 1
    return best


def _trial_rows(data: TrainingSet, rng: np.random.Generator) -> np.ndarray:
    """The meshes on which descriptors are compared; their choice does not depend on the order of meshes."""
    targets = (data.group + data.targets).numpy()
    ordered = content_order(data.signals, targets, data.processes, int(rng.integers(2**31)))
    return ordered[rng.permutation(data.count)][: DESCRIPTOR_RUNG.signals]
